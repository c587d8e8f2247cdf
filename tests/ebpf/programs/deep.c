// More frames than `max_frames`.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

SHOWN unsigned long leaf(unsigned long state) {
  for (int i = 0; i < 1000000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN unsigned long dive(unsigned long state, int deeper) {
  unsigned long result = deeper ? dive(state, deeper - 1) : leaf(state);
  return result ^ state;
}

int main(void) {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = dive(state, 500);
}
