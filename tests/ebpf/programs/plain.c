// Short functions, so that samples also hit their first and last instructions: main calls outer, which calls middle,
// which calls inner, which calls leaf.

#include <alloca.h>
#include <unistd.h>

#ifndef LEAF
#define LEAF leaf
#endif

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

SHOWN unsigned long LEAF(unsigned long state) {
  for (int i = 0; i < 8; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

// The size of the frame is dynamic.
SHOWN unsigned long inner(unsigned long state, unsigned long bytes) {
  volatile char *memory = alloca(bytes);
  memory[bytes / 2] = 1;
  unsigned long result = LEAF(state);
  return result + memory[bytes / 2];
}

SHOWN unsigned long middle(unsigned long state, unsigned long (*call)(unsigned long, unsigned long)) {
  unsigned long a = state * 3, b = state * 5, c = state * 7, d = state * 11, e = state * 13, f = state * 17;
  unsigned long result = call(state, 64 + (state & 63));
  return result ^ a ^ b ^ c ^ d ^ e ^ f;
}

SHOWN unsigned long outer(unsigned long state) {
  volatile unsigned long large[100];
  large[state % 100] = state;
  unsigned long result = middle(state | 1, inner);
  return result + large[state % 100];
}

int main(int argc, char **argv) {
  alarm(300);
#ifdef DELETES_ITSELF
  unlink(argv[0]);
#endif
  for (unsigned long state = 1;; state++) sink = outer(state);
}
