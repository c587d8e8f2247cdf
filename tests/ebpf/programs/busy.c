// Burns the given number of seconds of CPU time.

#include <stdlib.h>
#include <time.h>

static volatile unsigned sink;

__attribute__((noinline)) static void work(void) {
  for (int i = 0; i < 100000; i++) sink = sink * 31 + i;
}

__attribute__((noinline)) static void work_until(double seconds) {
  do {
    work();
  } while ((double)clock() / CLOCKS_PER_SEC < seconds);
}

int main(int argc, char **argv) {
  work_until(argc > 1 ? atof(argv[1]) : 1);
  return 0;
}
