// A call chain that a profile must show completely: main, outer, middle, inner, leaf.
//
// With different kinds of frames: spilled registers, a large array, memory from alloca, a
// realigned stack, and code that runs while an exception is caught.

#include <alloca.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

static volatile uint64_t sink;

extern "C" __attribute__((noinline)) uint64_t leaf(uint64_t rounds) {
  uint64_t state = rounds | 1;
  for (uint64_t i = 0; i < rounds; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

extern "C" __attribute__((noinline)) uint64_t inner(uint64_t rounds, size_t bytes) {
  char *memory = static_cast<char *>(alloca(bytes));
  memset(memory, 1, bytes);
  uint64_t result = leaf(rounds);
  return result + memory[bytes / 2];
}

extern "C" __attribute__((noinline)) uint64_t middle(uint64_t rounds) {
  alignas(64) volatile uint64_t aligned[8] = {rounds};
  uint64_t result = inner(rounds, 100 + (rounds & 7));
  return result + aligned[0];
}

extern "C" __attribute__((noinline)) uint64_t outer(uint64_t rounds) {
  uint64_t large[300];
  for (int i = 0; i < 300; i++) large[i] = rounds + i;
  uint64_t result = 0;
  try {
    if (sink == 0xdead) throw 1;
    throw 2;
  } catch (int thrown) {
    result = middle(rounds) + thrown;
  }
  return result + large[rounds % 300];
}

int main() {
  alarm(300);
  for (;;) sink = outer(20000);
}
