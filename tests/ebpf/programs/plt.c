// Calls a library function so often that samples hit the PLT entry.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

unsigned long step(unsigned long state);

static volatile unsigned long sink;

SHOWN unsigned long spin(unsigned long state) {
  for (int i = 0; i < 100000; i++) state = step(state);
  return state;
}

SHOWN unsigned long outer(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  return spin(state) ^ a ^ b ^ c;
}

int main(void) {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = outer(state);
}
