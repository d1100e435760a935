package limiter

import "math"

// slidingWindowCounter weighs the window before by the share of it that still
// lies within the last window's time: floor(previous × (W − x) / W) + current,
// x the time into the current window. It assumes that the hits of the window
// before were spread evenly. (Cloudflare, "Counting things", 2017.)
var slidingWindowCounter = algorithm{
	advance: func(s State, l *Limit, now int64) (State, moment, bool) {
		start, end, next := l.Window.bounds(now)
		w := l.length()
		switch s.Time {
		case start:
		case end: // the clock stepped back
			return s, moment{end, end, next, next + w}, true
		case start - w:
			s = State{Time: start, Previous: s.Used}
		default:
			return State{Time: start}, moment{now, start, end, next}, s.Time < end
		}
		return s, moment{now, start, end, next}, true
	},
	used: func(s State, l *Limit, m moment) int64 {
		return weighted(s.Previous, m.now-m.start, l.length()) + s.Used
	},
	wait: func(s State, l *Limit, m moment, cost int64) int64 {
		w, x, limit := l.length(), m.now-m.start, int64(l.Requests)
		if room := limit - cost - s.Used; room >= 0 {
			return max(0, fallsTo(s.Previous, room, w)-x)
		}
		return w - x + fallsTo(s.Used, limit-cost, w) // the current window is the one before by then
	},
	charge: func(s State, l *Limit, m moment, cost int64) State {
		used := weighted(s.Previous, m.now-m.start, l.length()) + s.Used
		s.Used += min(cost, max(0, 2*int64(l.Requests)-used))
		return s
	},
	refund: func(s State, _ *Limit, cost int64) State {
		current := min(cost, s.Used)
		s.Used -= current
		s.Previous -= min(cost-current, s.Previous)
		return s
	},
	reset: func(s State, l *Limit, m moment) int64 {
		w, x := l.length(), m.now-m.start
		if s.Used > 0 {
			return w - x + fallsTo(s.Used, 0, w)
		}
		return max(0, fallsTo(s.Previous, 0, w)-x)
	},
	expires: func(_ State, _ *Limit, m moment) int64 { return m.next },
}

// weighted is what the window before still counts, x into the current one. It
// multiplies first; Lua's doubles give the same.
func weighted(previous, x, w int64) int64 {
	return int64(math.Floor(float64(previous) * float64(w-x) / float64(w)))
}

// fallsTo is the least x, 0 to w, at which weighted is at most room (0 or more).
func fallsTo(previous, room, w int64) int64 {
	if previous <= room {
		return 0
	}
	// previous × (w − x) < (room + 1) × w, solved for x; its rounding is made good below.
	x := w - int64(math.Ceil(float64(room+1)*float64(w)/float64(previous))) + 1
	x = min(max(x, 0), w)
	for x > 0 && weighted(previous, x-1, w) <= room {
		x--
	}
	for weighted(previous, x, w) > room {
		x++
	}
	return x
}
