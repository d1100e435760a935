package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

func newMemory(_ *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
	return limiter.NewMemory(limiter.MemoryOptions{Options: opts, Now: now})
}

func TestMemoryPassesTheContract(t *testing.T) {
	limitertest.Run(t, limitertest.Options{New: newMemory})
}

func TestMemoryAgreesWithEvaluate(t *testing.T) {
	for a := range limiter.SlidingWindowCounter + 1 {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			limitertest.Replay(t, limitertest.ReplayOptions{New: newMemory, Steps: 30_000, Seed: 11, Algorithms: []limiter.Algorithm{a}})
			limitertest.Replay(t, limitertest.ReplayOptions{New: newMemory, Steps: 10_000, Seed: 12, Algorithms: []limiter.Algorithm{a}, ChargeEach: true})
		})
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		limitertest.Replay(t, limitertest.ReplayOptions{New: newMemory, Steps: 40_000, Seed: 13})
	})
}

// swept is a store that sweeps whenever it likes.
type swept struct {
	*limiter.Memory
	*rand.Rand
}

func (s swept) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if s.IntN(3) == 0 {
		s.Sweep()
	}
	return s.Memory.Decide(ctx, hits)
}

func TestSweepingTakesNothingThatMatters(t *testing.T) {
	limitertest.Replay(t, limitertest.ReplayOptions{Steps: 20_000, Seed: 14, Steady: true,
		New: func(_ *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
			return swept{limiter.NewMemory(limiter.MemoryOptions{Options: opts, Now: now}), rand.New(rand.NewPCG(14, 14))}
		}})
}

// bounded is a store of so many counters, with its clock and how often it found
// no room.
type bounded struct {
	*testing.T
	*limiter.Memory
	clock *limitertest.Clock
	full  int
}

func newBounded(t *testing.T, counters int) *bounded {
	b := &bounded{T: t, clock: limitertest.NewClock(monday)}
	b.Memory = limiter.NewMemory(limiter.MemoryOptions{MaxCounters: counters, Now: b.clock.Now, OnFull: func() { b.full++ }})
	return b
}

func (b *bounded) want(want string, h ...limiter.Hit) {
	b.Helper()
	d, err := b.Decide(b.Context(), h)
	if err != nil {
		b.Fatal(err)
	}
	if err := limitertest.Match(want, d[0]); err != nil {
		b.Error(err)
	}
}

func TestMemoryIsBoundedAndNeverEvictsLiveCounters(t *testing.T) {
	for _, counters := range []int{1, 2, 1000} {
		t.Run(strconv.Itoa(counters), func(t *testing.T) {
			b, l := newBounded(t, counters), fixed(2, time.Minute)
			for i := range 3 * counters {
				b.want("pass", on(strconv.Itoa(i), l, 1))
			}
			if b.Len() != counters || b.full != 2*counters {
				t.Errorf("it holds %d counters and found no room %d times, want %d and %d", b.Len(), b.full, counters, 2*counters)
			}
			for i := range counters {
				b.want("pass left=0", on(strconv.Itoa(i), l, 1)) // the first ones have all they used
				b.want("refuse left=0 retry=60s", on(strconv.Itoa(i), l, 1))
			}
		})
	}
}

func TestFullMemoryAsksTheHitsFailurePolicy(t *testing.T) {
	l := fixed(5, time.Minute)
	with := func(p limiter.FailurePolicy, cost uint64) limiter.Hit {
		h := on("new", l, cost)
		h.OnFailure = p
		return h
	}
	for _, c := range []struct {
		policy limiter.FailurePolicy
		want   string // "": ErrUnavailable
	}{
		{limiter.FailLocal, "pass left=5 reset=0s"},
		{limiter.FailAllow, "pass left=5 reset=0s"},
		{limiter.FailDeny, "refuse left=0 retry=0s"},
		{limiter.FailError, ""},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			b := newBounded(t, 1)
			b.want("pass left=4", on("old", l, 1))
			if c.want == "" {
				d, err := b.Decide(t.Context(), hits(with(c.policy, 1), on("old", l, 1)))
				if !errors.Is(err, limiter.ErrUnavailable) || d != nil {
					t.Errorf("got %v, %v", d, err)
				}
			} else {
				b.want(c.want, with(c.policy, 1))
			}
			if b.full != 1 {
				t.Errorf("OnFull was called %d times", b.full)
			}
			b.want("pass left=5 reset=0s", with(c.policy, 0)) // a look needs no room
			zero := with(c.policy, 1)
			zero.Limit.Requests = 0
			b.want("refuse left=0 retry=0s", zero) // nor does limit 0, which keeps no count
			b.want("pass left=3", on("old", l, 1)) // what was refused charged nothing
			if b.full != 1 || b.Len() != 1 {
				t.Errorf("OnFull was called %d times, and it holds %d", b.full, b.Len())
			}
		})
	}
}

