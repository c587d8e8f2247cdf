// A 32-bit program without any library.

void _start(void) {
  // Limits the run time to some minutes.
  for (volatile unsigned long long i = 0; i < 100000000000; i++) {
  }
  __builtin_trap();
}
