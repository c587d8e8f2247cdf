// Forks processes that compute for a moment and exit, up to a hundred at a time, for as many seconds as the first argument
// says. Prints how many.

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 100 };

int main(int count, char **arguments) {
  time_t end = time(NULL) + (count > 1 ? atoi(arguments[1]) : 1);
  size_t forked = 0;
  while (time(NULL) < end) {
    for (int i = 0; i < AT_ONCE; i++) {
      pid_t child = fork();
      if (child == 0) {
        for (volatile int work = 0; work < 100000; work++) continue;
        _exit(0);
      }
      forked += child > 0;
    }
    while (wait(NULL) > 0) continue;
  }
  printf("%zu processes\n", forked);
}
