package client_test

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/client"
	"weir/server"
)

const calls = `
rules:
  - {name: checks, match: {endpoint: /grpc.health.v1.Health/Check, remote_address: 127.0.0.1}, limit: 2, window: 60s}
  - {name: watches, match: {endpoint: /grpc.health.v1.Health/Watch}, limit: 1, window: 60s}
  - {name: wide, match: {endpoint: /grpc.health.v1.Health/Watch, remote_address: "*"}, limit: 100, window: 60s}
  - {name: never, match: {user: bob}, limit: 0, window: 60s}
`

// guarded is a gRPC service behind the interceptors. Its answers tell what the
// handler finds in its metadata.
type guarded struct {
	healthpb.UnimplementedHealthServer
	seen chan metadata.MD // of the last call
}

func (g *guarded) note(ctx context.Context) {
	md, _ := metadata.FromIncomingContext(ctx)
	g.seen <- md
}

func (g *guarded) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	g.note(ctx)
	return &healthpb.HealthCheckResponse{}, nil
}

func (g *guarded) Watch(_ *healthpb.HealthCheckRequest, s grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	g.note(s.Context())
	return s.Send(&healthpb.HealthCheckResponse{})
}

func guard(t *testing.T, c *client.Client, o client.GRPCOptions) (healthpb.HealthClient, *guarded) {
	t.Helper()
	s := grpc.NewServer(grpc.UnaryInterceptor(c.UnaryServerInterceptor(o)), grpc.StreamInterceptor(c.StreamServerInterceptor(o)))
	g := &guarded{seen: make(chan metadata.MD, 100)}
	healthpb.RegisterHealthServer(s, g)
	conn, err := grpc.NewClient(serve(t, s), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn), g
}

// watch calls the stream to its end.
func watch(ctx context.Context, h healthpb.HealthClient) (header, trailer metadata.MD, err error) {
	stream, err := h.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return nil, nil, err
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if err == io.EOF { //nolint:errorlint // grpc gives it as it is
		err = nil
	}
	header, _ = stream.Header()
	return header, stream.Trailer(), err
}

func TestCallsOverTheLimitEndWithAStatusThatTellsWhenToComeBack(t *testing.T) {
	w := start(t, setup{rules: calls, service: server.Options{Denied: server.DeniedOptions{Body: server.FixedBody([]byte("slower"), "text/html")}}})
	h, _ := guard(t, w.Client, client.GRPCOptions{})
	unary := func() (header, trailer metadata.MD, err error) {
		_, err = h.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		return header, trailer, err
	}
	stream := func() (metadata.MD, metadata.MD, error) { return watch(t.Context(), h) }
	for _, step := range []struct {
		call      func() (header, trailer metadata.MD, err error)
		remaining string
		refused   bool
		remark    string
	}{
		{unary, "1", false, "the first call"},
		{unary, "0", false, "the second"},
		{unary, "0", true, "the third"},
		{stream, "0", false, "the first stream"},
		{stream, "0", true, "the second"},
	} {
		header, trailer, err := step.call()
		if !step.refused {
			if got := header.Get("x-ratelimit-remaining"); err != nil || !slices.Equal(got, []string{step.remaining}) {
				t.Errorf("%s: remaining %q, %v", step.remark, got, err)
			}
			continue
		}
		st := grpcstatus.Convert(err)
		if st.Code() != grpccodes.ResourceExhausted || st.Message() != "slower" {
			t.Errorf("%s: %v", step.remark, err)
		}
		if got := trailer.Get("retry-after"); !slices.Equal(got, []string{"60"}) || !slices.Equal(trailer.Get("content-type"), []string{"application/grpc"}) {
			t.Errorf("%s: the trailer is %v", step.remark, trailer)
		}
		if wait, ok := retryInfo(st); !ok || wait != 60*time.Second {
			t.Errorf("%s: RetryInfo of %v, %v", step.remark, wait, ok)
		}
	}
}

func retryInfo(st *grpcstatus.Status) (time.Duration, bool) {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration(), true
		}
	}
	return 0, false
}

func TestACallThatWaitingCannotHelpHasNoRetryInfo(t *testing.T) {
	w := start(t, setup{rules: calls})
	h, _ := guard(t, w.Client, client.GRPCOptions{Descriptors: func(ctx context.Context, method string) []*weirv1.Descriptor {
		if method != "/grpc.health.v1.Health/Check" {
			return nil
		}
		return []*weirv1.Descriptor{client.Describe("user", metadata.ValueFromIncomingContext(ctx, "user")[0])}
	}})
	_, err := h.Check(metadata.AppendToOutgoingContext(t.Context(), "user", "bob"), &healthpb.HealthCheckRequest{})
	st := grpcstatus.Convert(err)
	if _, ok := retryInfo(st); ok || st.Code() != grpccodes.ResourceExhausted {
		t.Errorf("%v with %v", err, st.Details())
	}
	if _, err := h.Check(metadata.AppendToOutgoingContext(t.Context(), "user", "alice"), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, _, err := watch(t.Context(), h); err != nil {
		t.Errorf("a method without descriptors: %v", err)
	}
}

func TestHandlersOfCallsAreToldByWeirAndByNobodyElse(t *testing.T) {
	w := start(t, setup{rules: calls, service: server.Options{UpstreamHeaders: true}})
	h, g := guard(t, w.Client, client.GRPCOptions{})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-weir-remaining", "99", "x-weir-overflow", "mine", "x-other", "kept")
	if _, err := h.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := watch(ctx, h); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1", "0"} {
		md := <-g.seen
		if !slices.Equal(md.Get("x-weir-remaining"), []string{want}) || md.Get("x-weir-overflow") != nil || md.Get("x-other") == nil {
			t.Errorf("the handler finds %v", md)
		}
	}
}