func TestFullMemoryRefusesARequestAsAWhole(t *testing.T) {
	b, l := newBounded(t, 1), fixed(5, time.Minute)
	b.want("pass left=4", on("old", l, 1))
	deny := on("new", l, 1)
	deny.OnFailure = limiter.FailDeny
	b.want("pass left=4", on("old", l, 1), deny)
	b.want("pass left=4", on("old", l, 0)) // it was not charged
	b.want("pass left=3", on("old", l, 1), on("new", l, 1))
}

func TestARequestThatFailsGivesItsRoomBack(t *testing.T) {
	b, l := newBounded(t, 1), fixed(5, time.Minute)
	first, second := on("first", l, 1), on("second", l, 1)
	second.OnFailure = limiter.FailError
	if _, err := b.Decide(t.Context(), hits(first, second)); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("two counters where one fits: %v", err)
	}
	if b.Len() != 0 {
		t.Errorf("it holds %d counters", b.Len())
	}
	b.want("pass left=4", second)
}

// A look beside a hit must not take the only room.
func TestOnlyHitsThatMayCountTakeRoom(t *testing.T) {
	l := fixed(5, time.Minute)
	for name, other := range map[string]limiter.Hit{"look": on("a", l, 0), "refund": back(on("a", l, 1)), "limit 0": shadowed(on("a", fixed(0, time.Minute), 1))} {
		t.Run(name, func(t *testing.T) {
			b := newBounded(t, 1)
			if d, err := b.Decide(t.Context(), hits(other, on("b", l, 5))); err != nil || !d[1].Allowed {
				t.Fatal(d, err)
			}
			b.want("refuse left=0 retry=60s", on("b", l, 1))
			if b.full != 0 {
				t.Errorf("OnFull was called %d times", b.full)
			}
		})
	}
}

func TestRoomIsFreeAgainOnceCountersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in here no time passes: it may sweep as often as it likes
		b, l := newBounded(t, 3), fixed(1, time.Minute)
		for i := range 3 {
			b.want("pass", on(strconv.Itoa(i), l, 1))
		}
		b.clock.Add(time.Minute - time.Microsecond)
		b.want("pass left=1", on("3", l, 1)) // uncounted
		if b.full != 1 {
			t.Errorf("a microsecond before they end: OnFull was called %d times", b.full)
		}
		b.clock.Add(time.Microsecond)
		b.want("pass left=0", on("3", l, 1))
		b.want("refuse", on("3", l, 1))
		if b.full != 1 || b.Len() != 1 {
			t.Errorf("once they ended: OnFull was called %d times, it holds %d", b.full, b.Len())
		}
	})
}

// Two counters at once, where there is room for one but the other has ended.
func TestRoomIsFreedForAllCountersOfARequest(t *testing.T) {
	b, l := newBounded(t, 3), fixed(1, time.Minute)
	b.want("pass", on("0", l, 1))
	b.want("pass", on("1", l, 1))
	b.clock.Add(time.Minute)
	b.want("pass left=0", on("2", l, 1), on("3", l, 1))
	b.want("refuse", on("3", l, 1))
	if b.full != 0 {
		t.Errorf("OnFull was called %d times", b.full)
	}
}

func TestLooksRefundsAndRefusalsBeginNoCounter(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		b := newBounded(t, 10)
		b.want("pass left=4 reset=0s", on("look", l, 0))
		b.want("pass left=4 reset=0s", back(on("refund", l, 3)))
		b.want("refuse left=4 retry=0s", on("refused", l, 5))
		b.want("pass left=4", on("beside", l, 1), on("refused", l, 5))
		b.want("refuse", on("zero", fixed(0, time.Minute), 1))
		if b.Len() != 0 {
			t.Errorf("it holds %d counters", b.Len())
		}
		b.want("refuse left=0", on("counted", denied(l), 5))
		if b.Len() != 1 {
			t.Errorf("a refusal that counts began %d counters, want 1", b.Len())
		}
	})
}

// A counter is swept at the very moment at which its state says nothing any more.
func TestSweepTakesACounterExactlyWhenItEnds(t *testing.T) {
	for _, w := range []time.Duration{time.Minute, 2 * time.Hour} {
		forEach(t, w, func(t *testing.T, l limiter.Limit) {
			b := newBounded(t, 10)
			b.clock.Add(w / 4)
			b.want("pass", on("k", l, 2))
			lives := map[limiter.Algorithm]time.Duration{
				limiter.FixedWindow: w - w/4, limiter.SlidingWindowLog: w,
				limiter.SlidingWindowCounter: 2*w - w/4, // to the next window's end
				limiter.TokenBucket:          w / 2, limiter.LeakyBucket: w / 2,
			}[l.Algorithm]
			b.clock.Add(lives - unitOf(l))
			if b.Sweep(); b.Len() != 1 {
				t.Errorf("%v before its end it was swept", unitOf(l))
			}
			b.clock.Add(unitOf(l))
			if b.Sweep(); b.Len() != 0 {
				t.Error("at its end it was not swept")
			}
			b.want("pass left=4 reset=0s", on("k", l, 0))
		})
	}
}

func TestRunSweepsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limiter.NewMemory(limiter.MemoryOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { m.Run(ctx, 10*time.Second) })
		if _, err := m.Decide(ctx, hits(on("k", tokens(1, time.Second, 15), 15))); err != nil { // 15 s to drain
			t.Fatal(err)
		}
		wait := func(d time.Duration) { <-time.After(d); synctest.Wait() }
		if wait(14 * time.Second); m.Len() != 1 {
			t.Errorf("after one sweep it holds %d counters, want 1: it is alive", m.Len())
		}
		if wait(7 * time.Second); m.Len() != 0 {
			t.Errorf("after two sweeps it holds %d counters, want none", m.Len())
		}
		cancel()
		run.Wait() // else the bubble never ends
	})
}

func TestDroppedCountersAreReported(t *testing.T) {
	dropped, clock := 0, limitertest.NewClock(monday)
	m := limiter.NewMemory(limiter.MemoryOptions{Now: clock.Now, OnDropped: func() { dropped++ }})
	h := on("k", fixed(3, time.Minute), 1)
	for _, at := range []struct {
		wait time.Duration
		want int
	}{{0, 0}, {-time.Minute, 0}, {-time.Minute, 1}, {0, 1}, {10 * time.Hour, 1}, {-10 * time.Hour, 2}} {
		clock.Add(at.wait)
		if _, err := m.Decide(t.Context(), hits(h)); err != nil || dropped != at.want {
			t.Fatalf("after %v: %d dropped, want %d (%v)", at.wait, dropped, at.want, err)
		}
	}
}

func TestSweepsAndDecisionsRunTogether(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{MaxCounters: 50})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 500 {
				key := fmt.Sprint((i*7 + g) % 80)
				if _, err := m.Decide(t.Context(), hits(on(key, slidingLog(3, time.Millisecond), 1), on(key+"x", fixed(3, time.Millisecond), 1))); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					m.Sweep()
				}
			}
		})
	}
	group.Wait()
	if m.Len() < 0 || m.Len() > 50 {
		t.Errorf("it holds %d counters of 50", m.Len())
	}
}

func TestAFullyRefundedCounterMakesRoom(t *testing.T) {
	for _, l := range []limiter.Limit{
		{Requests: 2, Window: limiter.Window{Length: time.Hour}},
		{Requests: 2, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.SlidingWindowLog},
		{Requests: 2, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.TokenBucket, Burst: 2},
	} {
		m := limiter.NewMemory(limiter.MemoryOptions{MaxCounters: 1})
		h := limiter.Hit{Key: limiter.Key("a"), Limit: l, Cost: 1}
		back := h
		back.Refund = true
		for _, hit := range []limiter.Hit{h, back} {
			if _, err := m.Decide(t.Context(), []limiter.Hit{hit}); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.Len(); n != 0 {
			t.Errorf("%v: %d counters after a full refund, want none", l.Algorithm, n)
		}
	}
}

func TestAShadowHitNeverFailsARequestThatFindsNoRoom(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{MaxCounters: 1})
	l := limiter.Limit{Requests: 2, Window: limiter.Window{Length: time.Hour}}
	one := limiter.Hit{Key: limiter.Key("a"), Limit: l, Cost: 1}
	shadow := limiter.Hit{Key: limiter.Key("b"), Limit: l, Cost: 1, Shadow: true, OnFailure: limiter.FailError}
	if _, err := m.Decide(t.Context(), []limiter.Hit{one, shadow}); err != nil {
		t.Errorf("a shadow hit without room: %v", err)
	}
	shadow.Shadow = false
	if _, err := m.Decide(t.Context(), []limiter.Hit{one, shadow}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("an enforced hit without room: %v, want ErrUnavailable", err)
	}
}

// A bucket whose rate is lowered takes longer to drain than it was kept for: what a
// refusal tells of the wait holds, though the store is swept.
func TestABucketIsHeldAsLongAsItsLoweredRateTakesToDrain(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		now := time.Unix(1_800_000_000, 0)
		m := limiter.NewMemory(limiter.MemoryOptions{Now: func() time.Time { return now }})
		decide := func(l limiter.Limit, cost uint64) limiter.Decision {
			d, err := m.Decide(t.Context(), []limiter.Hit{{Key: limiter.Key("k"), Limit: l, Cost: cost, MaxDelay: limiter.NoDeadline}})
			if err != nil {
				t.Fatal(err)
			}
			return d[0]
		}
		l := limiter.Limit{Requests: 100, Window: limiter.Window{Length: time.Second}, Algorithm: a, Burst: 100, Queue: 99}
		lowered := limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Second}, Algorithm: a, Burst: 10, Queue: 9}
		decide(l, 100)
		d := decide(lowered, 1)
		now = now.Add(d.RetryAfter - time.Second)
		m.Sweep()
		if d := decide(lowered, 1); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("%v: a second before the wait is over: %+v", a, d)
		}
		now = now.Add(time.Second)
		m.Sweep()
		if d := decide(lowered, 1); !d.Allowed {
			t.Errorf("%v: after the wait: %+v", a, d)
		}
	}
}
