// A static program chooses its functions for strings at start; calls of them go through a linkage table without a
// linker's description.

#include <string.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

SHOWN unsigned long measure(const char *text) {
  unsigned long all = 0;
  for (int i = 0; i < 100000; i++) {
    all += strlen(text);
    __asm__ volatile("" ::: "memory");
  }
  return all + 1;
}

int main(void) {
  alarm(300);
  for (;;) sink = measure("a") + 1;
}
