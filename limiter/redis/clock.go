package redis

import (
	"sync/atomic"
	"time"

	"weir/limiter"
)

// clock is Redis's clock as this instance knows it. Scripts for a fixed window are
// told which window is expected, and then need not ask for the time (see
// fixed_expected.lua). Nothing is counted by it: a wrong one makes scripts look at
// Redis's own, and the reset times of passes wrong for a second. Of a cluster it is
// that of the master which told it last; the others' are as near as their hosts' are.
type clock struct {
	last atomic.Pointer[reading]
}

// reading is what Redis's clock showed at an instant of ours. The time that has gone
// by since is taken from the monotonic clock.
type reading struct {
	micros int64 // since 1970
	at     time.Time
}

const (
	readingGood  = time.Second           // so long a reading is used, and then renewed by the next script
	windowMargin = 50 * time.Millisecond // what must be left of a window that is expected: more than a reading is wrong by
)

// read notes what Redis's clock showed between two instants.
func (c *clock) read(micros int64, asked, told time.Time) {
	c.last.Store(&reading{micros, asked.Add(told.Sub(asked) / 2)})
}

// micros is the time that Redis has now, in µs since 1970, if that is known.
func (c *clock) micros(now time.Time) (micros int64, known bool) {
	r := c.last.Load()
	if r == nil {
		return 0, false
	}
	since := now.Sub(r.at)
	return r.micros + since.Microseconds(), since < readingGood
}

// window is the one that a script is told to expect. The zero value is none.
type window struct {
	tag  int64 // and 1
	left int64 // until it ends, in its limit's units
}

// expected is the window that the hit is likely to be counted in.
func (s *Store) expected(h *limiter.Hit, now time.Time) (w window) {
	l := &h.Limit
	if l.Window.Calendar != limiter.NoCalendar || h.Refund || h.Cost == 0 {
		return w
	}
	micros, known := s.clock.micros(now)
	if s.opts.Now != nil {
		micros, known = s.opts.Now().UnixMicro(), true
	}
	n := l.Numbers()
	at := micros / n.Unit.Microseconds()
	left := n.Window - at%n.Window
	if !known || at < 0 || l.Duration(left) < windowMargin {
		return w
	}
	return window{tag: at/n.Window%windowTags + 1, left: left}
}

// A counter of a fixed window is its window's tag times windowCounts, and what it
// counts; windowTags differ (SHIFT and TAGS in fixed.lua).
const (
	windowCounts = 1 << 33
	windowTags   = 1 << 19
)
