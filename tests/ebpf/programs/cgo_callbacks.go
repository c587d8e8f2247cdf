// C calls Go on a thread that C created, and Go that C called calls C again, which calls Go again.
package main

/*
#cgo CFLAGS: -O2 -fomit-frame-pointer
#cgo LDFLAGS: -pthread
#include <pthread.h>
#include <stdint.h>
#include <stddef.h>
uint64_t onThread(uint64_t);
uint64_t again(uint64_t);
uint64_t innermost(uint64_t);
__attribute__((noipa)) static uint64_t thread_inner(uint64_t state) {
  uint64_t a = state * 3, b = state * 5;
  return onThread(state) ^ a ^ b;
}
static void *thread(void *unused) {
  for (volatile uint64_t state = 1;;) state = thread_inner(state | 1);
  return unused;
}
static void start(void) {
  pthread_t id;
  pthread_create(&id, NULL, thread, NULL);
}
__attribute__((noipa)) static uint64_t c_outer(uint64_t state) {
  uint64_t a = state * 3, b = state * 5;
  return again(state) ^ a ^ b;
}
__attribute__((noipa)) static uint64_t c_nested(uint64_t state) {
  uint64_t a = state * 3, b = state * 5;
  return innermost(state) ^ a ^ b;
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

//go:noinline
//export onThread
func onThread(state C.uint64_t) C.uint64_t {
	return C.uint64_t(leaf(uint64(state)) + 1)
}

//go:noinline
//export again
func again(state C.uint64_t) C.uint64_t {
	return C.c_nested(state) + 1
}

//go:noinline
//export innermost
func innermost(state C.uint64_t) C.uint64_t {
	return C.uint64_t(leaf(uint64(state)) + 1)
}

//go:noinline
func outer(state uint64) uint64 {
	return uint64(C.c_outer(C.uint64_t(state))) + 1
}

func main() {
	time.AfterFunc(300*time.Second, func() { os.Exit(0) })
	C.start()
	for state := uint64(1); ; {
		state = outer(state | 1)
	}
}
