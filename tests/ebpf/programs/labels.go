// Goroutines with labels of their own, on their own stack and on others: that of the scheduler, of a growing
// stack, of a signal. Each function below appears with its goroutine's labels only.

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

var sink uint64

//go:noinline
func burn(rounds int) {
	for i := 0; i < rounds; i++ {
		sink += uint64(i) * sink
	}
}

//go:noinline
func checkout(until time.Time) {
	for time.Now().Before(until) {
		burn(100000)
	}
}

//go:noinline
func search(until time.Time) {
	for time.Now().Before(until) {
		burn(100000)
	}
}

// Without labels.
//
//go:noinline
func plain(until time.Time) {
	for time.Now().Before(until) {
		burn(100000)
	}
}

//go:noinline
func deepen(depth int) uint64 {
	var values [64]uint64
	values[depth%64] = sink
	if depth == 0 {
		return values[0]
	}
	return deepen(depth-1) + values[depth%64]
}

// Grows a new stack each time.
//
//go:noinline
func grow(until time.Time) {
	for time.Now().Before(until) {
		done := make(chan uint64)
		go func() { done <- deepen(200) }()
		sink += <-done
	}
}

// On the system stack.
//
//go:noinline
func collect(until time.Time) {
	var stats runtime.MemStats
	for time.Now().Before(until) {
		runtime.ReadMemStats(&stats)
	}
}

// Switches goroutines by the scheduler.
//
//go:noinline
func yield(until time.Time) {
	for time.Now().Before(until) {
		runtime.Gosched()
	}
}

// Interrupted by signals.
//
//go:noinline
func interrupted(until time.Time) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	for time.Now().Before(until) {
		syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
		burn(1000)
	}
}

func labelled(work func(time.Time), until time.Time, labels ...string) {
	go pprof.Do(context.Background(), pprof.Labels(labels...), func(context.Context) { work(until) })
}

func main() {
	until := time.Now().Add(300 * time.Second)
	runtime.GOMAXPROCS(4)
	ids := []string{"trace_id", "0af7651916cd43dd8448eb211c80319c", "span_id", "b7ad6b7169203331"}
	labelled(checkout, until, append(ids, "endpoint", "/checkout", "tenant", "acme")...)
	many := []string{}
	for i := 0; i < 12; i++ {
		many = append(many, fmt.Sprintf("key%02d", i), strings.Repeat("v", 20*i))
	}
	labelled(search, until, many...)
	labelled(grow, until, "work", "grow")
	labelled(collect, until, "work", "collect")
	labelled(yield, until, "work", "yield")
	labelled(interrupted, until, "work", "interrupted")
	plain(until)
}
