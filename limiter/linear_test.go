package limiter_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// linearLimits are the five algorithms, each with a limit that is raised and lowered.
func linearLimits(window time.Duration) [][]limiter.Limit {
	return [][]limiter.Limit{
		{fixed(6, window), fixed(9, window), fixed(3, window)},
		{tokens(6, window, 6), tokens(6, window, 9), tokens(3, window, 4)},
		{leaky(6, window, 5), leaky(6, window, 8), leaky(3, window, 3)},
		{slidingLog(6, window), slidingLog(9, window), slidingLog(3, window)},
		{slidingCounter(6, window), slidingCounter(9, window), slidingCounter(3, window)},
	}
}

// All that clients of a memory store are told could have been told to one after
// another, in an order that keeps to the times of their calls.
func TestMemoryIsLinearizable(t *testing.T) {
	t.Parallel()
	for _, limits := range linearLimits(time.Minute) {
		for _, opts := range []limiter.Options{{}, {ChargeEach: true}} {
			clock := limitertest.NewClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
			load := limitertest.Load{
				Stores: []limiter.Store{limiter.NewMemory(limiter.MemoryOptions{Options: opts, Now: clock.Now})},
				Limits: limits, Costs: 3, Looks: true, Refunds: true, Resets: true, Pairs: true, Modes: true,
				Clock: clock, Moves: []time.Duration{time.Second, 11 * time.Second, 31 * time.Second, time.Minute},
			}
			load.Linear(t, fmt.Sprint(limits[0].Algorithm, opts), 20, limitertest.Model(opts, limitertest.AgreeInAll))
		}
	}
}

// forgetful is a store that loses updates: it reads a counter, and writes it later.
type forgetful struct {
	mu     sync.Mutex
	states map[string]limiter.State
}

func (f *forgetful) Decide(_ context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	key := string(hits[0].Key)
	f.mu.Lock()
	slots := []limiter.Slot{{State: f.states[key]}}
	f.mu.Unlock()
	runtime.Gosched()
	decisions := limiter.Evaluate(hits, []int{0}, slots, time.Unix(1<<30, 0), limiter.Options{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[key] = slots[0].State
	return decisions, nil
}

// The checker is no decoration: it finds a store that loses an update now and then.
func TestALostUpdateIsNotLinearizable(t *testing.T) {
	t.Parallel()
	load := limitertest.Load{Stores: []limiter.Store{&forgetful{states: map[string]limiter.State{}}}, Limits: []limiter.Limit{fixed(30, time.Hour)}}
	model := limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts)
	for n := range 10_000 {
		if !load.Run(t, fmt.Sprint(n), uint64(n)).Check(t, model) {
			return
		}
	}
	t.Error("10,000 histories of a store that loses updates were taken for right")
}
