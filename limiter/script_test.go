package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// script turns a fuzzer's bytes into limits and hits. When they are used up it
// gives zeros.
type script struct{ data []byte }

func (s *script) done() bool { return len(s.data) == 0 }

func (s *script) byte() byte {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return b
}

// n is a number below max; small ones take one byte.
func (s *script) n(max uint64) uint64 {
	v := uint64(s.byte())
	for m := max >> 8; m > 0; m >>= 8 {
		v = v<<8 | uint64(s.byte())
	}
	return v % max
}

// limit is of any algorithm; one in eight is large.
func (s *script) limit() limiter.Limit {
	windows := []time.Duration{time.Minute, time.Millisecond, 7 * time.Second, time.Hour, 90 * time.Minute, 24 * time.Hour, limiter.MaxWindow}
	l := limiter.Limit{Algorithm: limiter.Algorithm(s.n(5)), Window: per(windows[s.n(uint64(len(windows)))])}
	s.numbers(&l)
	return l
}

// numbers changes a limit's numbers.
func (s *script) numbers(l *limiter.Limit) {
	size := func() uint64 { return 1 + s.n(7) }
	l.Requests = size()
	if s.n(8) == 0 {
		l.Requests = 1 + s.n(limiter.MaxLogLimit)
	}
	l.Burst, l.Queue = 0, 0
	switch l.Algorithm {
	case limiter.TokenBucket:
		l.Burst = size()
	case limiter.LeakyBucket:
		l.Queue = size() - 1
	}
}

// elapsed is mostly less than a window, and often next to nothing.
func (s *script) elapsed(window time.Duration) time.Duration {
	switch n := s.byte(); {
	case n < 80:
		return 0
	case n < 120:
		return time.Duration(s.n(5000))
	case n < 130:
		return window
	case n < 140:
		return time.Duration(s.n(4)) * window
	}
	return window / 256 * time.Duration(s.byte())
}

// cost is from 0 to a little over the capacity, and mostly small.
func (s *script) cost(l limiter.Limit) uint64 {
	switch n := s.byte(); {
	case n < 150:
		return 1
	case n < 200:
		return s.n(4)
	case n < 205:
		return 1 << s.n(64)
	}
	return s.n(uint64(capacityOf(&l)) + 2)
}

func (s *script) hit(key string, l limiter.Limit) limiter.Hit {
	h := on(key, l, s.cost(l))
	h.MaxDelay = s.patience(l)
	return h
}

func (s *script) patience(l limiter.Limit) time.Duration {
	if s.n(2) == 0 {
		return limiter.NoDeadline
	}
	return l.Window.Length / 64 * time.Duration(s.n(128))
}

// seeds gives a fuzz target scripts that run as tests.
func seeds(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		data := make([]byte, 40+r.IntN(360))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
}

func unitOf(l limiter.Limit) time.Duration {
	if l.Window.Length > time.Hour {
		return time.Millisecond
	}
	return time.Microsecond
}

// world is a store with a clock.
type world struct {
	*limitertest.Reference
	clock *limitertest.Clock
}

func newWorld() world {
	clock := limitertest.NewClock(monday)
	return world{limitertest.NewReference(limiter.Options{}, clock.Now), clock}
}

// after is what a request would get in so long, were nothing asked until then.
func (w world) after(t *testing.T, wait time.Duration, h ...limiter.Hit) ([]limiter.Decision, bool) {
	t.Helper()
	return decideOn(t, w.At(w.clock.Now().Add(wait)), h)
}

// decide asks now.
func (w world) decide(t *testing.T, h ...limiter.Hit) ([]limiter.Decision, bool) {
	t.Helper()
	return decideOn(t, w.Reference, h)
}

func decideOn(t *testing.T, s limiter.Store, h []limiter.Hit) ([]limiter.Decision, bool) {
	t.Helper()
	d, err := s.Decide(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return d, limiter.Passes(h, d)
}
