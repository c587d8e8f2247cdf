// Stacks of 26 to 73 frames without frame pointers, with frames of several shapes, busy in the innermost one.

#include <alloca.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

typedef uint64_t (*Frame)(int depth, uint64_t value);
extern Frame const frames[8];
static volatile uint64_t sink;

static uint64_t next(int depth, uint64_t value) {
  return frames[(value ^ depth) & 7](depth - 1, value);
}

__attribute__((noinline)) uint64_t leaf(uint64_t state) {
  for (int i = 0; i < 20000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

// Spills most of the callee-saved registers.
__attribute__((noinline)) uint64_t registers(int depth, uint64_t v) {
  if (depth <= 0) return leaf(v);
  uint64_t a = v * 3, b = v ^ 5, c = v + 7, d = v * 11, e = v ^ 13, f = v + 17;
  uint64_t r = next(depth, v + 1);
  return r + (a ^ b) + (c ^ d) + (e ^ f);
}

template <int Words>
__attribute__((noinline)) uint64_t array(int depth, uint64_t v) {
  if (depth <= 0) return leaf(v);
  volatile uint64_t words[Words];
  words[v % Words] = v;
  uint64_t r = next(depth, v + Words);
  return r + words[v % Words];
}

// The size of this frame is only known at run time.
__attribute__((noinline)) uint64_t variable(int depth, uint64_t v) {
  if (depth <= 0) return leaf(v);
  size_t bytes = 32 + (v & 127);
  char *memory = static_cast<char *>(alloca(bytes));
  memset(memory, 1, bytes);
  uint64_t r = next(depth, v + 5);
  return r + memory[bytes / 2];
}

__attribute__((noinline)) uint64_t aligned(int depth, uint64_t v) {
  if (depth <= 0) return leaf(v);
  alignas(64) volatile uint64_t words[8] = {v};
  uint64_t r = next(depth, v + 3);
  return r + words[0];
}

__attribute__((noinline)) uint64_t smallest(int depth, uint64_t v) {
  if (depth <= 0) return leaf(v);
  return next(depth, v + 2) + 1;
}

Frame const frames[8] = {registers, array<4>, smallest, array<12>, variable, array<60>, aligned, smallest};

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1.0;
  // Without it every round has a different stack.
  uint64_t stacks = argc > 2 ? strtoull(argv[2], nullptr, 10) : UINT64_MAX;
  timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  uint64_t round = 0;
  do {
    // The stack also contains leaf, main and two or three C library frames.
    uint64_t stack = round % stacks;
    sink = next(22 + stack % 48, stack * 0x9e3779b97f4a7c15);
    round++;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) + (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
  return 0;
}
