package limiter

import (
	"math"
	"time"
)

// State is what a counter remembers: whole numbers below 2^53, times in the
// unit of its limit's window since 1970 UTC. The zero State is a counter that
// was never used. Functions that take a State own its Log from then on.
type State struct {
	Time     int64      // windows: the start of the window of Used; buckets: when Used was true; log: the newest hit
	Used     int64      // windows: hits in it; buckets: the backlog U; log: the cost of all hits kept
	Previous int64      // sliding_window_counter: hits in the window before
	Log      []LogEntry // sliding_window_log: the hits kept, oldest first
}

// LogEntry is a hit that a log remembers.
type LogEntry struct{ Time, Cost int64 }

// moment is the instant at which a state is looked at: now, or the state's own
// time where the clock has stepped back behind it.
type moment struct {
	now        int64
	start, end int64 // of the window that now lies in (windows only)
	next       int64 // the end of the window after it
}

// never is the wait of a cost that cannot ever pass.
const never = -1

// algorithm is one way to count. All its functions are pure; costs are at least
// 0, and the limit's Requests at least 1. The state is as advance left it.
type algorithm struct {
	// advance brings the state to now: windows move on, buckets drain, a log
	// forgets. A state up to a window ahead of now is read as of its own time;
	// one farther ahead is dropped, and ok is false.
	advance func(s State, l *Limit, now int64) (_ State, m moment, ok bool)
	// used is what counts against the capacity, in cost.
	used func(s State, l *Limit, m moment) int64
	// wait is the time until the cost fits, for a lone caller; 0 if it does now.
	// The cost is at most the capacity.
	wait func(s State, l *Limit, m moment, cost int64) int64
	// charge adds the cost, at most as much as keeps the state under its cap.
	charge func(s State, l *Limit, m moment, cost int64) State
	// refund takes the cost back, down to nothing used; nil: not at all.
	refund func(s State, l *Limit, cost int64) State
	// reset is the time until the state is as new.
	reset func(s State, l *Limit, m moment) int64
	// expires is when the state says nothing any more.
	expires func(s State, l *Limit, m moment) int64
}

func (a Algorithm) functions() *algorithm {
	switch a {
	case TokenBucket:
		return &tokenBucket
	case LeakyBucket:
		return &leakyBucket
	case SlidingWindowLog:
		return &slidingWindowLog
	case SlidingWindowCounter:
		return &slidingWindowCounter
	}
	return &fixedWindow
}

// ticks is the time in the limit's unit since 1970.
func (l *Limit) ticks(now time.Time) int64 {
	if l.Window.unit() == time.Millisecond {
		return max(0, now.UnixMilli())
	}
	return max(0, now.UnixMicro())
}

// duration turns units of the limit's window into a time; past 292 years it is
// the longest one. It is never negative: an instant that a zone's clock shows
// twice may lie past its window's end.
func (l *Limit) duration(units int64) time.Duration {
	unit := int64(l.Window.unit())
	if units > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return time.Duration(max(0, units) * unit)
}

// cost is the hit's, saturated.
func (h *Hit) cost() int64 { return int64(min(h.Cost, MaxCost)) }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
