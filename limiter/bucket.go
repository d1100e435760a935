package limiter

// Both buckets keep a backlog U of cost × W, which drains by the limit each unit
// of time, so that no fraction is ever lost and a changed limit keeps what was
// used. (GCRA of ITU-T I.371, in whole numbers.)

// tokenBucket lets the cost pass if U + cost × W ≤ burst × W.
var tokenBucket = algorithm{
	advance: drain,
	used:    func(s State, l *Limit, _ moment) int64 { return ceilDiv(s.Used, l.length()) },
	wait: func(s State, l *Limit, _ moment, cost int64) int64 {
		return drainTime(s.Used-(l.capacity()-cost)*l.length(), l)
	},
	charge: fill,
	refund: func(s State, l *Limit, cost int64) State {
		if w := l.length(); cost >= ceilDiv(s.Used, w) {
			s.Used = 0
		} else {
			s.Used -= cost * w
		}
		return s
	},
	reset:   func(s State, l *Limit, _ moment) int64 { return drainTime(s.Used, l) },
	expires: func(s State, l *Limit, _ moment) int64 { return s.Time + drainTime(s.Used, l) },
}

// leakyBucket lets requests depart window/limit apart, first in first out: a
// cost joins if ceil(U / W) + cost − 1 ≤ queue, and departs after U / limit.
var leakyBucket = algorithm{
	advance: drain,
	used:    tokenBucket.used,
	wait:    tokenBucket.wait,
	charge:  fill,
	refund:  nil, // places are promised
	reset:   tokenBucket.reset,
	expires: tokenBucket.expires,
}

func drain(s State, l *Limit, now int64) (State, moment, bool) {
	elapsed := now - s.Time
	if elapsed < -l.length() {
		return State{Time: now}, moment{now: now}, false
	}
	if elapsed < 0 { // the clock stepped back
		return s, moment{now: s.Time}, true
	}
	if elapsed >= drainTime(s.Used, l) {
		s.Used = 0
	} else {
		s.Used -= elapsed * int64(l.Requests)
	}
	s.Time = now
	return s, moment{now: now}, true
}

// mostBacklog is as far as a charge after the fact may go past the capacity:
// (capacity + limit) × W.
func (l *Limit) mostBacklog() int64 {
	c := l.capacity() + int64(l.Requests)
	if c > maxWhole/l.length() {
		return maxWhole
	}
	return c * l.length()
}

// fill adds the cost, as far as mostBacklog.
func fill(s State, l *Limit, _ moment, cost int64) State {
	w := l.length()
	if room := max(0, l.mostBacklog()-s.Used); cost > room/w {
		s.Used += room
	} else {
		s.Used += cost * w
	}
	return s
}

// drainTime is how long the backlog takes to drain, in whole units.
func drainTime(backlog int64, l *Limit) int64 {
	return ceilDiv(max(0, backlog), int64(l.Requests))
}

// turn is when a request behind cost ahead of it departs from a leaky bucket.
func turn(s State, l *Limit, ahead int64) int64 {
	return drainTime(s.Used+ahead*l.length(), l)
}
