package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	profiles "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/durationpb"
)

type serving struct {
	Address string
	// The maximum message size.
	MaxMessage int
	// The maximum header size of a call.
	MaxHeaders uint32
	MaxStreams uint32
	// The maximum age of a connection.
	MaxAge duration
	// Disconnects clients that ping more often.
	MinPing duration
	// The delay of each call.
	Delay duration
	// How to refuse the first calls.
	Refuse refusal
	// The number of calls that are refused after their headers, with a stream reset.
	Reset int
}

type refusal struct {
	Times int
	Code  codes.Code
	// The delay in the RetryInfo; without it no RetryInfo is sent.
	RetryAfter duration
}

func (s *serving) run() error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return err
	}
	options := []grpc.ServerOption{
		grpc.StatsHandler(connections{}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Duration(s.MinPing)}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: time.Duration(s.MaxAge)}),
		grpc.InTapHandle(s.reset()),
	}
	if s.MaxMessage > 0 {
		options = append(options, grpc.MaxRecvMsgSize(s.MaxMessage))
	}
	if s.MaxHeaders > 0 {
		options = append(options, grpc.MaxHeaderListSize(s.MaxHeaders))
	}
	if s.MaxStreams > 0 {
		options = append(options, grpc.MaxConcurrentStreams(s.MaxStreams))
	}
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: s.handler()}},
	}, s)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		server.GracefulStop()
	}()
	emit(event{"listens": listener.Addr().String()})
	return server.Serve(listener)
}

// Refuses calls before their messages are read.
func (s *serving) reset() tap.ServerInHandle {
	var met atomic.Int64
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		if met.Add(1) <= int64(s.Reset) {
			emit(event{"reset": 1})
			return ctx, status.Error(codes.Unavailable, "reset on purpose")
		}
		return ctx, nil
	}
}

func (s *serving) handler() grpc.MethodHandler {
	var met atomic.Int64
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(profiles.ExportProfilesServiceRequest)
		if err := decode(request); err != nil {
			emit(event{"refused": status.Code(err).String()})
			return nil, err
		}
		if met.Add(1) <= int64(s.Refuse.Times) {
			emit(event{"refused": s.Refuse.Code.String(), "at": time.Now().UnixMilli()})
			return nil, s.Refuse.status()
		}
		select {
		case <-time.After(time.Duration(s.Delay)):
		case <-ctx.Done():
			emit(event{"cancelled": errors.Is(ctx.Err(), context.Canceled)})
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		emit(event{"taken": samples(request), "at": time.Now().UnixMilli()})
		return new(profiles.ExportProfilesServiceResponse), nil
	}
}

func (r refusal) status() error {
	refused := status.New(r.Code, "refused on purpose")
	if r.RetryAfter > 0 {
		delay := durationpb.New(time.Duration(r.RetryAfter))
		with, err := refused.WithDetails(&errdetails.RetryInfo{RetryDelay: delay})
		if err != nil {
			return err
		}
		refused = with
	}
	return refused.Err()
}

func samples(request *profiles.ExportProfilesServiceRequest) (found int) {
	for _, resource := range request.GetResourceProfiles() {
		for _, scope := range resource.GetScopeProfiles() {
			for _, profile := range scope.GetProfiles() {
				found += len(profile.GetSamples())
			}
		}
	}
	return found
}
