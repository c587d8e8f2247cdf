// A busy signal handler. It interrupts the very first instruction of a function, which would be attributed to the
// previous function if it were treated as a return address.

#define _GNU_SOURCE
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

#ifdef __aarch64__
#define FAULT "udf #0"
#define AT uc_mcontext.pc
#define LENGTH 4
#else
#define FAULT "ud2"
#define AT uc_mcontext.gregs[REG_RIP]
#define LENGTH 2
#endif

__asm__(
    ".text\n"
    ".type before, @function\n"
    "before: .cfi_startproc\n"
    ".cfi_def_cfa_offset 4096\n" // What is wrong in the next function.
    "  ret\n"
    "  .cfi_endproc\n"
    ".size before, .-before\n"
    ".globl fault\n"
    ".type fault, @function\n"
    "fault: .cfi_startproc\n"
    "  " FAULT "\n"
    "  ret\n"
    "  .cfi_endproc\n"
    ".size fault, .-fault\n");
void fault(void);

SHOWN unsigned long hot(unsigned long state) {
  for (int i = 0; i < 100000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN void on_signal(int signal, siginfo_t *info, void *context) {
  sink = hot(signal);
  ((ucontext_t *)context)->AT += LENGTH;
}

SHOWN unsigned long inner(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  fault();
  return a ^ b ^ c ^ sink;
}

SHOWN unsigned long outer(unsigned long state) {
  volatile unsigned long large[100];
  large[state % 100] = state;
  return inner(state) + large[state % 100];
}

int main(void) {
  // Above all interrupted frames, so that unwinding the signal goes down the stack.
  static char low[65536];
  char high[65536];
  stack_t stack = {.ss_sp = ON_STACK > 0 ? high : low, .ss_size = sizeof low};
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  if (ON_STACK) {
    sigaltstack(&stack, 0);
    action.sa_flags |= SA_ONSTACK;
  }
  sigaction(SIGILL, &action, 0);
  alarm(300);
  for (unsigned long state = 1;; state++) sink = outer(state);
}
