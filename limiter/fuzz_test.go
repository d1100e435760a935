package limiter_test

import (
	"math/big"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// admission is a hit that passed, at a time in units since 1970.
type admission struct{ at, departs, cost int64 }

func FuzzNeverMoreThanTheDefinitionAllows(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		l := s.limit()
		unit := unitOf(l)
		var admitted []admission
		for !s.done() && len(admitted) < 200 {
			w.clock.Add(s.elapsed(l.Window.Length))
			h := s.hit("k", l)
			d, passes := w.decide(t, h)
			if !passes || h.Cost == 0 {
				continue
			}
			at := ticks(w.clock.Now(), unit)
			admitted = append(admitted, admission{at, at + int64(d[0].Delay/unit), int64(h.Cost)})
			if why := exceeds(l, int64(l.Window.Length/unit), admitted); why != "" {
				t.Fatalf("%+v: %s: %v", l, why, admitted)
			}
		}
	})
}

// exceeds says how the last of the admissions goes over the limit, if it does.
func exceeds(l limiter.Limit, w int64, all []admission) string {
	limit, now := int64(l.Requests), all[len(all)-1]
	var sum, current, previous int64 // of costs: since each admission, in this window and the one before
	waiting := int64(0)
	for i := len(all) - 1; i >= 0; i-- {
		a := all[i]
		switch l.Algorithm {
		case limiter.LeakyBucket:
			// Between two departures lie the intervals of what departs from the one on.
			if i < len(all)-1 && big.NewRat(now.departs-a.departs+1, 1).Cmp(big.NewRat(w*(sum+a.cost-now.cost), limit)) <= 0 {
				return "departures are too close"
			}
			if a.departs > now.at {
				waiting++
			}
			if waiting > int64(l.Queue)+1 {
				return "more wait than the queue holds"
			}
		case limiter.TokenBucket:
			if big.NewRat(sum+a.cost-int64(l.Burst), 1).Cmp(big.NewRat(limit*(now.at-a.at), w)) > 0 {
				return "more than burst and refill"
			}
		}
		sum += a.cost
		switch {
		case a.at/w == now.at/w:
			current += a.cost
		case a.at/w == now.at/w-1:
			previous += a.cost
		}
		if l.Algorithm == limiter.SlidingWindowLog && now.at-a.at < w && sum > limit {
			return "more than the limit within a window's time"
		}
	}
	if l.Algorithm == limiter.FixedWindow && current > limit {
		return "more than the limit in a window"
	}
	estimate := new(big.Rat).Add(new(big.Rat).Mul(big.NewRat(previous, 1), big.NewRat(w-now.at%w, w)), big.NewRat(current, 1))
	if l.Algorithm == limiter.SlidingWindowCounter && estimate.Cmp(big.NewRat(limit+1, 1)) >= 0 {
		return "the estimate is not under limit + 1"
	}
	return ""
}

// For a lone caller waiting exactly the retry-after passes, and one unit of time
// less does not; without one, no wait helps.
func FuzzRetryAfterIsHonest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		l := s.limit()
		for step := 0; !s.done() && step < 100; step++ {
			w.clock.Add(s.elapsed(l.Window.Length))
			if s.n(16) == 0 {
				s.numbers(&l)
			}
			l.CountDenied = s.n(3) == 0
			h := s.hit("k", l)
			h.Refund = s.n(12) == 0
			if d, _ := w.decide(t, h); !d[0].Allowed {
				checkHonest(t, w, []limiter.Hit{h}, d)
			}
		}
	})
}

// Honest also for hits on one counter and over several limits, with the longest
// wait.
func FuzzTheLongestRetryAfterOfARequestIsHonest(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		keys, limits := []string{"a", "b", "c"}, []limiter.Limit{s.limit(), s.limit(), s.limit()}
		for step := 0; !s.done() && step < 60; step++ {
			w.clock.Add(s.elapsed(limits[s.n(3)].Window.Length))
			limits[s.n(3)].CountDenied = s.n(2) == 0
			patience := s.patience(limits[0])
			var request []limiter.Hit
			for range 1 + s.n(4) {
				k := s.n(3)
				request = append(request, hurried(on(keys[k], limits[k], s.cost(limits[k])), patience)) // one caller, one deadline
			}
			if d, passes := w.decide(t, request...); !passes {
				checkHonest(t, w, request, d)
			}
		}
	})
}

