package limiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// away returns a standby that has been told of so much use, and its clock.
func away(t *testing.T, l Limit, used uint64) (*Standby, Hit) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	s := NewStandby(MemoryOptions{Now: func() time.Time { return now }})
	h := Hit{Key: Key("counter"), Limit: l, Cost: 1, MaxDelay: NoDeadline}
	s.Learn([]Hit{h}, []Decision{{Allowed: true, Remaining: uint64(l.capacity()) - used}}, now)
	return s, h
}

func decideAway(t *testing.T, s *Standby, hits ...Hit) []Decision {
	t.Helper()
	d, err := s.Decide(context.Background(), hits)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStandbyBeginsFromWhatItLastSaw(t *testing.T) {
	for a := range Algorithm(5) {
		l := Limit{Requests: 5, Window: Window{Length: time.Hour}, Algorithm: a}
		switch a {
		case TokenBucket:
			l.Burst = 5
		case LeakyBucket:
			l.Queue = 4
		}
		s, h := away(t, l, 3)
		for i, want := range []bool{true, true, false} {
			if got := decideAway(t, s, h)[0].Allowed; got != want {
				t.Errorf("%v: hit %d after 3 of 5 were used: allowed %t, want %t", a, i+1, got, want)
			}
		}
	}
}

// Answers that were under way together may come in any order.
func TestStandbyTakesTheMostUseOfAnswersThatWereUnderWayTogether(t *testing.T) {
	for a := range Algorithm(5) {
		l := Limit{Requests: 10, Window: Window{Length: time.Hour}, Algorithm: a}
		switch a {
		case TokenBucket:
			l.Burst = 10
		case LeakyBucket:
			l.Queue = 9
		}
		now := time.Now().Truncate(time.Hour).Add(time.Minute)
		s := NewStandby(MemoryOptions{Now: func() time.Time { return now }})
		s.memory.start = now.Add(-time.Hour)
		h := Hit{Key: Key("counter"), Limit: l, Cost: 1, MaxDelay: NoDeadline}
		learn := func(remaining uint64, asked, told time.Duration) {
			s.put(&h, int64(10-remaining), s.memory.start.Add(asked), told)
		}
		left := func() (n int) {
			for clone := h; decideAway(t, s, clone)[0].Allowed; n++ {
			}
			return n
		}
		learn(7, time.Hour, time.Hour+20)
		learn(4, time.Hour+1, time.Hour+21)
		learn(6, time.Hour+2, time.Hour+22)
		if n := left(); n != 4 {
			t.Errorf("%v: %d pass of the 4 that one of three answers told were left", a, n)
		}
		learn(6, time.Hour+23, time.Hour+30)
		if n := left(); n != 6 {
			t.Errorf("%v: %d pass of the 6 that a later answer told were left", a, n)
		}
	}
}

func TestStandbyKeepsToTheLaterWindowOfAnswersThatWereUnderWayTogether(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingWindowCounter} {
		end := time.Now().Truncate(time.Hour)
		s := NewStandby(MemoryOptions{Now: func() time.Time { return end }})
		s.memory.start = end.Add(-time.Hour)
		h := Hit{Key: Key("counter"), Limit: Limit{Requests: 10, Window: Window{Length: time.Hour}, Algorithm: a}, Cost: 8}
		s.put(&h, 3, end, time.Hour+20)
		s.put(&h, 9, end.Add(-1), time.Hour+21) // asked before, and answered after
		if decideAway(t, s, h)[0].Allowed {
			t.Errorf("%v: what was used in this window is forgotten for an answer of the last", a)
		}
	}
}

