package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// outages are the ways in which Redis goes away and comes back.
var outages = []struct {
	name string
	away func(t *testing.T, r *testenv.Redis)
	back func(t *testing.T, r *testenv.Redis)
}{
	{"stopped", func(_ *testing.T, r *testenv.Redis) { r.Kill() }, func(t *testing.T, r *testenv.Redis) {
		testenv.StartRedis(t, testenv.RedisOptions{Addr: r.Addr})
	}},
	{"paused", func(t *testing.T, r *testenv.Redis) { signal(t, r, syscall.SIGSTOP) }, func(t *testing.T, r *testenv.Redis) {
		signal(t, r, syscall.SIGCONT)
	}},
}

func signal(t testing.TB, r *testenv.Redis, sig syscall.Signal) {
	t.Helper()
	if err := r.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Answers come in any order; what is known of a counter is the most use of them.
func TestWithoutRedisNoMorePassesThanWasLeftAfterHitsAtOnce(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 5 * time.Second, Events: Events{Failed: ignored}})
	const limit, before, counters = 1000, 400, 10
	limits := perAlgorithm(limit, limiter.MaxWindow)
	each := func(do func(h limiter.Hit)) {
		for _, l := range limits {
			for n := range counters {
				do(hit(fmt.Sprint(l.Algorithm, n), l, 1))
			}
		}
	}
	each(func(h limiter.Hit) {
		var all sync.WaitGroup
		for range before {
			all.Go(func() { decide(t, s, h) })
		}
		all.Wait()
	})
	r.Kill()
	each(func(h limiter.Hit) {
		passed := 0
		for range limit + 1 {
			if decide(t, s, h)[0].Allowed {
				passed++
			}
		}
		if passed != limit-before {
			t.Errorf("%s: %d passed without Redis, and %d were left", h.Key, passed, limit-before)
		}
	})
}

func TestFailurePoliciesDecideWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, testenv.RedisOptions{})
			s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 200 * time.Millisecond, Events: Events{Failed: ignored}})
			limits := perAlgorithm(5, limiter.MaxWindow)
			for _, l := range limits {
				for _, policy := range limiter.FailurePolicyNames() {
					p, _ := limiter.ParseFailurePolicy(policy)
					key := l.Algorithm.String() + policy
					if d := decide(t, s, onFailure(p, hit(key, l, 2))); d[0].Remaining != 3 {
						t.Fatalf("%s: %+v of a Redis that answers", key, d[0])
					}
				}
			}
			outage.away(t, r)
			for _, l := range limits {
				name := l.Algorithm.String()
				local := hit(name+"local", l, 1)
				for n := range uint64(3) {
					if d := decide(t, s, local); !d[0].Allowed || d[0].Remaining != 2-n {
						t.Errorf("%s: local, after 2 of 5 that Redis knew and %d more: %+v", name, n, d[0])
					}
				}
				if d := decide(t, s, local); d[0].Allowed || d[0].Remaining != 0 || d[0].RetryAfter <= 0 {
					t.Errorf("%s: local, the sixth of 5: %+v", name, d[0])
				}
				if d := decide(t, s, hit(name+"local", l, 0)); !d[0].Allowed || d[0].Remaining != 0 {
					t.Errorf("%s: local, a look: %+v", name, d[0])
				}
				if d := decide(t, s, refund(local)); !d[0].Allowed || d[0].Remaining != 1-leaky(l) {
					t.Errorf("%s: local, a refund: %+v", name, d[0])
				}
				allow := onFailure(limiter.FailAllow, hit(name+"allow", l, 4))
				for range 3 {
					if d := decide(t, s, allow); !d[0].Allowed || d[0].Remaining != 5 || d[0].Delay != 0 {
						t.Errorf("%s: allow: %+v", name, d[0])
					}
				}
				deny := onFailure(limiter.FailDeny, hit(name+"deny", l, 1))
				if d := decide(t, s, deny); d[0].Allowed || d[0].Remaining != 0 || d[0].RetryAfter != 0 {
					t.Errorf("%s: deny: %+v", name, d[0])
				}
				if d, err := s.Decide(t.Context(), []limiter.Hit{onFailure(limiter.FailError, hit(name+"error", l, 1))}); !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%s: error: %+v, %v", name, d, err)
				}
			}
			outage.back(t, r)
			await(t, "Redis decides again", s.Healthy)
			l := limits[0]
			await(t, "Redis says what it knows", func() bool {
				left := decide(t, s, hit(l.Algorithm.String()+"error", l, 0))[0].Remaining
				if outage.name == "stopped" { // it has lost everything
					return left == 5
				}
				return left == 3 || left == 2 // a hit may have been queued; what was decided without Redis is not written back
			})
		})
	}
}

