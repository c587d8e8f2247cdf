// Executes the next program, over and over: the process stays, its image is replaced.

#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

SHOWN unsigned long leaf(unsigned long state) {
  for (int i = 0; i < 10000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN unsigned long NAME(unsigned long state) {
  volatile unsigned long large[WORDS];
  large[state % WORDS] = state;
  return leaf(state) + large[state % WORDS];
}

static double now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  // The alarm survives exec.
  unsigned left = alarm(0);
  alarm(left ? left : 300);
  double start = now();
  for (unsigned long state = 1; now() - start < 0.2;) {
    for (int i = 0; i < 10; i++, state++) sink = NAME(state);
  }
  char *again[] = {argv[1], argv[0], 0};
  execv(argv[1], again);
  return 1;
}
