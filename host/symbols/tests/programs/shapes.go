// Inlined calls, closures, generics and methods.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type shape interface{ area() float64 }

type square struct{ side float64 }

func (s square) area() float64 { return times(s.side, s.side) }

func times[N float64 | int](a, b N) N { return a * b }

func main() {
	all := []shape{}
	for i := range os.Args {
		all = append(all, square{float64(i)})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].area() < all[j].area() })
	fmt.Println(strings.Repeat("x", times(len(all), 2)))
}
