package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// A Redis that answers, but does not do what it is asked.

func TestAReplicaInTheMastersPlaceIsLeftWhenTheMasterIsBack(t *testing.T) {
	t.Parallel()
	first := testenv.StartRedis(t, testenv.RedisOptions{})
	second := testenv.StartRedis(t, testenv.RedisOptions{})
	p := startProxy(t, first.Addr) // a name that leads to the master, as DNS does
	var book logBook
	var opened atomic.Int32
	s := openURL(t, Options{URL: "redis://" + p.Addr(), Logger: book.logger(), Events: Events{Failed: ignored, Breaker: func(open bool) {
		if open {
			opened.Add(1)
		}
	}}})
	h := hit("k", perYear(100), 1)
	decide(t, s, h)
	host, port, _ := net.SplitHostPort(second.Addr)
	first.MustDo(t, "REPLICAOF", host, port)
	for n := range uint64(2 * failuresToOpen) {
		if d := decide(t, s, h); !d[0].Allowed || d[0].Remaining != 98-n {
			t.Errorf("of a replica, the failure policy makes %+v", d[0])
		}
	}
	if _, err := s.Decide(t.Context(), []limiter.Hit{onFailure(limiter.FailError, hit("e", h.Limit, 1))}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("policy error: %v", err)
	}
	begin := time.Now()
	for time.Since(begin) < 2*time.Second {
		decide(t, s, h)
		time.Sleep(time.Millisecond) // about 1000 requests a second
	}
	if n := opened.Load(); n < 1 || n > 10 {
		t.Errorf("in two seconds the breaker opened %d times", n)
	}
	if !strings.Contains(book.String(), "READONLY") || !strings.Contains(book.String(), "replica; name its master") {
		t.Errorf("the log does not say what is wrong:\n%s", book.String())
	}
	p.Target(second.Addr) // connections to the first stay open
	await(t, "the new master decides", func() bool {
		decide(t, s, h)
		return calls(t, second, "evalsha") > 0
	})
	await(t, "it decides exactly", func() bool {
		before := writes(t, second)
		decide(t, s, h)
		return s.Healthy() && writes(t, second) == before+1
	})
}

// A probe that takes many round trips fails where now and then one takes too long,
// though most requests are answered: Redis would stay away for seconds.
func TestAProbeIsFewRoundTrips(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testenv.StartRedis(t, testenv.RedisOptions{}).Addr)
	s := openURL(t, Options{URL: "redis://" + p.Addr(), Timeout: time.Second})
	before := p.Answers()
	if err := s.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := p.Answers() - before; n > 6 { // three, beside what the store asks in the background
		t.Errorf("a probe took %d round trips", n)
	}
}

// writes is how often scripts wrote a fixed window.
func writes(t *testing.T, r *testenv.Redis) int { return calls(t, r, "psetex") + calls(t, r, "incrby") }

func TestAMasterThatComesBackDecidesAgain(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := openURL(t, Options{URL: "redis://" + r.Addr, Events: Events{Failed: ignored}})
	h := hit("k", perYear(100), 1)
	decide(t, s, h)
	r.MustDo(t, "REPLICAOF", "127.0.0.1", "1") // of nobody
	for range 2 * failuresToOpen {
		decide(t, s, h)
	}
	r.MustDo(t, "REPLICAOF", "NO", "ONE")
	await(t, "it decides", func() bool {
		before := writes(t, r)
		decide(t, s, h)
		return writes(t, r) > before
	})
}

func TestARedisOutOfMemoryLeavesItToThePolicies(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var book logBook
	s := openURL(t, Options{URL: "redis://" + r.Addr, Logger: book.logger(), Events: Events{Failed: ignored}})
	limits := perAlgorithm(5, limiter.MaxWindow)
	for _, l := range limits {
		decide(t, s, hit(l.Algorithm.String(), l, 1))
	}
	r.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "1mb")
	r.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	for _, l := range limits {
		for n := range uint64(2) {
			if d := decide(t, s, hit(l.Algorithm.String(), l, 1)); !d[0].Allowed || d[0].Remaining != 3-n {
				t.Errorf("%v: %+v", l.Algorithm, d[0])
			}
		}
		if d := decide(t, s, onFailure(limiter.FailDeny, hit(l.Algorithm.String()+"deny", l, 1))); d[0].Allowed {
			t.Errorf("%v: deny: %+v", l.Algorithm, d[0])
		}
	}
	if !strings.Contains(book.String(), "raise Redis's maxmemory") {
		t.Errorf("the log does not say what to do:\n%s", book.String())
	}
	r.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	for _, l := range limits {
		key := s.naming.Counter(limiter.Key("new"+l.Algorithm.String()), nil)
		await(t, "Redis decides again", func() bool {
			decide(t, s, hit("new"+l.Algorithm.String(), l, 1))
			return r.MustDo(t, "EXISTS", key) == "1"
		})
	}
}

// A Redis that reads its data answers LOADING.
func TestARedisThatLoadsIsAwayUntilItHasLoaded(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), testenv.FreeAddr(t)
	r := testenv.StartRedis(t, testenv.RedisOptions{Dir: dir, Addr: addr, Args: []string{"--enable-debug-command", "yes"}})
	s := openURL(t, Options{URL: "redis://" + addr, Events: Events{Failed: ignored}})
	h := hit("k", perYear(100), 1)
	decide(t, s, h)
	r.MustDo(t, "DEBUG", "POPULATE", "20000", "key", "10")
	r.MustDo(t, "SAVE")
	r.Kill()
	// Each key takes 50 µs to load: a second or so, in which it answers others.
	r = testenv.StartRedis(t, testenv.RedisOptions{Dir: dir, Addr: addr, Args: []string{"--key-load-delay", "50", "--loading-process-events-interval-bytes", "1024"}})
	if _, err := r.Do("GET", "key"); err == nil || !strings.HasPrefix(err.Error(), "LOADING") {
		t.Skipf("it has loaded already (%v)", err)
	}
	for range 2 * failuresToOpen {
		if d, err := s.Decide(context.Background(), []limiter.Hit{h}); err != nil || !d[0].Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if s.Healthy() {
		t.Error("a Redis that loads passes for healthy")
	}
	await(t, "it is used once it has loaded", func() bool {
		decide(t, s, h)
		return s.Healthy() && calls(t, r, "evalsha") > 0
	})
	if left := decide(t, s, hit("k", h.Limit, 0))[0].Remaining; left > 99 {
		t.Errorf("%d remain; Redis has kept a hit", left)
	}
}
