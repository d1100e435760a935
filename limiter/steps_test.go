package limiter_test

import (
	"strings"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// monday is the start of an hour, a day and a week: 0:00:00 of the tables.
var monday = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// step is a row of a table: one hit on one counter, or a change of its limit.
type step struct {
	at     string // since monday: a duration, or a time of day such as 1:00:30
	do     action
	want   string // words of limitertest.Match
	remark string
}

type action struct {
	hit    limiter.Hit
	change func(*limiter.Limit) // from this row on; no hit
}

func cost(n uint64) action { return action{hit: limiter.Hit{Cost: n, MaxDelay: limiter.NoDeadline}} }
func look() action         { return cost(0) }
func within(d time.Duration) action {
	return action{hit: limiter.Hit{Cost: 1, MaxDelay: d}}
}

func refund(n uint64) action {
	a := cost(n)
	a.hit.Refund = true
	return a
}

func change(f func(*limiter.Limit)) action { return action{change: f} }
func limitTo(n uint64) action              { return change(func(l *limiter.Limit) { l.Requests = n }) }

func burstTo(limit, burst uint64) action {
	return change(func(l *limiter.Limit) { l.Requests, l.Burst = limit, burst })
}

func queueTo(limit, queue uint64) action {
	return change(func(l *limiter.Limit) { l.Requests, l.Queue = limit, queue })
}

// play plays the rows on one counter, through Evaluate and the memory store.
func play(t *testing.T, l limiter.Limit, steps []step) {
	t.Helper()
	clock := limitertest.NewClock(monday)
	stores := map[string]limiter.Store{
		"evaluate": limitertest.NewReference(limiter.Options{}, clock.Now),
		"memory":   limiter.NewMemory(limiter.MemoryOptions{Now: clock.Now}),
	}
	for i, s := range steps {
		if s.do.change != nil {
			s.do.change(&l)
			continue
		}
		if err := l.Validate(); err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		clock.Set(parseAt(t, s.at))
		h := s.do.hit
		h.Key, h.Limit = limiter.Key("k"), l
		for name, store := range stores {
			d, err := store.Decide(t.Context(), []limiter.Hit{h})
			if err != nil {
				t.Fatal(err)
			}
			if err := limitertest.Match(s.want, d[0]); err != nil {
				t.Errorf("row %d at %s, %s (%s): %v", i, s.at, s.remark, name, err)
			}
		}
	}
}

func parseAt(t *testing.T, at string) time.Time {
	t.Helper()
	if strings.Contains(at, ":") {
		day, err := time.Parse("15:04:05", at)
		if err != nil {
			t.Fatal(err)
		}
		at = day.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)).String()
	}
	d, err := time.ParseDuration(at)
	if err != nil {
		t.Fatal(err)
	}
	return monday.Add(d)
}

func per(length time.Duration) limiter.Window { return limiter.Window{Length: length} }

func fixed(n uint64, w time.Duration) limiter.Limit {
	return limiter.Limit{Requests: n, Window: per(w)}
}

func slidingLog(n uint64, w time.Duration) limiter.Limit {
	return limiter.Limit{Requests: n, Window: per(w), Algorithm: limiter.SlidingWindowLog}
}

func slidingCounter(n uint64, w time.Duration) limiter.Limit {
	return limiter.Limit{Requests: n, Window: per(w), Algorithm: limiter.SlidingWindowCounter}
}

func tokens(n uint64, w time.Duration, burst uint64) limiter.Limit {
	return limiter.Limit{Requests: n, Window: per(w), Algorithm: limiter.TokenBucket, Burst: burst}
}

func leaky(n uint64, w time.Duration, queue uint64) limiter.Limit {
	return limiter.Limit{Requests: n, Window: per(w), Algorithm: limiter.LeakyBucket, Queue: queue}
}

// denied counts what the limit refuses.
func denied(l limiter.Limit) limiter.Limit { l.CountDenied = true; return l }

// each of the five, with room for 4 in a fresh counter and 4 a window.
func five(w time.Duration) []limiter.Limit {
	return []limiter.Limit{fixed(4, w), tokens(4, w, 4), leaky(4, w, 3), slidingLog(4, w), slidingCounter(4, w)}
}

// forEach runs a test on each of the five.
func forEach(t *testing.T, w time.Duration, test func(t *testing.T, l limiter.Limit)) {
	for _, l := range five(w) {
		t.Run(l.Algorithm.String(), func(t *testing.T) { test(t, l) })
	}
}
