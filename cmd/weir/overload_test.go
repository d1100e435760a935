package main

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"weir/internal/testenv"
)

// A Redis that stands still, and a server that is patient with it: without a bound
// all that comes in would pile up.
func TestOverloadIsShedAndTheRestIsAnswered(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	const most, wave = 20, 300
	s := serving(t, "--rules", rulesFile(t, "rules: [{endpoint: /x, limit: 100000, window: 1h}]"),
		"--store", "redis://"+redis.Addr, "--store-timeout", "1m", "--max-in-flight", "20")
	c := client(t, s.grpcAddr)
	req := &rls.RateLimitRequest{Domain: "default", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "endpoint", Value: "/x"}}},
	}}
	var ok, shed, failed atomic.Int64
	ask := func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.ShouldRateLimit(ctx, req)
		switch {
		case err == nil:
			ok.Add(1)
		case grpcstatus.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "--max-in-flight"):
			shed.Add(1)
		default:
			failed.Add(1)
			t.Errorf("a call failed: %v", err)
		}
	}
	ask()
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range wave {
		all.Go(ask)
	}
	eventually(t, "all but those that may wait are shed", func() bool { return shed.Load() == wave-most })
	before := runtime.NumGoroutine()
	for range 10 { // and so are all that come
		var more sync.WaitGroup
		for range wave {
			more.Go(ask)
		}
		more.Wait()
	}
	if n := runtime.NumGoroutine(); n > before+100 {
		t.Errorf("%d goroutines were %d: what was shed stays", n, before)
	}
	if err := redis.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if ok.Load() != 1+most || shed.Load() != wave-most+10*wave || failed.Load() != 0 {
		t.Errorf("%d answered, %d shed, %d failed", ok.Load(), shed.Load(), failed.Load())
	}
	ask()
	if got, err := c.ShouldRateLimit(t.Context(), req); err != nil || got.Statuses[0].LimitRemaining != 100000-most-3 {
		t.Errorf("afterwards %v, %v; what was shed is not charged", got, err)
	}
}

func TestAnOddBoundIsWrongUse(t *testing.T) {
	weir(t, "serve", "--max-in-flight", "-1").want(t, exitWrongUse, "--max-in-flight -1: it is 0 at least")
}
