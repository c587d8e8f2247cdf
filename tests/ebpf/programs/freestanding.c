// A program without any library, as from languages with their own runtime: _start is not marked as outermost.

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

SHOWN unsigned long inner(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  return leaf(state) ^ a ^ b ^ c;
}

// Limits the run time to some minutes.
__attribute__((force_align_arg_pointer)) void _start(void) {
  for (unsigned long state = 1; state < 10000000; state++) sink = inner(state);
  __builtin_trap();
}
