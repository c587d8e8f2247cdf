// A thread that outlives the process's first thread, after which the leader has no memory to read.

#include <pthread.h>
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

SHOWN unsigned long inner(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  return leaf(state) ^ a ^ b ^ c;
}

SHOWN void *thread(void *unused) {
  // Only after the leader has exited.
  usleep(200000);
  for (unsigned long state = 1;; state++) sink = inner(state);
  return unused;
}

int main(void) {
  pthread_t started;
  alarm(300);
  pthread_create(&started, 0, thread, 0);
  pthread_exit(0);
}
