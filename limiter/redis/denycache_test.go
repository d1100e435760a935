package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// denying is a store with a deny cache, and what was asked of Redis.
type denying struct {
	*Store
	t      *testing.T
	redis  *testenv.Redis
	cached atomic.Int64
}

func newDenying(t *testing.T, r *testenv.Redis, opts Options) *denying {
	d := &denying{t: t, redis: r}
	if opts.DenyCache == 0 {
		opts.DenyCache = time.Minute
	}
	opts.Events.DenyCached = func() { d.cached.Add(1) }
	d.Store = open(t, r.Addr, opts, nil)
	return d
}

// asks is how often Redis was asked while f ran.
func (d *denying) asks(f func()) int {
	d.t.Helper()
	before := calls(d.t, d.redis, "evalsha")
	f()
	return calls(d.t, d.redis, "evalsha") - before
}

func TestAHotRefusedCounterCostsNoRedis(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	for _, l := range perAlgorithm(3, limiter.MaxWindow) {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := newDenying(t, r, Options{})
			h := hit("k", l, 1)
			decide(t, s, hit("k", l, 3))
			first := decide(t, s, h)[0]
			if first.Allowed || first.RetryAfter <= 0 {
				t.Fatalf("the fourth of three: %+v", first)
			}
			if n := s.asks(func() {
				last := first
				for range 1000 {
					d := decide(t, s, h)[0]
					if d.Allowed || d.Remaining != first.Remaining || d.RetryAfter > last.RetryAfter || d.RetryAfter <= 0 || d.ResetAfter > last.ResetAfter {
						t.Fatalf("%+v after %+v", d, last)
					}
					last = d
				}
			}); n != 0 {
				t.Errorf("1000 requests for a refused counter asked Redis %d times", n)
			}
			if n := s.cached.Load(); n != 1000 {
				t.Errorf("%d were told to be answered by the cache", n)
			}
		})
	}
}

// What the cache must not answer.
func TestTheDenyCacheAnswersOnlyWhatRedisWouldSay(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	l := perYear(3)
	change := func(f func(h *limiter.Hit)) limiter.Hit {
		h := hit("k", l, 1)
		f(&h)
		return h
	}
	free := hit("free", l, 1)
	for _, c := range []struct {
		remark string
		each   bool
		hits   []limiter.Hit
		asks   int
	}{
		{"the refused hit", false, []limiter.Hit{hit("k", l, 1)}, 0},
		{"the refused hit twice over", false, []limiter.Hit{hit("k", l, 1), hit("k2", l, 1)}, 0},
		{"another cost", false, []limiter.Hit{hit("k", l, 2)}, 1},
		{"another key", false, []limiter.Hit{free}, 1},
		{"a raised limit", false, []limiter.Hit{hit("k", perYear(4), 1)}, 1},
		{"a lowered limit", false, []limiter.Hit{hit("k", perYear(2), 1)}, 1},
		{"a look", false, []limiter.Hit{hit("k", l, 0)}, 1},
		{"count_denied", false, []limiter.Hit{change(func(h *limiter.Hit) { h.Limit.CountDenied = true })}, 1},
		{"shadow", false, []limiter.Hit{change(func(h *limiter.Hit) { h.Shadow = true })}, 1},
		{"quota", false, []limiter.Hit{change(func(h *limiter.Hit) { h.Quota = true })}, 1},
		{"beside a hit that may pass", false, []limiter.Hit{hit("k", l, 1), free}, 1},
		{"beside a look", false, []limiter.Hit{hit("k", l, 1), hit("free", l, 0)}, 1},
		{"beside a shadow hit", false, []limiter.Hit{hit("k", l, 1), change(func(h *limiter.Hit) { h.Key, h.Shadow = limiter.Key("free"), true })}, 1},
		{"beside a refund", false, []limiter.Hit{hit("k", l, 1), refund(free)}, 1},
		{"twice the same counter", false, []limiter.Hit{hit("k", l, 1), hit("k", l, 1)}, 1},
		{"each on its own, alone", true, []limiter.Hit{hit("k", l, 1)}, 0},
		{"each on its own, beside a hit that may pass", true, []limiter.Hit{hit("k", l, 1), free}, 1},
	} {
		t.Run(c.remark, func(t *testing.T) {
			s := newDenying(t, r, Options{Options: limiter.Options{ChargeEach: c.each}})
			decide(t, s, hit("k", l, 3))
			decide(t, s, hit("k2", l, 3))
			decide(t, s, hit("k", l, 1))
			decide(t, s, hit("k2", l, 1))
			for range 3 {
				if n := s.asks(func() { decide(t, s, c.hits...) }); n != c.asks {
					t.Errorf("Redis was asked %d times, want %d", n, c.asks)
				}
				if len(c.hits) == 1 && c.hits[0].Key[0] == 'k' && cacheable(&c.hits[0]) { // it is refused by now, and remembered
					break
				}
			}
		})
	}
}

