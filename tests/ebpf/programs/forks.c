// Two processes of one program, without exec.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

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

SHOWN unsigned long parent(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  return leaf(state) ^ a ^ b ^ c;
}

SHOWN unsigned long child(unsigned long state) {
  volatile unsigned long large[100];
  large[state % 100] = state;
  return leaf(state) + large[state % 100];
}

int main(void) {
  int is_child = fork() == 0;
  if (is_child) prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(300);
  for (unsigned long state = 1;; state++) sink = is_child ? child(state) : parent(state);
}
