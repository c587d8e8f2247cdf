// A program without any library, as languages make that bring their own: nobody says that _start has no caller.

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

// Some minutes at most.
__attribute__((force_align_arg_pointer)) void _start(void) {
  for (unsigned long state = 1; state < 10000000; state++) sink = inner(state);
  __builtin_trap();
}