// What was refused for the caller's deadline, another caller may wait for; and a
// caller with little time must wait longer than one with much.
func TestRefusalsOfALeakyBucketWithADeadlineAreNotRemembered(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := newDenying(t, r, Options{})
	l := limiter.Limit{Requests: 60, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.LeakyBucket, Queue: 3}
	hurried := hit("k", l, 1)
	hurried.MaxDelay = 0
	decide(t, s, hurried)
	if n := s.asks(func() {
		if d := decide(t, s, hurried)[0]; d.Allowed {
			t.Errorf("a hit that cannot wait: %+v", d)
		}
		if d := decide(t, s, hit("k", l, 1))[0]; !d.Allowed || d.Delay <= 0 {
			t.Errorf("a hit that can wait: %+v", d)
		}
	}); n != 2 {
		t.Errorf("Redis was asked %d times, want 2", n)
	}
	decide(t, s, hit("k", l, 2))
	patient := decide(t, s, hit("k", l, 1))[0]
	if patient.Allowed || patient.RetryAfter > time.Minute {
		t.Errorf("a full bucket: %+v", patient)
	}
	if d := decide(t, s, hurried)[0]; d.RetryAfter < 3*time.Minute {
		t.Errorf("a hit that cannot wait is told to come back after %v, when its turn is not now", d.RetryAfter)
	}
}

func TestAChargeByTheSameInstanceRenewsWhatARefusalSays(t *testing.T) {
	t.Parallel()
	s := newDenying(t, testenv.StartRedis(t, testenv.RedisOptions{}), Options{})
	l := limiter.Limit{Requests: 10, Window: limiter.Window{Length: limiter.MaxWindow}}
	decide(t, s, hit("k", l, 7))
	if d := decide(t, s, hit("k", l, 5))[0]; d.Allowed || d.Remaining != 3 {
		t.Fatalf("5 where 3 are left: %+v", d)
	}
	if d := decide(t, s, hit("k", l, 2))[0]; !d.Allowed {
		t.Fatalf("2 where 3 are left: %+v", d)
	}
	if d := decide(t, s, hit("k", l, 5))[0]; d.Allowed || d.Remaining != 1 {
		t.Errorf("5 where 1 is left: %+v", d)
	}
}

func TestARefundClearsTheDenyCache(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := newDenying(t, r, Options{})
	h := hit("k", perYear(3), 1)
	for range 5 {
		decide(t, s, h)
	}
	decide(t, s, refund(h))
	if d := decide(t, s, h)[0]; !d.Allowed {
		t.Errorf("after a refund: %+v", d)
	}
}

