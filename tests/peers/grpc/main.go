// A grpc-go client that sends OTLP profiles, or a server that accepts them, according to its configuration. It prints
// events, one JSON object per line.
//
//	grpc -config FILE
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	// Registers gzip for compressed calls.
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
)

const export = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"

type configuration struct {
	Send  *sending
	Serve *serving
}

// A duration such as "1.5s".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

func main() {
	file := flag.String("config", "", "what to do")
	flag.Parse()
	text, err := os.ReadFile(*file)
	if err != nil {
		log.Fatal(err)
	}
	var config configuration
	if err := json.Unmarshal(text, &config); err != nil {
		log.Fatal(err)
	}
	switch {
	case config.Send != nil:
		err = config.Send.run()
	case config.Serve != nil:
		err = config.Serve.run()
	}
	if err != nil {
		log.Fatal(err)
	}
}

type event map[string]any

var printing sync.Mutex

func emit(event event) {
	line, err := json.Marshal(event)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

// Reports connections.
type connections struct{}

func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (connections) HandleConn(_ context.Context, happened stats.ConnStats) {
	switch happened.(type) {
	case *stats.ConnBegin:
		emit(event{"connection": "begins"})
	case *stats.ConnEnd:
		emit(event{"connection": "ends"})
	}
}

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (connections) HandleRPC(context.Context, stats.RPCStats) {}
