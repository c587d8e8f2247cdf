// A program that copies its own code to anonymous memory and maps that over the original, like programs that move their
// code to huge pages: all of it, or only the range between some functions.

#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define SHOWN __attribute__((noipa, no_reorder, aligned(4096)))

static volatile unsigned long sink;
extern const char etext[];

SHOWN unsigned long leaf(unsigned long state) {
  for (int i = 0; i < 8; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN unsigned long inner(unsigned long state) { return leaf(state) + 1; }

SHOWN unsigned long outer(unsigned long state) {
  volatile unsigned long large[100];
  large[state % 100] = state;
  return inner(state | 1) + large[state % 100];
}

static int move(unsigned long start, unsigned long end) {
  unsigned long length = end - start;
  void *copy = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return 1;
  memcpy(copy, (void *)start, length);
  if (mprotect(copy, length, PROT_READ | PROT_EXEC)) return 1;
  return mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == MAP_FAILED;
}

#ifdef ALL
// The first code in the segment.
extern int _init(void);
#define FIRST _init
#define END etext
#else
#define FIRST leaf
#define END last
#endif

SHOWN void last(void) {}

SHOWN int main(void) {
  alarm(300);
  if (move((unsigned long)FIRST & -PAGE, ((unsigned long)END + PAGE - 1) & -PAGE)) return 1;
  for (unsigned long state = 1;; state++) sink = outer(state);
}