func checkHonest(t *testing.T, w world, request []limiter.Hit, d []limiter.Decision) {
	t.Helper()
	var longest, unit time.Duration
	for i, h := range request {
		if d[i].Allowed {
			continue
		}
		if d[i].RetryAfter == 0 {
			checkNever(t, w, request)
			return
		}
		if longest < d[i].RetryAfter {
			longest, unit = d[i].RetryAfter, unitOf(h.Limit)
		}
	}
	if longest == limiter.NoDeadline {
		return // 292 years or more: no time is longer
	}
	if got, passes := w.after(t, longest, request...); !passes {
		t.Fatalf("after its retry-after of %v a request is refused: %+v %v", longest, request, got)
	}
	if got, passes := w.after(t, longest-unit, request...); passes {
		t.Fatalf("%v before its retry-after of %v a request passes: %+v %v", unit, longest, request, got)
	}
}

func checkNever(t *testing.T, w world, request []limiter.Hit) {
	t.Helper()
	for _, h := range request {
		for n := range 5 {
			if got, passes := w.after(t, time.Duration(n)*h.Limit.Window.Length, request...); passes {
				t.Fatalf("a request without a retry-after passes after %d windows: %+v %v", n, request, got)
			}
		}
	}
}

func FuzzRemainingIsWhatPasses(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		l := s.limit()
		for step := 0; !s.done() && step < 100; step++ {
			w.clock.Add(s.elapsed(l.Window.Length))
			if s.n(8) == 0 {
				s.numbers(&l) // raised or lowered
			}
			l.CountDenied = s.n(3) == 0
			h := s.hit("k", l)
			h.Refund = s.n(6) == 0
			d, _ := w.decide(t, h)
			left := d[0].Remaining
			if left > uint64(capacityOf(&l)) {
				t.Fatalf("%d left of %+v", left, l)
			}
			if _, passes := w.after(t, 0, on("k", l, left)); left > 0 && !passes {
				t.Fatalf("%d are left of %+v and do not pass", left, l)
			}
			if _, passes := w.after(t, 0, on("k", l, left+1)); passes {
				t.Fatalf("%d are left of %+v and one more passes", left, l)
			}
		}
	})
}

// Compared by the looks that follow, now and later.
func FuzzARefusedRequestChangesNothing(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		keys, limits := []string{"a", "b", "c"}, []limiter.Limit{s.limit(), s.limit(), s.limit()}
		for step := 0; !s.done() && step < 60; step++ {
			w.clock.Add(s.elapsed(limits[s.n(3)].Window.Length))
			var request []limiter.Hit
			for range 1 + s.n(4) {
				k := s.n(3)
				h := s.hit(keys[k], limits[k])
				h.Shadow, h.Quota, h.Limit.CountDenied = s.n(6) == 0, s.n(6) == 0, k == 0 // a counts what it denies
				request = append(request, h)
			}
			before := w.At(w.clock.Now())
			d, passes := w.decide(t, request...)
			if passes {
				continue
			}
			counted := false
			for i, h := range request {
				counted = counted || h.Limit.CountDenied && !d[i].Allowed
			}
			for k, l := range limits {
				if k == 0 && counted {
					continue
				}
				for _, wait := range []time.Duration{0, l.Window.Length / 3, l.Window.Length} {
					look := on(keys[k], l, 0)
					want, _ := decideOn(t, before.At(w.clock.Now().Add(wait)), hits(look))
					if got, _ := w.after(t, wait, look); got[0] != want[0] {
						t.Fatalf("a refused request %+v changed %+v: %s was %s", request, l, limitertest.Words(got[0]), limitertest.Words(want[0]))
					}
				}
			}
		}
	})
}

func FuzzAfterResetTheCounterIsAsNew(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		l := s.limit()
		for step := 0; !s.done() && step < 100; step++ {
			w.clock.Add(s.elapsed(l.Window.Length))
			if s.n(8) == 0 {
				s.numbers(&l)
			}
			l.CountDenied = s.n(3) == 0
			h := s.hit("k", l)
			h.Refund = s.n(6) == 0
			d, _ := w.decide(t, h)
			reset, capacity := d[0].ResetAfter, uint64(capacityOf(&l))
			if reset == limiter.NoDeadline {
				return // 292 years or more: no time is longer
			}
			for _, c := range []uint64{0, 1, capacity} {
				got, _ := w.after(t, reset, on("k", l, c))
				if fresh, _ := w.after(t, reset, on("fresh", l, c)); got[0] != fresh[0] {
					t.Fatalf("%v later, a cost of %d on %+v: %s; on a fresh one: %s", reset, c, l, limitertest.Words(got[0]), limitertest.Words(fresh[0]))
				}
			}
			if reset == 0 {
				continue
			}
			if got, _ := w.after(t, reset-unitOf(l), on("k", l, 0)); got[0].Remaining == capacity {
				t.Fatalf("%v before it is as new, %+v has all remaining", unitOf(l), l)
			}
		}
	})
}
