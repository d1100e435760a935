package limiter_test

import (
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// FuzzRequestsAgreeWithTheDefinition holds requests of one hit and of several, on
// counters of their own, against the naive definition of each algorithm and of what
// a request charges. The clock steps back, too, and limits change.
func FuzzRequestsAgreeWithTheDefinition(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, w := &script{data}, newWorld()
		keys, limits := []string{"a", "b", "c"}, []limiter.Limit{s.small(), s.small(), s.small()}
		definition := []oracle{newOracle(limits[0].Algorithm), newOracle(limits[1].Algorithm), newOracle(limits[2].Algorithm)}
		for step := 0; !s.done() && step < 80; step++ {
			w.clock.Add(s.anyElapsed(limits[s.n(3)].Window.Length))
			if k := s.n(3); s.n(10) == 0 {
				limits[k] = s.changed(limits[k])
			}
			var request []limiter.Hit
			var counters []int
			first := s.n(3)
			for i := range 1 + s.n(3) {
				k := int(first+i) % 3
				request, counters = append(request, s.anyHit(keys[k], limits[k])), append(counters, k)
			}
			want := define(definition, counters, request, w.clock.Now())
			got, _ := w.decide(t, request...)
			for i := range request {
				if got[i] != want[i] {
					t.Fatalf("step %d, hit %d of %+v:\n got %s\nwant %s", step, i, request, limitertest.Words(got[i]), limitertest.Words(want[i]))
				}
			}
		}
	})
}

// define is what the definition says of a request, whose hits are on counters of
// their own.
func define(all []oracle, counters []int, request []limiter.Hit, now time.Time) []limiter.Decision {
	alone := make([]limiter.Decision, len(request))
	after := make([]oracle, len(request))
	for i, h := range request {
		alone[i], after[i] = ask(copied(all[counters[i]]), h, now)
	}
	passes := limiter.Passes(request, alone)
	for i, h := range request {
		if passes || h.Refund || !alone[i].Allowed {
			all[counters[i]] = after[i]
		} else { // it would have passed, but for another: nothing is charged
			h.Cost = 0
			alone[i], _ = ask(copied(all[counters[i]]), h, now)
		}
		if h.Shadow {
			alone[i].Delay = 0
		}
	}
	return alone
}

func copied(o oracle) oracle {
	switch o := o.(type) {
	case *windowOracle:
		c := *o
		c.hits = maps.Clone(o.hits)
		return &c
	case *logOracle:
		return &logOracle{slices.Clone(o.times)}
	case *bucketOracle:
		return &bucketOracle{new(big.Rat).Set(o.level), o.time}
	}
	return o
}

// FuzzMemoryAgreesWithEvaluate holds the memory store against the pure functions:
// requests whose hits share counters or not, looks ahead and resets among them.
func FuzzMemoryAgreesWithEvaluate(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{data}
		opts := limiter.Options{ChargeEach: s.n(3) == 0}
		clock := limitertest.NewClock(monday)
		memory, reference := limiter.NewMemory(limiter.MemoryOptions{Options: opts, Now: clock.Now}), limitertest.NewReference(opts, clock.Now)
		keys, limits := []string{"a", "b", "c"}, []limiter.Limit{s.limit(), s.limit(), s.limit()}
		for step := 0; !s.done() && step < 80; step++ {
			clock.Add(s.anyElapsed(limits[s.n(3)].Window.Length))
			if k := s.n(3); s.n(10) == 0 {
				limits[k] = s.changed(limits[k])
			}
			var request []limiter.Hit
			for range 1 + s.n(4) {
				k := s.n(3)
				request = append(request, s.anyHit(keys[k], limits[k]))
			}
			decide := func(store interface {
				limiter.Store
				limiter.Peeker
				limiter.Resetter
			}, how uint64) ([]limiter.Decision, int, error) {
				switch how {
				case 0:
					d, err := store.Peek(t.Context(), request)
					return d, 0, err
				case 1:
					held, err := store.Reset(t.Context(), []limiter.Counter{{Key: request[0].Key}})
					return nil, held, err
				}
				d, err := store.Decide(t.Context(), request)
				return d, 0, err
			}
			how := s.n(12)
			want, _, err := decide(reference, how)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := decide(memory, how) // what is held memory may have forgotten: it had ended
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("step %d, %d, %+v:\n got %+v\nwant %+v\n%v", step, how, request, got, want, err)
			}
		}
	})
}

// small is a limit whose log, if it has one, the oracle can keep unit by unit.
func (s *script) small() limiter.Limit {
	l := s.limit()
	if l.Algorithm == limiter.SlidingWindowLog {
		l.Requests = min(l.Requests, 40)
	}
	l.CountDenied = s.n(3) == 0
	return l
}

// changed is the limit with other numbers, sometimes with 0.
func (s *script) changed(l limiter.Limit) limiter.Limit {
	s.numbers(&l)
	if l.Algorithm == limiter.SlidingWindowLog {
		l.Requests = min(l.Requests, 40)
	}
	l.CountDenied = s.n(3) == 0
	if s.n(10) == 0 {
		l.Requests = 0
	}
	return l
}

// anyElapsed steps back, too.
func (s *script) anyElapsed(window time.Duration) time.Duration {
	d := s.elapsed(window)
	if s.n(12) == 0 {
		return -d
	}
	return d
}

func (s *script) anyHit(key string, l limiter.Limit) limiter.Hit {
	h := s.hit(key, l)
	h.Refund, h.Shadow, h.Quota = s.n(8) == 0, s.n(8) == 0, s.n(8) == 0
	return h
}
