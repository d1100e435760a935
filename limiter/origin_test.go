package limiter

import (
	"testing"
	"time"
)

func TestDecisionsTellWhoDecided(t *testing.T) {
	now := func() time.Time { return time.Unix(1_800_000_000, 0) }
	l := Limit{Requests: 5, Window: Window{Length: time.Hour}}
	on := func(key string, p FailurePolicy) Hit { return Hit{Key: Key(key), Limit: l, Cost: 1, OnFailure: p} }
	shadow := on("new", FailError)
	shadow.Shadow = true
	for _, x := range []struct {
		hit    Hit
		memory Origin // of a full memory store, of a hit on a new counter
		away   Origin // of who stands by for a store that is away
	}{
		{on("new", FailLocal), OriginOpen, OriginLocal},
		{on("new", FailAllow), OriginOpen, OriginOpen},
		{on("new", FailDeny), OriginClosed, OriginClosed},
		{shadow, OriginOpen, OriginOpen}, // it refuses nothing
	} {
		m := NewMemory(MemoryOptions{MaxCounters: 1, Now: now})
		d, err := m.Decide(t.Context(), []Hit{on("old", FailLocal), x.hit})
		if err != nil {
			t.Fatal(err)
		}
		if d[0].Origin != OriginStore || d[1].Origin != x.memory {
			t.Errorf("%v: full memory: %v and %v, want %v and %v", x.hit.OnFailure, d[0].Origin, d[1].Origin, OriginStore, x.memory)
		}
		s := NewStandby(MemoryOptions{Now: now})
		if d = decideAway(t, s, x.hit, on("old", FailLocal)); d[0].Origin != x.away || d[1].Origin != OriginLocal {
			t.Errorf("%v: standing by: %v and %v, want %v and %v", x.hit.OnFailure, d[0].Origin, d[1].Origin, x.away, OriginLocal)
		}
	}
	s := NewStandby(MemoryOptions{MaxCounters: 1, Now: now})
	if d := decideAway(t, s, on("old", FailLocal), on("new", FailLocal)); d[0].Origin != OriginLocal || d[1].Origin != OriginOpen {
		t.Errorf("standing by without room: %v and %v", d[0].Origin, d[1].Origin)
	}
	if s.Len() != 1 {
		t.Errorf("it holds %d counters", s.Len())
	}
}
