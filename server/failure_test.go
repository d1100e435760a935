package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
)

// Envoy reads an empty answer as OK, so a fault must never become one.

func TestAPanicBecomesAnErrorAndALogLineAndTheServerGoesOn(t *testing.T) {
	var panics atomic.Bool
	memory := limiter.NewMemory(limiter.MemoryOptions{})
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 9, window: 1h}]`, service: Options{
		Store: storeFunc(func(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
			if panics.Load() {
				panic("a store out of order")
			}
			return memory.Decide(ctx, hits)
		}),
	}})
	h := httpFor(t, s.fixture)
	check := func() error {
		_, err := weirv1.NewWeirServiceClient(s.conn).Check(t.Context(), &weirv1.CheckRequest{
			Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: []*weirv1.Entry{{Key: "a", Value: "1"}}}},
		})
		return err
	}
	panics.Store(true)
	for range 3 {
		resp, err := s.client.ShouldRateLimit(t.Context(), request("default", "a=1"))
		if grpcstatus.Code(err) != codes.Internal {
			t.Errorf("RLS: %v, %v; want Internal", resp, err)
		}
	}
	if err := check(); grpcstatus.Code(err) != codes.Internal || strings.Contains(err.Error(), "out of order") {
		t.Errorf("Check: %v; want Internal, and what went wrong in the log only", err)
	}
	if code, body, _ := h.post(t, jsonOf("default", "a", "1")); code != http.StatusInternalServerError {
		t.Errorf("/json: %d %s, want 500", code, body)
	}
	panics.Store(false)
	if resp := s.call(t, request("default", "a=1")); resp.OverallCode != rls.RateLimitResponse_OK {
		t.Errorf("afterwards: %v", resp)
	}
	if err := check(); err != nil {
		t.Errorf("Check afterwards: %v", err)
	}
	if log := s.logs.String(); strings.Count(log, "a store out of order") < 5 || !strings.Contains(log, "failure_test.go") {
		t.Errorf("the log has no line with the panic and its stack for each:\n%s", log)
	}
}

func TestErrorsOfAStoreBecomeCodes(t *testing.T) {
	for _, x := range []struct {
		remark string
		err    error
		want   codes.Code
		http   int
	}{
		{"a store that cannot be reached", fmt.Errorf("%w: dial: refused", limiter.ErrUnavailable), codes.Unavailable, http.StatusServiceUnavailable},
		{"the caller's deadline", fmt.Errorf("asking: %w", context.DeadlineExceeded), codes.DeadlineExceeded, http.StatusGatewayTimeout},
		{"the caller left", context.Canceled, codes.Canceled, 499},
		{"anything else", io.ErrClosedPipe, codes.Internal, http.StatusInternalServerError},
	} {
		t.Run(x.remark, func(t *testing.T) {
			s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 9, window: 1h}]`, service: Options{
				Store: storeFunc(func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, x.err }),
			}})
			if _, err := s.client.ShouldRateLimit(t.Context(), request("default", "a=1")); grpcstatus.Code(err) != x.want {
				t.Errorf("RLS: %v, want %v", err, x.want)
			}
			_, err := weirv1.NewWeirServiceClient(s.conn).Check(t.Context(), &weirv1.CheckRequest{
				Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: []*weirv1.Entry{{Key: "a", Value: "1"}}}},
			})
			if grpcstatus.Code(err) != x.want {
				t.Errorf("Check: %v, want %v", err, x.want)
			}
			if code, body, _ := httpFor(t, s.fixture).post(t, jsonOf("default", "a", "1")); code != x.http {
				t.Errorf("/json: %d %s, want %d", code, body, x.http)
			}
			// What needs no store is answered all the same.
			if resp := s.call(t, request("default", "z=1")); resp.OverallCode != rls.RateLimitResponse_OK {
				t.Errorf("without a limit: %v", resp)
			}
		})
	}
}

func TestAServerInShadowNeverRefusesByFailing(t *testing.T) {
	f := newFixture(t, setup{
		rules:     `rules: [{match: {a: "*"}, limit: 5, window: 1h}]`,
		memory:    limiter.MemoryOptions{MaxCounters: 1},
		onFailure: limiter.FailError,
		service:   Options{Shadow: true},
	})
	for _, value := range []string{"a=1", "a=2"} {
		if resp, err := f.ask(t.Context(), request("default", value)); err != nil || resp.OverallCode != rls.RateLimitResponse_OK {
			t.Errorf("%s: %v %v, want OK", value, resp, err)
		}
	}
}

func TestAFullStoreAnswersByPolicy(t *testing.T) {
	for _, x := range []struct {
		policy limiter.FailurePolicy
		want   string
	}{
		{limiter.FailLocal, "OK: ok 5/HOUR left 5 after 0s"},
		{limiter.FailAllow, "OK: ok 5/HOUR left 5 after 0s"},
		{limiter.FailDeny, "OVER_LIMIT: over 5/HOUR left 0"},
		{limiter.FailError, "Unavailable"},
	} {
		f := newFixture(t, setup{
			rules:     `rules: [{match: {a: "*"}, limit: 5, window: 1h}]`,
			memory:    limiter.MemoryOptions{MaxCounters: 1},
			onFailure: x.policy,
		})
		if _, err := f.ask(t.Context(), request("default", "a=1")); err != nil {
			t.Fatal(err)
		}
		resp, err := f.ask(t.Context(), request("default", "a=2"))
		got := grpcstatus.Code(err).String()
		if err == nil {
			got = answerText(resp)
		}
		if got != x.want {
			t.Errorf("%v: %s, want %s", x.policy, got, x.want)
		}
	}
}
