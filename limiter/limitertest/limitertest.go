// Package limitertest holds what every limiter.Store must do: a contract suite
// that a store passes in one line,
//
//	limitertest.Run(t, limitertest.Options{New: newStore})
//
// and Replay, which plays one random trace through the store and through
// limiter.Evaluate, who must agree in every field of every decision.
//
// The suite's clock stands still or jumps. A store that lets a database expire
// its counters must not do so by the database's own clock while it is given
// this one.
package limitertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/limiter"
)

// New makes an empty store, which shares no counters with any made before and
// takes the time from now. It ends the store with t.Cleanup.
type New func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store

// Options says what the suite runs on.
type Options struct {
	New New

	// Except names the tests, as in "Algorithms/leaky_bucket", that the store
	// does not pass, with the reason, which the skipped test prints.
	Except map[string]string
}

// Run runs the contract suite, one subtest for each promise.
func Run(t *testing.T, opts Options) {
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"Algorithms", testAlgorithms},
		{"DecisionsInOrder", testDecisionsInOrder},
		{"NoHits", testNoHits},
		{"AllOrNothing", testAllOrNothing},
		{"Shadow", testShadow},
		{"Quota", testQuota},
		{"CountDenied", testCountDenied},
		{"SameKey", testSameKey},
		{"ChargeEach", testChargeEach},
		{"Refunds", testRefunds},
		{"Looks", testLooks},
		{"LiveChange", testLiveChange},
		{"Deadline", testDeadline},
		{"LargeNumbers", testLargeNumbers},
		{"AnyKey", testAnyKey},
		{"ManyHits", testManyHits},
		{"ContextDone", testContextDone},
		{"HoldsNothing", testHoldsNothing},
		{"Calendar", testCalendar},
		{"ClockStepsBack", testClockStepsBack},
		{"Reset", testReset},
		{"Peek", testPeek},
		{"ParallelExact", testParallelExact},
		{"ParallelAllOrNothing", testParallelAllOrNothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(newSuite(t, opts, c.name, limiter.Options{}))
		})
	}
}

// start is a Monday's midnight: the start of an hour, day and week.
var start = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// suite is one test's store and clock.
type suite struct {
	*testing.T
	opts  Options
	name  string
	clock *Clock
	store limiter.Store
}

func newSuite(t *testing.T, opts Options, name string, store limiter.Options) *suite {
	t.Helper()
	if why, ok := opts.Except[name]; ok {
		t.Skip(why)
	}
	clock := NewClock(start)
	return &suite{T: t, opts: opts, name: name, clock: clock, store: opts.New(t, store, clock.Now)}
}

// sub runs a subtest with a store of its own.
func (s *suite) sub(name string, store limiter.Options, test func(s *suite)) {
	s.Run(name, func(t *testing.T) {
		test(newSuite(t, s.opts, s.name+"/"+name, store))
	})
}

func (s *suite) decide(hits ...limiter.Hit) []limiter.Decision {
	s.Helper()
	decisions, err := s.store.Decide(context.Background(), hits)
	if err != nil {
		s.Fatalf("Decide: %v", err)
	}
	if len(decisions) != len(hits) {
		s.Fatalf("%d decisions for %d hits", len(decisions), len(hits))
	}
	return decisions
}

// at moves the clock.
func (s *suite) at(sinceStart time.Duration) { s.clock.Set(start.Add(sinceStart)) }

// want asks once and compares each decision with a line such as
// "refuse left=0 retry=35s" (see Match).
func (s *suite) want(remark, wants string, hits ...limiter.Hit) {
	s.Helper()
	s.match(remark, wants, s.decide(hits...))
}

func (s *suite) match(remark, wants string, decisions []limiter.Decision) {
	s.Helper()
	for i, want := range strings.Split(wants, "|") {
		if err := Match(want, decisions[i]); err != nil {
			s.Errorf("%s: hit %d: %v", remark, i, err)
		}
	}
}

// Match compares a decision with words: first pass or refuse, then any of left=
// (remaining), retry=, reset= and delay= (times). Without a retry= a pass has
// none, without a delay= nothing is delayed.
func Match(want string, d limiter.Decision) error {
	words := strings.Fields(want)
	verdict := "refuse"
	if d.Allowed {
		verdict = "pass"
	}
	if d.Queued {
		verdict = "queue"
	}
	wrong := len(words) == 0 || words[0] != verdict
	delay, retry := "0", ""
	if d.Allowed {
		retry = "0"
	}
	for _, word := range words[min(1, len(words)):] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "left":
			wrong = wrong || value != fmt.Sprint(d.Remaining)
		case "reset":
			wrong = wrong || !sameTime(value, d.ResetAfter)
		case "retry":
			retry = value
		case "delay":
			delay = value
		default:
			return fmt.Errorf("unknown word %q in %q", word, want)
		}
	}
	if wrong || !sameTime(delay, d.Delay) || retry != "" && !sameTime(retry, d.RetryAfter) {
		return fmt.Errorf("got %q, want %q", Words(d), want)
	}
	return nil
}

func sameTime(want string, got time.Duration) bool {
	d, err := time.ParseDuration(want)
	return err == nil && d == got
}

// Words writes a decision as Match reads it.
func Words(d limiter.Decision) string {
	verdict := "refuse"
	if d.Allowed {
		verdict = "pass"
	}
	return fmt.Sprintf("%s left=%d retry=%v reset=%v delay=%v", verdict, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay)
}