// An instance may meet a counter once that others have used: what Redis said of it
// then is known in an outage, and what it says in the next window too.
func TestStandbyKnowsALargeLimitThatItMetOnce(t *testing.T) {
	l := Limit{Requests: 10_000, Window: Window{Length: time.Hour}}
	now := time.Unix(1_800_000_000, 0).Truncate(time.Hour).Add(time.Hour - time.Second)
	s := NewStandby(MemoryOptions{Now: func() time.Time { return now }})
	for _, window := range []string{"in one window", "in the next, with as much used"} {
		for i := range 100 {
			h := Hit{Key: fmt.Appendf(nil, "counter %d", i), Limit: l, Cost: 1}
			s.Learn([]Hit{h}, []Decision{{Allowed: true, Remaining: 4000}}, now)
			h.Cost = 4001
			if d := decideAway(t, s, h)[0]; d.Allowed {
				t.Fatalf("%s: more passed than the 4,000 that were left of counter %d", window, i)
			}
		}
		now = now.Add(2 * time.Second)
	}
}

func TestStandbyAnswersByPolicy(t *testing.T) {
	l := Limit{Requests: 5, Window: Window{Length: time.Hour}}
	s, h := away(t, l, 5)
	h.OnFailure = FailAllow
	if d := decideAway(t, s, h)[0]; !d.Allowed || d.Remaining != 5 {
		t.Errorf("allow: %+v, want a pass with the full limit", d)
	}
	h.OnFailure = FailDeny
	if d := decideAway(t, s, h)[0]; d.Allowed || d.Remaining != 0 || d.RetryAfter != 0 {
		t.Errorf("deny: %+v, want a refusal without a wait", d)
	}
	h.OnFailure = FailError
	if _, err := s.Decide(context.Background(), []Hit{h}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("error: %v, want ErrUnavailable", err)
	}
	h.Shadow = true
	if _, err := s.Decide(context.Background(), []Hit{h}); err != nil {
		t.Errorf("error of a shadow limit: %v, want that it never fails a request", err)
	}
}

func TestStandbyIsAllOrNothingAcrossPolicies(t *testing.T) {
	l := Limit{Requests: 5, Window: Window{Length: time.Hour}}
	s, local := away(t, l, 0)
	denied := Hit{Key: Key("other"), Limit: l, Cost: 1, OnFailure: FailDeny}
	if d := decideAway(t, s, local, denied); !d[0].Allowed || d[1].Allowed || d[0].Remaining != 5 {
		t.Errorf("a request that a policy refuses: %+v, want the local counter untouched", d)
	}
}

func TestStandbyKeepsNoMoreCountersThanItMay(t *testing.T) {
	s := NewStandby(MemoryOptions{MaxCounters: 1})
	l := Limit{Requests: 5, Window: Window{Length: time.Hour}}
	for _, key := range []string{"a", "b"} {
		h := Hit{Key: Key(key), Limit: l, Cost: 1}
		s.Learn([]Hit{h}, []Decision{{Allowed: true, Remaining: 1}}, time.Now())
	}
	if n := s.memory.Len(); n != 1 {
		t.Errorf("%d counters, want 1", n)
	}
	s.Learn([]Hit{{Key: Key("c"), Limit: l}}, []Decision{{Allowed: true, Remaining: 5}}, time.Now())
	if n := s.memory.Len(); n != 1 {
		t.Errorf("%d counters after a look at a fresh one, want 1", n)
	}
}

func TestStandbyTellsWhatItSawLeftInThisWindow(t *testing.T) {
	l := Limit{Requests: 10, Window: Window{Length: time.Hour}}
	s, h := away(t, l, 4)
	now := time.Unix(1_800_000_000, 0)
	start := now.Truncate(time.Hour)
	other := h
	other.Key = Key("another")
	lowered := h
	lowered.Limit.Requests = 3
	for remark, c := range map[string]struct {
		hit   Hit
		at    time.Time
		left  uint64
		known bool
	}{
		"4 of 10 were used":                 {h, now, 6, true},
		"as long as the window":             {h, start.Add(time.Hour - 1), 6, true},
		"the limit was lowered meanwhile":   {lowered, now, 0, true},
		"the next window":                   {h, start.Add(time.Hour), 0, false},
		"the window before":                 {h, start.Add(-1), 0, false},
		"a counter that it was not told of": {other, now, 0, false},
	} {
		if left, known := s.Left(&c.hit, c.at); left != c.left || known != c.known {
			t.Errorf("%s: %d left, known %t; want %d, %t", remark, left, known, c.left, c.known)
		}
	}
}
