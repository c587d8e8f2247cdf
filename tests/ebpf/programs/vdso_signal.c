// A signal handler that reads the clock: vDSO code called below the kernel's signal frame.

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile long sink;

SHOWN long ask(int times) {
  struct timespec now;
  long all = 0;
  for (int i = 0; i < times; i++) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    all += now.tv_nsec;
  }
  return all;
}

SHOWN void on_signal(int signal) {
  sink = ask(signal * 1000);
}

SHOWN long outer(long state) {
  volatile long large[100];
  large[state % 100] = state;
  raise(SIGUSR1);
  return large[state % 100];
}

int main(void) {
  static char memory[65536];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  sigaltstack(&stack, 0);
  sigaction(SIGUSR1, &action, 0);
  alarm(300);
  for (long state = 1;; state++) sink = outer(state);
}
