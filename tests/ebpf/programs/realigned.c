// Frames with a dynamic position: the stack is aligned more strictly than at a call.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

SHOWN unsigned long leaf(unsigned long state, unsigned long *large) {
  for (int i = 0; i < 8; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state + large[state % 8];
}

SHOWN unsigned long aligned(unsigned long state) {
  unsigned long large[8] __attribute__((aligned(64))) = {state, state * 3, state * 5};
  return leaf(state, large);
}

// Aligned, and with a dynamic size.
SHOWN unsigned long moved(unsigned long state, unsigned long words) {
  unsigned long large[words] __attribute__((aligned(128)));
  large[words / 2] = state;
  return aligned(state) + large[words / 2];
}

SHOWN unsigned long outer(unsigned long state) {
  unsigned long large[16] __attribute__((aligned(32))) = {state};
  unsigned long result = moved(state | 1, 16 + (state & 63));
  return result + large[state % 16];
}

int main(void) {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = outer(state);
}
