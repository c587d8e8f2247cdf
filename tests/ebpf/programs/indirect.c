// A static program selects some functions at startup (ifunc); calls of them go through a PLT without unwind information.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

static unsigned long chosen(unsigned long state) {
  return state * 6364136223846793005 + 1;
}

static void *choose(void) {
  return chosen;
}

unsigned long step(unsigned long state) __attribute__((ifunc("choose")));

SHOWN unsigned long spin(unsigned long state) {
  for (int i = 0; i < 100000; i++) state = step(state);
  return state;
}

int main(void) {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = spin(state) + 1;
}
