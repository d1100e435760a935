package limitertest_test

import (
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

func newReference(_ *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
	return limitertest.NewReference(opts, now)
}

// The reference passes what it is the reference of.
func TestReferencePassesTheContract(t *testing.T) {
	limitertest.Run(t, limitertest.Options{New: newReference})
}

func TestExceptedTestsAreSkipped(t *testing.T) {
	made := 0
	limitertest.Run(t, limitertest.Options{
		New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
			made++
			if t.Name() == "TestExceptedTestsAreSkipped/Looks/token_bucket" {
				t.Error("it ran")
			}
			return newReference(t, opts, now)
		},
		Except: map[string]string{"Looks/token_bucket": "an example"},
	})
	if made == 0 {
		t.Error("no store was made")
	}
}

func TestReplayTakesTheSameTraceFromTheSameSeed(t *testing.T) {
	for _, steady := range []bool{false, true} {
		limitertest.Replay(t, limitertest.ReplayOptions{New: newReference, Steps: 2000, Seed: 7, Steady: steady})
	}
}

func TestAtLeavesTheStoreAsItIs(t *testing.T) {
	clock := limitertest.NewClock(time.Unix(1_000_000, 0))
	r := limitertest.NewReference(limiter.Options{}, clock.Now)
	l := limiter.Limit{Requests: 3, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.SlidingWindowLog}
	hits := []limiter.Hit{{Key: limiter.Key("k"), Limit: l, Cost: 1}}
	decide := func(s limiter.Store) string {
		d, err := s.Decide(t.Context(), hits)
		if err != nil {
			t.Fatal(err)
		}
		return limitertest.Words(d[0])
	}
	decide(r)
	if got, want := decide(r.At(clock.Now())), decide(r.At(clock.Now())); got != want {
		t.Errorf("two copies differ: %s and %s", got, want)
	}
	if got := decide(r); got != "pass left=1 retry=0s reset=1m0s delay=0s" {
		t.Errorf("after two copies were asked, the store answers %s", got)
	}
}
