// Busy for a tenth of the time, so that many instances do not overload a small machine.

#include <time.h>
#include <unistd.h>

static volatile unsigned sink;

__attribute__((noinline)) static void work(void) {
  clock_t end = clock() + CLOCKS_PER_SEC / 100;
  while (clock() < end)
    for (int i = 0; i < 10000; i++) sink = sink * 31 + i;
}

int main(void) {
  for (;;) {
    work();
    usleep(90000);
  }
}
