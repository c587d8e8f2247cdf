// Go calls C, and C calls Go: each call switches to another stack.
package main

/*
#include <stdint.h>
uint64_t fromC(uint64_t);
__attribute__((noipa)) static uint64_t c_leaf(uint64_t state) {
  for (int i = 0; i < 20000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}
__attribute__((noipa)) static uint64_t c_inner(uint64_t state) {
  uint64_t a = state * 3, b = state * 5;
  return c_leaf(state) ^ a ^ b;
}
__attribute__((noipa)) static uint64_t c_back(uint64_t state) {
  uint64_t a = state * 3, b = state * 5;
  return fromC(state) ^ a ^ b;
}
*/
import "C"

import (
	"os"
	"time"
)

//go:noinline
func leaf(state uint64) uint64 {
	for i := 0; i < 20000; i++ {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	return state
}

//export fromC
func fromC(state C.uint64_t) C.uint64_t {
	return C.uint64_t(leaf(uint64(state)) + 1)
}

//go:noinline
func outer(state uint64) uint64 {
	state = uint64(C.c_inner(C.uint64_t(state))) + 1
	return uint64(C.c_back(C.uint64_t(state))) + 1
}

func main() {
	time.AfterFunc(300*time.Second, func() { os.Exit(0) })
	for state := uint64(1); ; {
		state = outer(state | 1)
	}
}
