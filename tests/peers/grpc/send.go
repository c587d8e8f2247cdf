package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	profiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	_ "unsafe"
)

type sending struct {
	To string
	// A file with the export request.
	Message string
	// A method to call instead of the export.
	Method string
	// The number of calls, and how many of them are concurrent.
	Calls, AtOnce int
	// The pause after each call.
	Pause duration
	Gzip  bool
	// The deadline of each call.
	Timeout duration
	// Cancels each call after this time.
	CancelAfter duration
	// The size of one metadata entry.
	Metadata int
	// The interval of pings, which are also sent without a call.
	Pings duration
	// How long to keep the connection after all calls have ended.
	Stay duration
	// Calls wait for a connection, and are retried after UNAVAILABLE.
	Persist bool
}

// grpc-go raises shorter intervals to ten seconds, which is too slow for a test.
//
//go:linkname minPing google.golang.org/grpc/internal.KeepaliveMinPingTime
var minPing time.Duration

func (s *sending) run() error {
	request := new(profiles.ExportProfilesServiceRequest)
	body, err := os.ReadFile(s.Message)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(body, request); err != nil {
		return err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(connections{}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(s.Persist)),
	}
	if s.Gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	if s.Pings > 0 {
		minPing = time.Duration(s.Pings)
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                minPing,
			PermitWithoutStream: true,
		}))
	}
	connection, err := grpc.NewClient(s.To, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	waiting := make(chan struct{}, s.Calls)
	for range s.Calls {
		waiting <- struct{}{}
	}
	close(waiting)
	var senders sync.WaitGroup
	for range max(1, s.AtOnce) {
		senders.Go(func() {
			for range waiting {
				s.call(connection, request)
				time.Sleep(time.Duration(s.Pause))
			}
		})
	}
	senders.Wait()
	time.Sleep(time.Duration(s.Stay))
	emit(event{"done": s.Calls})
	return nil
}

func (s *sending) call(connection *grpc.ClientConn, request *profiles.ExportProfilesServiceRequest) {
	for {
		err := s.attempt(connection, request)
		emit(outcome(err))
		if !s.Persist || err == nil || status.Code(err).String() != "Unavailable" {
			return
		}
	}
}

func (s *sending) attempt(connection *grpc.ClientConn, request *profiles.ExportProfilesServiceRequest) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(s.Timeout))
		defer cancel()
	}
	if s.CancelAfter > 0 {
		defer time.AfterFunc(time.Duration(s.CancelAfter), cancel).Stop()
	}
	if s.Metadata > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "large", strings.Repeat("x", s.Metadata))
	}
	method := s.Method
	if method == "" {
		method = export
	}
	return connection.Invoke(ctx, method, request, new(profiles.ExportProfilesServiceResponse))
}

// The status that a caller sees, including its details.
func outcome(err error) event {
	answer := status.Convert(err)
	shown := event{"code": answer.Code().String(), "message": answer.Message()}
	for _, detail := range answer.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			shown["retry_after"] = retry.GetRetryDelay().AsDuration().Seconds()
		}
	}
	return shown
}
