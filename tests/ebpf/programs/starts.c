// Stacks that do not begin in main: threads and coroutines.

#define _GNU_SOURCE
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;
static ucontext_t caller, callee;

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

SHOWN void coroutine(void) {
  for (unsigned long state = 1;; state++) {
    sink = inner(state);
    swapcontext(&callee, &caller);
  }
}

SHOWN void *thread(void *unused) {
  for (unsigned long state = 1;; state++) sink = inner(state);
  return unused;
}

int main(void) {
  static char stack[65536];
  pthread_t started;
  alarm(300);
  pthread_create(&started, 0, thread, 0);
  getcontext(&callee);
  callee.uc_stack.ss_sp = stack;
  callee.uc_stack.ss_size = sizeof stack;
  makecontext(&callee, coroutine, 0);
  for (unsigned long state = 1;; state++) {
    sink = inner(state);
    swapcontext(&caller, &callee);
  }
}
