package server

import (
	"context"
	"slices"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"
)

// eventually waits for what another goroutine will do.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

func (s *served) health(t testing.TB, name string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	resp, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
	if err != nil {
		t.Fatalf("health of %q: %v", name, err)
	}
	return resp.Status
}

func TestHealthIsAnsweredForTheNamesThatClientsUse(t *testing.T) {
	s := start(t, setup{})
	for _, serving := range []bool{false, true, false} { // first: nobody has said yet
		want := healthpb.HealthCheckResponse_NOT_SERVING
		if serving {
			want = healthpb.HealthCheckResponse_SERVING
			s.SetServing(true)
		}
		for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
			if got := s.health(t, name); got != want {
				t.Errorf("health of %q: %v, want %v", name, got, want)
			}
		}
		s.SetServing(false)
	}
	_, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"})
	if grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("health of another name: %v, want NotFound", err)
	}
}

// patient are rules by which the second call is held: 300 ms for a, an hour for b.
const patient = `
rules:
  - {match: {a: "*"}, limit: 10, window: 3s, algorithm: leaky_bucket, queue: 9}
  - {match: {b: "*"}, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 9}
  - {match: {c: "*"}, limit: 100, window: 1h}
`

// holdOne makes a call that is held, and returns when it is.
func (s *served) holdOne(t *testing.T, ask string) <-chan error {
	t.Helper()
	s.call(t, request("default", ask))
	held := make(chan error, 1)
	go func() {
		resp, err := s.client.ShouldRateLimit(context.Background(), request("default", ask))
		if err == nil && resp.OverallCode != rls.RateLimitResponse_OK {
			err = grpcstatus.Error(codes.Unknown, answerText(resp))
		}
		held <- err
	}()
	eventually(t, "a held call", func() bool { return s.held.Load() == 1 })
	return held
}

func TestDrainFinishesCallsInFlight(t *testing.T) {
	s := start(t, setup{rules: patient})
	s.SetServing(true)
	held := s.holdOne(t, "a=1")
	s.Drain(0, time.Minute)
	if err := <-held; err != nil {
		t.Errorf("the call in flight ended with %v", err)
	}
	if _, err := s.client.ShouldRateLimit(t.Context(), request("default", "c=1")); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("a call after the drain: %v, want Unavailable", err)
	}
}

func TestDrainSaysNotServingFirstAndStillServes(t *testing.T) {
	s := start(t, setup{rules: patient})
	s.SetServing(true)
	drained := make(chan struct{})
	begin := time.Now()
	const delay = 2 * time.Second
	go func() { defer close(drained); s.Drain(delay, time.Minute) }()
	eventually(t, "NOT_SERVING", func() bool { return s.health(t, "ratelimit") == healthpb.HealthCheckResponse_NOT_SERVING })
	s.SetServing(true) // too late
	if got := s.health(t, ""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while draining: %v", got)
	}
	s.call(t, request("default", "c=1"))
	<-drained
	if took := time.Since(begin); took < delay {
		t.Errorf("the drain took %v, want the delay of %v at least", took, delay)
	}
}

func TestDrainEndsAtItsLimit(t *testing.T) {
	s := start(t, setup{rules: patient})
	held := s.holdOne(t, "b=1") // for an hour
	s.Drain(0, 50*time.Millisecond)
	if err := <-held; err == nil {
		t.Error("the call was answered OK before its turn")
	}
}

func TestReflectionIsAnOption(t *testing.T) {
	for _, on := range []bool{false, true} {
		s := start(t, setup{grpc: GRPCOptions{Reflection: on}})
		stream, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
		if err := stream.Send(ask); err != nil && on {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if !on {
			if grpcstatus.Code(err) != codes.Unimplemented {
				t.Errorf("without the option: %v, want Unimplemented", err)
			}
			continue
		}
		var names []string
		for _, svc := range resp.GetListServicesResponse().GetService() {
			names = append(names, svc.Name)
		}
		for _, want := range []string{"envoy.service.ratelimit.v3.RateLimitService", "weir.v1.WeirService", "grpc.health.v1.Health"} {
			if err != nil || !slices.Contains(names, want) {
				t.Errorf("services %q, %v; want %s among them", names, err, want)
			}
		}
		describe := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService",
		}}
		if err := stream.Send(describe); err != nil {
			t.Fatal(err)
		}
		if resp, err := stream.Recv(); err != nil || len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("the service's description: %v, %v", resp, err)
		}
	}
}
