package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// A destination that accepts each request without decoding it, and serves its counts over HTTP.
func serve(address, counts string) error {
	var requests, bytes atomic.Uint64
	export := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var length int
		if err := decode(&length); err != nil {
			return nil, err
		}
		requests.Add(1)
		bytes.Add(uint64(length))
		return nil, nil
	}
	http.HandleFunc("/", func(response http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(response, "requests %d\nbytes %d\n", requests.Load(), bytes.Load())
	})
	go func() { log.Fatal(http.ListenAndServe(counts, nil)) }()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(lengths{}), grpc.MaxRecvMsgSize(64<<20))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: export}},
	}, nil)
	return server.Serve(listener)
}

// Reads the length of a message; each response is empty.
type lengths struct{}

func (lengths) Name() string { return "proto" }

func (lengths) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

func (lengths) Unmarshal(data mem.BufferSlice, length any) error {
	*length.(*int) = data.Len()
	return nil
}
