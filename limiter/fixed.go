package limiter

// fixedWindow counts hits in windows that start at multiples of the window, or
// where the calendar starts them: up to twice the limit can pass within one
// window's time around a boundary.
var fixedWindow = algorithm{
	advance: func(s State, l *Limit, now int64) (State, moment, bool) {
		start, end, next := l.Window.bounds(now)
		switch s.Time {
		case start:
			return s, moment{now, start, end, next}, true
		case end: // the clock stepped back
			_, end, next = l.Window.bounds(s.Time)
			return s, moment{s.Time, s.Time, end, next}, true
		}
		return State{Time: start}, moment{now, start, end, next}, s.Time < end
	},
	used: func(s State, _ *Limit, _ moment) int64 { return s.Used },
	wait: func(s State, l *Limit, m moment, cost int64) int64 {
		if s.Used+cost <= int64(l.Requests) {
			return 0
		}
		return m.end - m.now
	},
	charge: func(s State, l *Limit, _ moment, cost int64) State {
		s.Used += min(cost, max(0, 2*int64(l.Requests)-s.Used))
		return s
	},
	refund: func(s State, _ *Limit, cost int64) State {
		s.Used -= min(cost, s.Used)
		return s
	},
	reset: func(s State, _ *Limit, m moment) int64 {
		if s.Used == 0 {
			return 0
		}
		return m.end - m.now
	},
	expires: func(_ State, _ *Limit, m moment) int64 { return m.end },
}
