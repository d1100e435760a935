package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// Each algorithm against its definition, over random hits, looks, refunds,
// changes of the limit, and a clock that jumps and steps back.
func TestEvaluateAgreesWithTheDefinition(t *testing.T) {
	for a := range limiter.SlidingWindowCounter + 1 {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				replayOracle(t, a, seed, 150)
			}
		})
	}
}

func replayOracle(t *testing.T, a limiter.Algorithm, seed uint64, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(a)))
	now := monday
	evaluate, definition := limitertest.NewReference(limiter.Options{}, func() time.Time { return now }), newOracle(a)
	l := randomLimit(r, a, per(oracleWindows[r.IntN(len(oracleWindows))]))
	for step := range steps {
		now = now.Add(randomElapsed(r, l.Window.Length))
		if r.IntN(12) == 0 {
			l = randomLimit(r, a, l.Window)
		}
		h := randomHit(r, l)
		got, err := evaluate.Decide(t.Context(), []limiter.Hit{h})
		if err != nil {
			t.Fatal(err)
		}
		var want limiter.Decision
		if want, definition = ask(definition, h, now); got[0] != want {
			t.Fatalf("%v, seed %d, step %d, %v since the start: cost %d refund %t patience %v of %+v:\n got %s\nwant %s", a, seed, step,
				now.Sub(monday), h.Cost, h.Refund, h.MaxDelay, l, limitertest.Words(got[0]), limitertest.Words(want))
		}
	}
}

var oracleWindows = []time.Duration{time.Millisecond, time.Second, 7 * time.Second, time.Minute, time.Hour, 90 * time.Minute, 24 * time.Hour, limiter.MaxWindow}

// randomLimit has small numbers, so that they bind; one in ten is large, but for
// a log, which the oracle keeps unit by unit.
func randomLimit(r *rand.Rand, a limiter.Algorithm, w limiter.Window) limiter.Limit {
	size := func() uint64 { return 1 + r.Uint64N(9) }
	l := limiter.Limit{Requests: size(), Window: w, Algorithm: a, CountDenied: r.IntN(3) == 0}
	if r.IntN(10) == 0 && a != limiter.SlidingWindowLog {
		l.Requests = 1 + r.Uint64N(limiter.MaxRequests)
	}
	if r.IntN(25) == 0 {
		l.Requests = 0
	}
	switch a {
	case limiter.TokenBucket:
		l.Burst = size()
	case limiter.LeakyBucket:
		l.Queue = size() - 1
	}
	return l
}

func randomElapsed(r *rand.Rand, window time.Duration) time.Duration {
	switch n := r.IntN(40); {
	case n < 8:
		return 0
	case n < 12:
		return time.Duration(r.Int64N(2000)) // around a unit of time
	case n == 12:
		return window
	case n == 13:
		return -window
	case n == 14:
		return -time.Duration(r.Int64N(int64(window)))
	case n == 15:
		return -time.Duration(r.Int64N(2 * int64(window)))
	case n == 16:
		return time.Duration(r.Int64N(3 * int64(window)))
	}
	return time.Duration(r.Int64N(int64(window) / 3))
}

func randomHit(r *rand.Rand, l limiter.Limit) limiter.Hit {
	h := limiter.Hit{Key: limiter.Key("k"), Limit: l, MaxDelay: limiter.NoDeadline, Refund: r.IntN(8) == 0}
	switch n := r.IntN(10); {
	case n < 5:
		h.Cost = 1
	case n < 7:
		h.Cost = r.Uint64N(4)
	case n < 9:
		h.Cost = r.Uint64N(uint64(capacityOf(&l)) + 2)
	default:
		h.Cost = 1 << (r.Uint64N(64))
	}
	if r.IntN(2) == 0 {
		h.MaxDelay = time.Duration(r.Int64N(int64(l.Window.Length)))
	}
	return h
}
