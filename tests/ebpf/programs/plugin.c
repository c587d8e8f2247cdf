// Two libraries with the same structure but different frames.

#define SHOWN __attribute__((noipa))

SHOWN unsigned long NAME(unsigned long state, unsigned long (*call)(unsigned long)) {
  volatile unsigned long large[WORDS];
  large[state % WORDS] = state;
  for (int i = 0; i < 2000; i++) state = state * 6364136223846793005 + 1;
  unsigned long result = call(state);
  return result + large[state % WORDS];
}
