// Goroutines with short functions, and enough garbage to trigger the collector.

package main

import "time"

var sink uint64
var garbage [][]byte

//go:noinline
func leaf(state uint64) uint64 {
	for i := 0; i < 8; i++ {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	return state
}

//go:noinline
func inner(state uint64, call func(uint64) uint64) uint64 {
	var values [40]uint64
	values[state%40] = state
	return call(state) ^ values[(state+1)%40]
}

//go:noinline
func outer(state uint64) uint64 {
	return inner(state, leaf) + 1
}

//go:noinline
func spin(rounds int) {
	for i := 0; i < rounds; i++ {
		sink += outer(uint64(i))
	}
}

//go:noinline
func work() {
	for {
		spin(1000)
		// Otherwise the scheduler preempts goroutines with signals.
		garbage = append(garbage[:len(garbage)%64], make([]byte, 4096))
	}
}

func main() {
	go work()
	start := time.Now()
	for time.Since(start) < 300*time.Second {
		spin(10000)
	}
}
