package limiter

import (
	"context"
	"errors"
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

// What it is told of a large limit with much left it may miss some of, of one with
// little left nothing.
func TestStandbyIsNearWhatItLastSawOfALargeLimit(t *testing.T) {
	l := Limit{Requests: 4096, Window: Window{Length: time.Hour}}
	s, h := away(t, l, 0)
	now := time.Unix(1_800_000_000, 0)
	tell := func(from, to uint64) {
		for used := from; used <= to; used++ {
			s.Learn([]Hit{h}, []Decision{{Allowed: true, Remaining: l.Requests - used}}, now)
		}
	}
	look := h
	look.Cost = 0
	for used := uint64(400); used <= l.Requests-l.Requests/8; used += 400 {
		tell(used-399, used)
		// More than 200 are missed once in 400,000,000,000 times.
		if left := decideAway(t, s, look)[0].Remaining; left < l.Requests-used || left > l.Requests-used+200 {
			t.Errorf("%d left after %d were used, want about %d", left, used, l.Requests-used)
		}
	}
	tell(l.Requests-10, l.Requests-7)
	if left := decideAway(t, s, look)[0].Remaining; left != 7 {
		t.Errorf("%d left where it was told 7", left)
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
