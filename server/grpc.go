package server

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// GRPCOptions configures the gRPC server. The zero value is its default.
type GRPCOptions struct {
	MaxConnectionAge time.Duration // connections are closed gently at about this age, so that load spreads; 0: never
	Reflection       bool          // let clients list the services
	Health           *Health       // nil: one that knows of no store
	Certificates     *Certificates // nil: plain text
	Stats            stats.Handler // is told of each call, for traces; nil: nobody is
	Access           *Access       // to the methods for operators; nil: that of the zero AccessOptions
}

// GRPC is the gRPC server: RateLimitService, weir.v1, health.
type GRPC struct {
	*grpc.Server
	*Health
	service *Service
}

// maxHeaderList bounds what a call's headers take in memory. A message has at most
// 4 MiB, as grpc has it.
const maxHeaderList = 64 << 10

// How many bytes a client may send before some of them are read: the least that grpc
// takes, and on a connection enough that grpc seldom has to allow more.
const (
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// maxStreams is how many calls one connection may have under way: no more can be
// decided or held at once anyhow.
func (s *Service) maxStreams() uint32 {
	if s.opts.MaxInFlight < 0 {
		return math.MaxUint32
	}
	return uint32(min(math.MaxUint32, uint64(s.opts.MaxInFlight)+uint64(max(0, s.opts.MaxHeld))+100)) // health checks, streams
}

// NewGRPC returns a server that answers NOT_SERVING to health checks until
// SetServing.
func NewGRPC(s *Service, opts GRPCOptions) *GRPC {
	transport := insecure.NewCredentials()
	if opts.Certificates != nil {
		transport = opts.Certificates.credentials()
	}
	serverOptions := []grpc.ServerOption{
		grpc.Creds(transport),
		grpc.ForceServerCodecV2(newCodec(s.calls)),
		grpc.NumStreamWorkers(uint32(32 * runtime.GOMAXPROCS(0))),
		grpc.MaxConcurrentStreams(s.maxStreams()),
		// Of fixed size: finding out the best takes a ping and its answer each round trip.
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.ConnectionTimeout(5 * time.Second), // for who connects and says nothing, with TLS or without: a stop waits for it
		grpc.ChainUnaryInterceptor(s.recoverUnary, opts.Access.unary),
		grpc.ChainStreamInterceptor(s.recoverStream, opts.Access.stream),
		// Envoy pings idle connections as often as it is told to.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 500 * time.Millisecond, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      opts.MaxConnectionAge, // grpc adds a jitter of a tenth
			MaxConnectionAgeGrace: 30*time.Second + rand.N(time.Second),
			Time:                  time.Minute,
			Timeout:               20 * time.Second,
		}),
	}
	if opts.Stats != nil {
		serverOptions = append(serverOptions, grpc.StatsHandler(opts.Stats))
	}
	g := &GRPC{Server: grpc.NewServer(serverOptions...), Health: cmp.Or(opts.Health, NewHealth()), service: s}
	s.register(g)
	weirv1.RegisterWeirServiceServer(blaming{g.Server}, &api{service: s})
	healthpb.RegisterHealthServer(blaming{g.Server}, g.Health.server)
	if opts.Reflection {
		reflection.Register(blaming{g.Server})
	}
	return g
}

// Drain stops gently: health checks say NOT_SERVING, and after the delay, in
// which clients turn elsewhere, no new call is taken and the rest are finished,
// for at most the time limit. It tells whether all were.
func (g *GRPC) Drain(delay, limit time.Duration) bool {
	g.Health.server.Shutdown()
	time.Sleep(delay)
	g.service.EndWatches()
	done := make(chan struct{})
	go func() { defer close(done); g.GracefulStop() }()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		g.Stop()
		<-done
		return false
	}
}

func (s *Service) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() { s.recovered(recover(), info.FullMethod, &err) }()
	return handler(ctx, req)
}

func (s *Service) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() { s.recovered(recover(), info.FullMethod, &err) }()
	return handler(srv, stream)
}

// recovered turns a panic into an error: never an exit, and never an empty
// answer, which Envoy would take for OK.
func (s *Service) recovered(r any, where string, err *error) {
	if r != nil {
		s.opts.Logger.Error("a handler panicked", "method", where, "panic", r, "stack", string(debug.Stack()))
		*err = grpcstatus.Error(codes.Internal, "the request made the handler fail; the server's log says why")
	}
}
