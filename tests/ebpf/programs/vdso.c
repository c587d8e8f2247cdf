// Reads the clock through the vDSO.

#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile long sink;

SHOWN long ask(int times) {
  struct timespec now;
  long all = 0;
  for (int i = 0; i < times; i++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    all += now.tv_nsec;
  }
  return all;
}

int main(void) {
  alarm(300);
  for (;;) sink = ask(1000) + 1;
}
