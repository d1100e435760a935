package server

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	weirv1 "weir/api/weir/v1"
)

// GRPCOptions configures the gRPC server. The zero value is its default.
type GRPCOptions struct {
	MaxConnectionAge time.Duration // connections are closed gently at about this age, so that load spreads; 0: never
	Reflection       bool          // let clients list the services
}

// GRPC is the gRPC server: RateLimitService, weir.v1, health.
type GRPC struct {
	*grpc.Server
	health *health.Server
}

// healthNames are the services that clients ask the health of.
var healthNames = [...]string{"", "ratelimit", rls.RateLimitService_ServiceDesc.ServiceName}

// NewGRPC returns a server that answers NOT_SERVING to health checks until
// SetServing.
func NewGRPC(s *Service, opts GRPCOptions) *GRPC {
	g := &GRPC{
		Server: grpc.NewServer(
			grpc.ForceServerCodecV2(newCodec(s.calls)),
			grpc.NumStreamWorkers(uint32(32*runtime.GOMAXPROCS(0))),
			grpc.UnaryInterceptor(s.recoverUnary),
			grpc.StreamInterceptor(s.recoverStream),
			// Envoy pings idle connections as often as it is told to.
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 500 * time.Millisecond, PermitWithoutStream: true}),
			grpc.KeepaliveParams(keepalive.ServerParameters{
				MaxConnectionAge:      opts.MaxConnectionAge, // grpc adds a jitter of a tenth
				MaxConnectionAgeGrace: 30*time.Second + rand.N(time.Second),
				Time:                  time.Minute,
				Timeout:               20 * time.Second,
			}),
		),
		health: health.NewServer(),
	}
	s.register(g)
	weirv1.RegisterWeirServiceServer(g, &api{service: s})
	healthpb.RegisterHealthServer(g, g.health)
	if opts.Reflection {
		reflection.Register(g)
	}
	g.SetServing(false)
	return g
}

// SetServing says what health checks answer.
func (g *GRPC) SetServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		g.health.SetServingStatus(name, st)
	}
}

// Drain stops gently: health checks say NOT_SERVING, and after the delay, in
// which clients turn elsewhere, no new call is taken and the rest are finished,
// for at most the time limit.
func (g *GRPC) Drain(delay, limit time.Duration) {
	g.health.Shutdown()
	time.Sleep(delay)
	done := make(chan struct{})
	go func() { defer close(done); g.GracefulStop() }()
	select {
	case <-done:
	case <-time.After(limit):
		g.Stop()
		<-done
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
