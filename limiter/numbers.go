package limiter

import "time"

// Numbers are a limit in whole numbers, as stores in other languages need it.
type Numbers struct {
	Unit     time.Duration // of all times of the limit: 1 µs for windows up to an hour, else 1 ms
	Window   int64         // in units
	Capacity int64         // the largest cost that can ever pass
	Most     int64         // the most that a state may hold: hits, cost in the log, or backlog
}

// Numbers prepares the limit.
func (l *Limit) Numbers() Numbers {
	n := Numbers{Unit: l.Window.unit(), Window: l.length(), Capacity: l.capacity()}
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		n.Most = l.mostBacklog()
	case SlidingWindowLog:
		n.Most = int64(l.Requests) + 1
	default:
		n.Most = 2 * int64(l.Requests)
	}
	return n
}

// Capacity is the largest cost that can ever pass: what a fresh counter has left.
func (l *Limit) Capacity() int64 { return l.capacity() }

// Duration turns units of the limit's window into a time.
func (l *Limit) Duration(units int64) time.Duration { return l.duration(units) }

// Bounds are the start of the calendar window that now lies in, its end, and the
// end of the one after it, in ms since 1970.
func (w Window) Bounds(now time.Time) [3]int64 {
	start, end, next := w.bounds(now.UnixMilli())
	return [3]int64{start, end, next}
}
