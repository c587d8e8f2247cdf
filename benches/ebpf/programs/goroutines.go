// 512 goroutines that take turns, with stacks of about ten frames.
package main

import (
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func descend(depth int, values []int) int {
	if depth == 0 {
		sort.Ints(values)
		return values[0]
	}
	return descend(depth-1, values) + depth
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var all sync.WaitGroup
	for number := 0; number < 512; number++ {
		all.Add(1)
		go func() {
			defer all.Done()
			values := make([]int, 200)
			for round := 0; time.Now().Before(until); round++ {
				for i := range values {
					values[i] = (i*7919 + round) % 1009
				}
				descend(number%16, values)
				time.Sleep(time.Millisecond)
			}
		}()
	}
	all.Wait()
}
