// Many copies of a profiler's client: sends recorded bodies in a loop through grpc-go and the client of OpenTelemetry's
// eBPF profiler, encoded and compressed anew for each request. Prints the response counts as JSON. Or the destination
// of a forwarder.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

const (
	// How long to wait after the forwarder refused a request.
	pause = 10 * time.Millisecond
	// A forwarder without a response for this long is broken.
	silence = 60 * time.Second
)

type body struct {
	request pprofileotlp.ExportRequest
	samples uint64
}

type sums struct {
	Accepted        atomic.Uint64
	AcceptedSamples atomic.Uint64
	Refused         atomic.Uint64
}

func main() {
	listen := flag.String("listen", "", "be a destination on this `address` instead")
	counts := flag.String("counts", "", "`address` of the destination's counts")
	target := flag.String("target", "", "`address` of the forwarder")
	connections := flag.Int("connections", 1, "connections")
	inFlight := flag.Int("in-flight", 1, "requests in flight per connection")
	duration := flag.Duration("duration", time.Second, "for how long to start requests")
	compression := flag.String("compression", "none", "none or gzip")
	flag.Parse()
	if *listen != "" {
		log.Fatal(serve(*listen, *counts))
	}
	bodies, err := read(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if *compression != "none" {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(*compression)))
	}
	var sent sums
	var turn atomic.Uint64
	var clients sync.WaitGroup
	until := time.Now().Add(*duration)
	for range *connections {
		connection, err := grpc.NewClient("passthrough:///"+*target, options...)
		if err != nil {
			log.Fatal(err)
		}
		for range *inFlight {
			clients.Go(func() {
				client := pprofileotlp.NewGRPCClient(connection)
				for time.Now().Before(until) {
					body := bodies[turn.Add(1)%uint64(len(bodies))]
					if err := send(client, body, &sent); err != nil {
						log.Fatal(err)
					}
				}
			})
		}
	}
	clients.Wait()
	err = json.NewEncoder(os.Stdout).Encode(map[string]uint64{
		"accepted":         sent.Accepted.Load(),
		"accepted_samples": sent.AcceptedSamples.Load(),
		"refused":          sent.Refused.Load(),
	})
	if err != nil {
		log.Fatal(err)
	}
}

func read(files []string) ([]body, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("no bodies")
	}
	var bodies []body
	for _, file := range files {
		encoded, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		request := pprofileotlp.NewExportRequest()
		if err := request.UnmarshalProto(encoded); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		bodies = append(bodies, body{request, uint64(request.Profiles().SampleCount())})
	}
	return bodies, nil
}

func send(client pprofileotlp.GRPCClient, body body, sent *sums) error {
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	response, err := client.Export(ctx, body.request)
	switch status.Code(err) {
	case codes.OK:
	case codes.ResourceExhausted, codes.Unavailable:
		sent.Refused.Add(1)
		time.Sleep(pause)
		return nil
	default:
		return fmt.Errorf("the forwarder permanently refused a request: %w", err)
	}
	if partial := response.PartialSuccess(); partial.RejectedProfiles() > 0 {
		return fmt.Errorf("the forwarder accepted only a part: %s", partial.ErrorMessage())
	}
	sent.Accepted.Add(1)
	sent.AcceptedSamples.Add(body.samples)
	return nil
}
