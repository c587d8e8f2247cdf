// Runs h2spec against a server, and prints one line per case: its number, outcome, description and, for failed ones, the
// actual result.
//
//	h2spec [-tls] [-path PATH] HOST:PORT
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

func main() {
	tls := flag.Bool("tls", false, "connect over TLS, whatever the certificate says")
	path := flag.String("path", "/", "path of the requests")
	timeout := flag.Duration("timeout", 2*time.Second, "how long a case waits for an answer")
	flag.Parse()
	host, port, err := net.SplitHostPort(flag.Arg(0))
	number, wrong := strconv.Atoi(port)
	if err != nil || wrong != nil {
		fmt.Fprintln(os.Stderr, "no HOST:PORT:", flag.Arg(0))
		os.Exit(2)
	}
	against := &config.Config{
		Host:         host,
		Port:         number,
		Path:         *path,
		Timeout:      *timeout,
		MaxHeaderLen: 4000,
		Strict:       true,
		TLS:          *tls,
		Insecure:     true,
	}
	// h2spec's own output is for terminals.
	results := os.Stdout
	os.Stdout = os.Stderr
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(against)
		report(results, group)
	}
}

func report(results *os.File, group *spec.TestGroup) {
	for _, test := range append(group.Tests, group.StrictTests...) {
		result := test.Result
		if result == nil {
			continue
		}
		outcome, actual := "passed", ""
		switch {
		case result.Skipped:
			outcome = "skipped"
		case result.Failed:
			outcome, actual = "failed", result.Error.Error()
		}
		fields := []string{fmt.Sprintf("%s/%d", group.ID(), result.Sequence), outcome, test.Desc, actual}
		for i, field := range fields {
			fields[i] = strings.Join(strings.Fields(field), " ")
		}
		fmt.Fprintln(results, strings.Join(fields, "\t"))
	}
	for _, below := range group.Groups {
		report(results, below)
	}
}