// A refusal that was asked for before a refund, and comes after it, says nothing
// of the time after.
func TestARefusalThatARefundOvertookIsNotRemembered(t *testing.T) {
	t.Parallel()
	c := newDenyCache(time.Minute)
	hits, refused := []limiter.Hit{hit("k", perYear(3), 1)}, []limiter.Decision{{RetryAfter: time.Minute}}
	keys := []keyHash{hashKey(hits[0].Key)}
	asked := time.Now()
	c.forget(keys[0])
	c.remember(hits, refused, keys, asked)
	if d := c.answer(hits, keys, time.Now()); d != nil {
		t.Errorf("it is: %+v", d)
	}
	asked = time.Now().Add(time.Millisecond) // while the refund is under way
	c.remember(hits, refused, keys, asked)
	c.remember([]limiter.Hit{refund(hits[0])}, []limiter.Decision{{Allowed: true}}, keys, asked)
	if d := c.answer(hits, keys, time.Now().Add(2*time.Millisecond)); d != nil {
		t.Errorf("it outlives the refund: %+v", d)
	}
}

// Waiting as long as the cache says is enough, and the cache refuses nobody who
// has waited.
func TestTheDenyCacheIsHonestAboutTheWaitThatIsLeft(t *testing.T) {
	t.Parallel()
	c := newDenyCache(time.Minute)
	hits := []limiter.Hit{hit("k", perYear(3), 1)}
	keys := []keyHash{hashKey(hits[0].Key)}
	const trip, wait = 50 * time.Millisecond, 10 * time.Second
	asked := time.Now().Add(-trip)
	c.remember(hits, []limiter.Decision{{RetryAfter: wait, ResetAfter: wait}}, keys, asked)
	// Redis said so at some moment of the trip, so the end lies between these.
	first, last := asked.Add(wait), time.Now().Add(wait)
	for _, now := range []time.Time{last.Add(-wait), last.Add(-wait / 2), first.Add(-time.Nanosecond)} {
		d := c.answer(hits, keys, now)
		if d == nil {
			t.Fatalf("%v before the end it has forgotten", first.Sub(now))
		}
		if end := now.Add(d[0].RetryAfter); end.Before(last.Add(-trip/5)) || end.After(last) {
			t.Errorf("who waits %v comes %v too soon", d[0].RetryAfter, last.Sub(end))
		}
	}
	if d := c.answer(hits, keys, first); d != nil {
		t.Errorf("at the earliest end it still refuses: %+v", d[0])
	}

	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := newDenying(t, r, Options{})
	for _, l := range perAlgorithm(2, 200*time.Millisecond) {
		h := hit(l.Algorithm.String(), l, 1)
		for round := range 3 {
			await(t, "it is refused by the cache", func() bool {
				before := s.cached.Load()
				d := decide(t, s, h)[0]
				if s.cached.Load() == before {
					return false
				}
				time.Sleep(d.RetryAfter)
				return true
			})
			if d := decide(t, s, h)[0]; !d.Allowed {
				t.Errorf("%v, round %d: who has waited is refused: %+v", l.Algorithm, round, d)
			}
		}
	}
}

func TestTheDenyCacheForgetsAfterItsTime(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := newDenying(t, r, Options{DenyCache: 50 * time.Millisecond})
	h := hit("k", perYear(1), 1)
	for _, h := range []limiter.Hit{h, hit("k", h.Limit, 2)} { // the second can never pass
		decide(t, s, h)
		decide(t, s, h)
		before := calls(t, r, "evalsha")
		await(t, "Redis is asked again", func() bool {
			decide(t, s, h)
			return calls(t, r, "evalsha") > before
		})
	}
	off := open(t, r.Addr, Options{Events: Events{DenyCached: func() { t.Error("a cache that is off answers") }}}, nil)
	for range 5 {
		decide(t, off, h)
	}
}

func TestTheDenyCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newDenyCache(time.Minute)
	hits, refused := []limiter.Hit{hit("", perYear(3), 1)}, []limiter.Decision{{RetryAfter: time.Minute}}
	most := int64(len(c.shards) * maxRefusals)
	for i := range 3 * most {
		c.remember(hits, refused, []keyHash{hashKey(fmt.Append(nil, i))}, time.Now())
	}
	var held int64
	for i := range c.shards {
		held += int64(len(c.shards[i].refused))
	}
	if held == 0 || held > most || c.size.Load() != held {
		t.Errorf("it holds %d refusals and counts %d, and may hold %d", held, c.size.Load(), most)
	}
}
