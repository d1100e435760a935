package redis

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// Nothing stays in Redis longer than it says something.
func TestEveryKeyLivesUntilItSaysNothing(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	type counter struct {
		key   string
		limit limiter.Limit
	}
	var counters []counter
	for _, window := range []time.Duration{50 * time.Millisecond, time.Second, time.Minute, time.Hour, 90 * time.Minute, limiter.MaxWindow} {
		for _, l := range perAlgorithm(5, window) {
			for _, denied := range []bool{false, true} {
				l.CountDenied = denied
				counters = append(counters, counter{fmt.Sprintf("%v %v %t", l.Algorithm, window, denied), l})
			}
		}
	}
	for _, unit := range []limiter.Calendar{limiter.Day, limiter.Week, limiter.Month, limiter.Year} {
		zone := time.FixedZone("", 9*3600)
		counters = append(counters, counter{unit.String(), limiter.Limit{Requests: 5, Window: limiter.CalendarWindow(unit, zone)}})
	}
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		var hits []limiter.Hit
		for range 1 + random.IntN(3) {
			c := counters[random.IntN(len(counters))]
			h := hit(c.key, c.limit, uint64(random.IntN(4)))
			h.Refund = random.IntN(5) == 0
			h.Shadow = random.IntN(8) == 0
			hits = append(hits, h)
		}
		decide(t, s, hits...)
	}
	alive := 0
	for _, c := range counters {
		resets := decide(t, s, hit(c.key, c.limit, 0))[0].ResetAfter
		now := time.Now()
		ttl := pttl(t, r, s.naming.Counter(limiter.Key(c.key), nil))
		if ttl == -2 {
			continue
		}
		alive++
		length := c.limit.Window.Length
		most := resets // of buckets: until they are drained
		switch {
		case c.limit.Window.Calendar != limiter.NoCalendar:
			most = time.UnixMilli(c.limit.Window.Bounds(now)[1]).Sub(now)
		case c.limit.Algorithm == limiter.FixedWindow:
			most = length - time.Duration(now.UnixNano())%length
		case c.limit.Algorithm == limiter.SlidingWindowCounter:
			most = 2*length - time.Duration(now.UnixNano())%length
		case c.limit.Algorithm == limiter.SlidingWindowLog:
			most = length
		}
		// Redis reads its clock once for several commands, so it may be a little late.
		if got := time.Duration(ttl) * time.Millisecond; got < 0 || got > most+200*time.Millisecond {
			t.Errorf("seed %d, %s: it lives for %v yet, want at most %v", seed, c.key, got, most)
		}
	}
	if alive < len(counters)/2 {
		t.Errorf("only %d of %d counters are left to look at", alive, len(counters))
	}
	for _, key := range strings.Fields(r.MustDo(t, "KEYS", "*")) {
		if !strings.HasPrefix(key, s.opts.KeyPrefix) {
			t.Errorf("there is a key %q without the prefix", key)
		}
		if ttl := pttl(t, r, key); ttl < 0 && ttl != -2 {
			t.Errorf("key %q has a time to live of %d ms", key, ttl)
		}
	}
}

// pttl is a key's time to live in ms; -1: for ever; -2: there is no key.
func pttl(t *testing.T, r *testenv.Redis, key string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(r.MustDo(t, "PTTL", key), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestShortWindowsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	for _, window := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		for _, l := range perAlgorithm(5, window) {
			for i := range 20 {
				decide(t, s, hit(fmt.Sprint(l.Algorithm, window, i), l, 3))
			}
		}
	}
	await(t, "all keys are gone", func() bool { return r.MustDo(t, "DBSIZE") == "0" })
}

// A bucket whose rate is lowered takes longer to drain than it was kept for: what a
// refusal tells of the wait holds.
func TestABucketLivesAsLongAsItsLoweredRateTakesToDrain(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		for _, several := range []bool{false, true} {
			name := fmt.Sprintf("%v %t", a, several)
			l := limiter.Limit{Requests: 100, Window: limiter.Window{Length: time.Second}, Algorithm: a, Burst: 100, Queue: 99}
			lowered := limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Second}, Algorithm: a, Burst: 10, Queue: 9}
			decide(t, s, hit(name, l, 100))
			hits := []limiter.Hit{hit(name, lowered, 1)}
			if several {
				hits = append(hits, hit("other "+name, lowered, 1))
			}
			d := decide(t, s, hits...)[0]
			if d.Allowed || d.RetryAfter < time.Minute {
				t.Fatalf("%s: %+v", name, d)
			}
			if ttl := time.Duration(pttl(t, r, s.naming.Counter(hits[0].Key, nil))) * time.Millisecond; ttl < d.RetryAfter || ttl > 2*time.Minute {
				t.Errorf("%s: it lives for %v, and refuses for %v", name, ttl, d.RetryAfter)
			}
		}
	}
}
