package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tank is a server of our own: it counts, or not, and takes its time.
type tank struct {
	mu     sync.Mutex
	limit  uint64
	used   map[int]uint64
	leaks  bool // it admits without counting
	takes  time.Duration
	fails  bool
	silent bool
	asked  atomic.Int64
}

func (s *tank) Ask(_ context.Context, _, value int) (bool, error) {
	s.asked.Add(1)
	time.Sleep(s.takes)
	if s.fails {
		return false, errors.New("out of order")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[value] >= s.limit {
		return true, nil
	}
	if !s.leaks {
		s.used[value]++
	}
	return false, nil
}

func (s *tank) Look(_ context.Context, value int) (uint64, uint64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.limit - s.used[value], !s.silent, nil
}

func newTank(limit uint64) *tank { return &tank{limit: limit, used: map[int]uint64{}} }

func target(t *testing.T, s Asker, l Load) *Target {
	t.Helper()
	got, err := NewTarget(l, s, Processes{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestClosedLoopKeepsSoManyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTank(1000)
		s.takes = 10 * time.Millisecond
		r, err := target(t, s, Load{Values: 10, Descriptors: 1, InFlight: 4}).Drive(t.Context(), time.Second)
		if err != nil || r.Requests != 400 || r.P50 != 10*time.Millisecond || r.P999 != 10*time.Millisecond {
			t.Errorf("%+v, %v; want 4 in each of 100 spans of 10 ms", r, err)
		}
	})
}

// A stall of the server must show in the latencies of the requests that were due
// meanwhile, though they were sent only after it.
func TestOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTank(1000)
		s.takes = 20 * time.Millisecond // one in flight and 100 a second: each comes 10 ms later than the last
		r, err := target(t, s, Load{Values: 1, Descriptors: 1, InFlight: 1, Rate: 100}).Drive(t.Context(), time.Second)
		if err != nil || r.Requests != 99 || r.P50 != 510*time.Millisecond {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestTheDriveEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := target(t, newTank(1), Load{Values: 1, Descriptors: 1, InFlight: 2, Rate: 1}).Drive(ctx, time.Hour)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestAServerThatAnswersNothingIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTank(1)
		s.fails, s.takes = true, time.Millisecond
		if r, err := target(t, s, Load{Values: 1, Descriptors: 1, InFlight: 1}).Drive(t.Context(), 50*time.Millisecond); err == nil {
			t.Errorf("%+v", r)
		}
	})
}

func TestCountFindsWhatWasAdmittedUncounted(t *testing.T) {
	for _, x := range []struct {
		remark string
		change func(*tank)
		want   Counted
		ok     bool
	}{
		{"an honest one", func(*tank) {}, Counted{Looked: 5, Right: 5}, true},
		{"it admits without counting", func(s *tank) { s.leaks = true }, Counted{Looked: 5, Missing: 35, Fault: "value 0: 7 were admitted, but only 0 counted"}, false},
		{"it tells nothing", func(s *tank) { s.silent = true }, Counted{Silent: true}, true},
	} {
		s := newTank(100)
		x.change(s)
		c := target(t, s, Load{Values: 5, Descriptors: 1, InFlight: 1})
		for v := range 5 {
			for range 7 {
				if over, err := s.Ask(t.Context(), 0, v); over || err != nil {
					t.Fatal(over, err)
				}
				c.admitted[v].Add(1)
			}
		}
		got, err := c.Count(t.Context(), Meaning{})
		if err != nil || got != x.want || got.OK(34) != x.ok || !got.OK(35) {
			t.Errorf("%s: %+v, %v", x.remark, got, err)
		}
	}
}

func TestACounterIsJudged(t *testing.T) {
	for _, x := range []struct {
		remark                             string
		m                                  Meaning
		limit, remaining, admitted, failed uint64
		elapsed                            time.Duration
		right                              bool
	}{
		{"what was admitted was counted", Meaning{}, 100, 60, 40, 0, 0, true},
		{"one too few", Meaning{}, 100, 61, 40, 0, 0, false},
		{"one too many", Meaning{}, 100, 59, 40, 0, 0, false},
		{"a request that failed may have been counted", Meaning{}, 100, 59, 40, 1, 0, true},
		{"but excuses no admission", Meaning{}, 100, 61, 40, 1, 0, false},
		{"full, and refused ones counted too", Meaning{}, 5, 0, 5, 0, 0, true},
		{"more than the limit", Meaning{}, 5, 0, 6, 0, 0, false},
		{"half a window refills half", Meaning{Refill: time.Hour}, 100, 90, 60, 0, 30 * time.Minute, true},
		{"and no more", Meaning{Refill: time.Hour}, 100, 95, 60, 0, 30 * time.Minute, false},
		{"a lease in hand", Meaning{Slack: 1000}, 5000, 3000, 1500, 0, 0, true},
		{"more than a lease", Meaning{Slack: 1000}, 5000, 2000, 1500, 0, 0, false},
	} {
		if err := x.m.judge(x.limit, x.remaining, x.admitted, x.failed, x.elapsed); (err == nil) != x.right {
			t.Errorf("%s: %v", x.remark, err)
		}
	}
}

func TestValuesAreSpreadAsAsked(t *testing.T) {
	count := func(l Load) (counts []int) {
		counts = make([]int, l.Values)
		for w := range uint64(8) {
			next := Values(l, w)
			for range 10_000 {
				counts[next()]++
			}
		}
		return counts
	}
	for v, n := range count(Load{Values: 100}) {
		if n < 600 || n > 1000 {
			t.Errorf("uniform: value %d came %d times of 80000, want about 800", v, n)
		}
	}
	// P(k) is proportional to (1+k)^-s: the first comes 2^s times as often as the second.
	zipf := count(Load{Values: 100, Zipf: 1.1})
	if ratio := float64(zipf[0]) / float64(zipf[1]); ratio < 1.9 || ratio > 2.4 {
		t.Errorf("Zipf: the first two are as %.2f, want about 2.14", ratio)
	}
	if zipf[0] < 10*zipf[50] || zipf[99] == 0 {
		t.Errorf("Zipf: %v", zipf)
	}
	if one := count(Load{Values: 1, Zipf: 1.1}); one[0] != 80_000 {
		t.Errorf("one: %v", one)
	}
	a, b := Values(Load{Values: 1000}, 3), Values(Load{Values: 1000}, 3)
	for range 100 {
		if a() != b() {
			t.Fatal("another order in another drive")
		}
	}
}

func TestALoadThatMakesNoSenseIsRefused(t *testing.T) {
	good := Load{Values: 1, Descriptors: 1, InFlight: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for remark, change := range map[string]func(*Load){
		"no values":          func(l *Load) { l.Values = 0 },
		"Zipf's s of 1":      func(l *Load) { l.Zipf = 1 },
		"Zipf's s below 0":   func(l *Load) { l.Zipf = -2 },
		"no descriptor":      func(l *Load) { l.Descriptors = 0 },
		"nothing in flight":  func(l *Load) { l.InFlight = 0 },
		"a rate below 0":     func(l *Load) { l.Rate = -1 },
		"too many in flight": func(l *Load) { l.InFlight = 1 << 20 },
	} {
		l := good
		change(&l)
		if l.Check() == nil {
			t.Errorf("%s passes", remark)
		}
	}
}
