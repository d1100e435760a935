package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Time within these tests is synctest's: it passes when all wait, and exactly.

const bucket = `
rules:
  - {name: slow, match: {a: "*"}, limit: 1, window: 1s, algorithm: leaky_bucket, queue: 3}
  - {match: {b: "*"}, limit: 1, window: 2s, algorithm: leaky_bucket, queue: 3}
  - {match: {shade: "*"}, limit: 1, window: 1s, algorithm: leaky_bucket, queue: 3, shadow_mode: true}
  - {match: {full: "*"}, limit: 1, window: 1h}
`

// asked is one answer of a held service, and when it came.
type asked struct {
	text string
	at   time.Duration
	err  error
}

// askAll asks all at once, in order, and says what came when. Each has a
// deadline of its own; 0 is none.
func (f *fixture) askAll(t *testing.T, begin time.Time, text string, deadlines ...time.Duration) []asked {
	t.Helper()
	answers := make([]asked, len(deadlines))
	var all sync.WaitGroup
	for i, d := range deadlines {
		all.Go(func() {
			ctx := t.Context()
			if d > 0 {
				withDeadline, cancel := context.WithTimeout(ctx, d)
				defer cancel()
				ctx = withDeadline
			}
			resp, err := f.ask(ctx, request("default", text))
			answers[i] = asked{err: err, at: time.Since(begin)}
			if err == nil {
				answers[i].text = answerText(resp)
			}
		})
		synctest.Wait() // it is held, or done
	}
	all.Wait()
	return answers
}

func TestALeakyBucketHoldsEachRequestUntilItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		begin := time.Now()
		got := f.askAll(t, begin, "a=1", 0, 0, 0, 0, 0)
		for i := range 4 {
			if want := time.Duration(i) * time.Second; got[i].err != nil || got[i].at != want || got[i].text[:2] != "OK" {
				t.Errorf("request %d: %+v, want OK at %v", i+1, got[i], want)
			}
		}
		if want := "OVER_LIMIT: over slow 1/SECOND left 0 after 1s"; got[4].text != want || got[4].at != 0 {
			t.Errorf("with the queue full: %+v, want %s at once", got[4], want)
		}
		if n := f.held.Load(); n != 0 {
			t.Errorf("%d places are still taken", n)
		}
	})
}

func TestADeadlineTooShortIsRefusedWithoutCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		begin := time.Now()
		// 5 ms of a deadline are kept for the answer's way back.
		got := f.askAll(t, begin, "a=1", 0, 500*time.Millisecond, 1004*time.Millisecond, 1005*time.Millisecond, 0)
		for i, want := range []asked{
			{text: "OK: ok slow 1/SECOND left 3 after 1s"},
			{text: "OVER_LIMIT: over slow 1/SECOND left 3 after 1s"}, // in 505 ms, rounded up
			{text: "OVER_LIMIT: over slow 1/SECOND left 3 after 1s"}, // in 1 ms
			{text: "OK: ok slow 1/SECOND left 2 after 2s", at: time.Second},
			{text: "OK: ok slow 1/SECOND left 1 after 3s", at: 2 * time.Second},
		} {
			if got[i] != want {
				t.Errorf("request %d: got %+v, want %+v", i+1, got[i], want)
			}
		}
	})
}

func TestEnvoysUsualDeadlineHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		got := f.askAll(t, time.Now(), "a=1", 20*time.Millisecond, 20*time.Millisecond)
		if got[0].text[:2] != "OK" || got[1].text[:4] != "OVER" || got[1].at != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestACallerThatLeavesKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		begin := time.Now()
		f.askAll(t, begin, "a=1", 0)
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { _, err := f.ask(ctx, request("default", "a=1")); gone <- err }()
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		leave()
		if err := <-gone; grpcstatus.Code(err) != codes.Canceled || time.Since(begin) != 300*time.Millisecond {
			t.Errorf("left with %v after %v, want Canceled at once", err, time.Since(begin))
		}
		if got := f.askAll(t, begin, "a=1", 0); got[0].at != 2*time.Second {
			t.Errorf("the next request came at %v, want 2s, behind the one that left", got[0].at)
		}
	})
}

func TestOfSeveralDelaysTheLongestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		begin := time.Now()
		got := f.askAll(t, begin, "a=1 , b=1", 0, 0)
		if got[1].at != 2*time.Second {
			t.Errorf("came at %v, want 2s", got[1].at)
		}
	})
}

func TestARefusedRequestIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{rules: bucket, realTime: true})
		f.askAll(t, time.Now(), "a=1 , full=1", 0)
		begin := time.Now()
		if got := f.askAll(t, begin, "a=1 , full=1", 0); got[0].text[:4] != "OVER" || got[0].at != 0 {
			t.Errorf("got %+v, want a refusal at once", got[0])
		}
	})
}

func TestLooksAndShadowsAreNeverHeld(t *testing.T) {
	look := request("default", "a=1")
	look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	for _, x := range []struct {
		remark string
		req    *rls.RateLimitRequest
		shadow bool
	}{
		{"a look", look, false},
		{"a shadow rule", request("default", "shade=1"), false},
		{"a server in shadow", request("default", "a=1"), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, setup{rules: bucket, realTime: true, service: Options{Shadow: x.shadow}})
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			for i := range 6 { // past the queue, too
				resp, err := f.ask(ctx, x.req)
				if err != nil || resp.OverallCode != rls.RateLimitResponse_OK || time.Since(begin) != 0 {
					t.Fatalf("%s: %v, %v after %v; want OK at once", x.remark, resp, err, time.Since(begin))
				}
				// The deadline means nothing to those who will not wait.
				if i < 4 && (resp.Statuses[0].Code != rls.RateLimitResponse_OK || shadowNames(resp) != nil) {
					t.Errorf("%s, request %d: %v", x.remark, i+1, resp)
				}
			}
		})
	}
}

func TestNoMoreThanMaxHeldAreHeldAtOnce(t *testing.T) {
	for _, x := range []struct {
		maxHeld int
		want    []string // of four requests, when each came; "over": refused
	}{
		{-1, []string{"0s", "over", "over", "over"}},
		{1, []string{"0s", "1s", "over", "over"}},
		{2, []string{"0s", "1s", "2s", "over"}},
		{0, []string{"0s", "1s", "2s", "3s"}}, // the default
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, setup{rules: bucket, realTime: true, service: Options{MaxHeld: x.maxHeld}})
			for i, a := range f.askAll(t, time.Now(), "a=1", 0, 0, 0, 0) {
				got := fmt.Sprint(a.at)
				if a.err != nil || a.text[:2] != "OK" {
					got = "over"
				}
				if got != x.want[i] {
					t.Errorf("MaxHeld %d, request %d: %s (%+v), want %s", x.maxHeld, i+1, got, a, x.want[i])
				}
			}
			if got := f.askAll(t, time.Now(), "a=2", 0); got[0].text[:2] != "OK" {
				t.Errorf("MaxHeld %d: once all are gone, %+v", x.maxHeld, got[0])
			}
		})
	}
}

func TestAHeldAnswerCrossesTheConnection(t *testing.T) {
	s := start(t, setup{rules: patient})
	s.call(t, request("default", "b=1"))
	begin := time.Now()
	for range 2 { // the counters' clock stands still: they wait 0 and 300 ms
		if resp := s.call(t, request("default", "a=1")); resp.OverallCode != rls.RateLimitResponse_OK {
			t.Fatalf("got %v", resp)
		}
	}
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("two requests took %v, want 300ms at least", took)
	}
	// The deadline is the caller's, as gRPC carries it.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := s.client.ShouldRateLimit(ctx, request("default", "b=1"))
	if err != nil || resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("with a deadline before the turn: %v, %v; want a refusal", resp, err)
	}
}
