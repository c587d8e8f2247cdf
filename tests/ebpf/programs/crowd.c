// As many threads as the first argument says: each computes for a moment, then sleeps. They have a KiB of stack, and nothing
// else of their own.

#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK = 1024 };

static int rest(void *unused) {
  for (volatile int i = 0; i < 100000; i++) continue;
  for (;;) syscall(SYS_pause);
  return 0;
}

int main(int count, char **arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(600);
  size_t threads = count > 1 ? strtoul(arguments[1], NULL, 10) : 0;
  char *stacks = mmap(NULL, threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stacks == MAP_FAILED) return 1;
  // Looks the function up here: that needs more stack than the threads have.
  syscall(SYS_getpid);
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  size_t started = 0;
  while (started < threads && clone(rest, stacks + (started + 1) * STACK, flags, NULL) > 0) started++;
  printf("%zu threads\n", started);
  fflush(stdout);
  pause();
}