// A request with several policies is all or nothing still.
func TestAHitThatADenyingPolicyRefusesChargesNoLocalCounter(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 200 * time.Millisecond, Events: Events{Failed: ignored}})
	r.Kill()
	local := hit("local", perYear(5), 1)
	allow := onFailure(limiter.FailAllow, hit("allow", perYear(7), 1))
	deny := onFailure(limiter.FailDeny, hit("deny", perYear(9), 1))
	fail := onFailure(limiter.FailError, hit("error", perYear(9), 1))
	for _, c := range []struct {
		remark string
		hits   []limiter.Hit
		left   []uint64 // of each
	}{
		{"local and allow pass", []limiter.Hit{local, allow}, []uint64{4, 7}},
		{"deny refuses for all", []limiter.Hit{local, deny, allow}, []uint64{4, 0, 7}},
		{"the other way round", []limiter.Hit{allow, deny, local}, []uint64{7, 0, 4}},
		{"nothing was charged", []limiter.Hit{hit("local", local.Limit, 0)}, []uint64{4}},
		{"two that are allowed on one key", []limiter.Hit{allow, allow, local}, []uint64{7, 7, 3}},
		{"a refund is made beside a denied hit", []limiter.Hit{refund(local), deny}, []uint64{4, 0}},
	} {
		d := decide(t, s, c.hits...)
		var left []uint64
		for i := range d {
			left = append(left, d[i].Remaining)
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("%s: remaining %v, want %v", c.remark, left, c.left)
		}
	}
	if _, err := s.Decide(t.Context(), []limiter.Hit{local, fail}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("a request with a policy of error: %v", err)
	}
	if d := decide(t, s, hit("local", local.Limit, 0)); d[0].Remaining != 4 {
		t.Errorf("a request that failed was charged: %+v", d[0])
	}
}

func TestAPausedRedisHoldsNobodyLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 50 * time.Millisecond
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var failed atomic.Int32
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: timeout, Events: Events{Failed: func(error) { failed.Add(1) }}})
	limit := perYear(1000)
	decide(t, s, hit("k", limit, 1))
	signal(t, r, syscall.SIGSTOP)
	const callers, each = 64, 5
	var mu sync.Mutex
	var took []time.Duration
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for range each {
				begin := time.Now()
				d, err := s.Decide(context.Background(), []limiter.Hit{hit("k", limit, 1)})
				if err != nil || !d[0].Allowed {
					t.Errorf("%+v, %v", d, err)
				}
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	calling.Wait()
	slices.Sort(took)
	t.Logf("of %d calls the median took %v, the longest %v", len(took), took[len(took)/2], took[len(took)-1])
	if longest := took[len(took)-1]; longest > timeout+500*time.Millisecond {
		t.Errorf("a call took %v; the timeout is %v", longest, timeout)
	}
	if median := took[len(took)/2]; median > timeout/2 {
		t.Errorf("half of the calls waited %v for a Redis that does not answer: its breaker is not open", median)
	}
	signal(t, r, syscall.SIGCONT)
	await(t, "Redis decides again", s.Healthy)
	await(t, "no call fails any more", func() bool {
		before := failed.Load()
		decide(t, s, hit("j", limit, 0))
		return failed.Load() == before
	})
	for n := range uint64(20) { // exact again
		if d := decide(t, s, hit("again", limit, 1)); d[0].Remaining != limit.Requests-1-n {
			t.Errorf("the hit number %d leaves %d", n+1, d[0].Remaining)
		}
	}
	if left := decide(t, s, hit("k", limit, 0))[0].Remaining; left < limit.Requests-1-callers*each {
		t.Errorf("%d remain of %d after %d hits: some were charged twice", left, limit.Requests, 1+callers*each)
	}
}

// What a caller gives up says nothing of Redis.
func TestACallerThatLeavesIsNoFailureOfRedis(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: time.Second})
	h := []limiter.Hit{hit("k", perYear(5), 1)}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Decide(gone, h); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has left is told %v", err)
	}
	if n := calls(t, r, "evalsha"); n != 0 {
		t.Errorf("Redis was asked %d times for a caller that had left", n)
	}
	signal(t, r, syscall.SIGSTOP)
	for range 2 * failuresToOpen {
		short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		begin := time.Now()
		if _, err := s.Decide(short, h); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is up is told %v", err)
		}
		if took := time.Since(begin); took > 700*time.Millisecond {
			t.Errorf("a caller with 5 ms waited %v", took)
		}
		cancel()
	}
	if !s.Healthy() {
		t.Error("callers with too little time have opened the breaker")
	}
	signal(t, r, syscall.SIGCONT)
}
