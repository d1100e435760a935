package limiter

import (
	"errors"
	"fmt"
)

// Bounds of a limit's numbers.
const (
	MaxRequests = 1<<32 - 1
	MaxLogLimit = 100_000   // a log keeps every hit
	maxBacklog  = 1 << 52   // of burst × window and queue × window, in units of time
	maxWhole    = 1<<53 - 1 // the largest whole number that a Lua double holds exactly with all below it
)

// Validate says what keeps the limit from being counted exactly, and what is
// allowed instead.
func (l Limit) Validate() error {
	if err := l.Window.Validate(); err != nil {
		return err
	}
	switch {
	case l.Requests > MaxRequests:
		return fmt.Errorf("limit %d is over %d", l.Requests, uint64(MaxRequests))
	case l.Window.Calendar != NoCalendar && l.Algorithm != FixedWindow:
		return fmt.Errorf("%v does not follow the calendar; only fixed_window does", l.Algorithm)
	case l.Algorithm == SlidingWindowLog && l.Requests > MaxLogLimit:
		return fmt.Errorf("limit %d is over %d, the most that sliding_window_log remembers; sliding_window_counter has no such bound", l.Requests, MaxLogLimit)
	case l.Algorithm != TokenBucket && l.Burst != 0:
		return fmt.Errorf("burst belongs to token_bucket, not to %v", l.Algorithm)
	case l.Algorithm != LeakyBucket && l.Queue != 0:
		return fmt.Errorf("queue belongs to leaky_bucket, not to %v", l.Algorithm)
	case l.Algorithm != FixedWindow && l.Lease != 0:
		return fmt.Errorf("lease belongs to fixed_window, not to %v", l.Algorithm)
	case l.Lease > MaxRequests:
		return fmt.Errorf("lease %d is over %d", l.Lease, uint64(MaxRequests))
	case l.Algorithm == TokenBucket && l.Requests > 0 && l.Burst == 0:
		return errors.New("burst 0 lets nothing pass; it is 1 at least")
	}
	if size, name := max(l.Burst, l.Queue), l.sizeName(); size > maxBacklog/uint64(l.length()) {
		return fmt.Errorf("%s %d is too large for a window of %v: it is %d at most (2^52 / the window in units of %v)",
			name, size, l.Window.Length, maxBacklog/uint64(l.length()), l.Window.unit())
	}
	return nil
}

func (l Limit) sizeName() string {
	if l.Algorithm == LeakyBucket {
		return "queue"
	}
	return "burst"
}

// length is the window in units of time.
func (l *Limit) length() int64 { return int64(l.Window.Length / l.Window.unit()) }

// capacity is the largest cost that can ever pass.
func (l *Limit) capacity() int64 {
	switch {
	case l.Requests == 0:
		return 0
	case l.Algorithm == TokenBucket:
		return int64(l.Burst)
	case l.Algorithm == LeakyBucket:
		return int64(l.Queue) + 1
	}
	return int64(l.Requests)
}
