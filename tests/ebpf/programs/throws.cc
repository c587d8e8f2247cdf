// Throws constantly: most samples are in the unwinder that searches for the catch block, some in the throwing function.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

struct Guard {
  ~Guard() { sink = sink + 1; }
};

extern "C" {

SHOWN unsigned long thrower(unsigned long state) {
  volatile unsigned long large[20];
  // Long enough to be sampled between two throws.
  for (unsigned long turn = 0; turn < 500; turn++) large[turn % 20] = state;
  if (large[state % 20]) throw state;
  return state;
}

SHOWN unsigned long inner(unsigned long state) {
  Guard guard;
  return thrower(state) + 1;
}

SHOWN unsigned long outer(unsigned long state) {
  unsigned long a = state * 3, b = state * 5;
  try {
    return inner(state) ^ a;
  } catch (unsigned long &thrown) {
    return thrown ^ b;
  }
}
}

int main() {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = outer(state);
}
