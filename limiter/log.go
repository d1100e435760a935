package limiter

// slidingWindowLog remembers each hit and counts those younger than the window:
// exact at every instant, and the only one whose memory grows with the limit.
// A hit exactly one window old has left. It keeps limit + 1 of cost at most,
// which is enough to refuse.
var slidingWindowLog = algorithm{
	advance: func(s State, l *Limit, now int64) (State, moment, bool) {
		ahead := s.Time - now
		if ahead > l.length() {
			return State{}, moment{now: now}, false
		}
		now = max(now, s.Time)
		gone := 0
		for gone < len(s.Log) && s.Log[gone].Time <= now-l.length() {
			s.Used -= s.Log[gone].Cost
			gone++
		}
		s.Log = s.Log[gone:]
		if len(s.Log) == 0 {
			s = State{}
		}
		return s, moment{now: now}, true
	},
	used: func(s State, _ *Limit, _ moment) int64 { return s.Used },
	wait: func(s State, l *Limit, m moment, cost int64) int64 {
		excess := s.Used + cost - int64(l.Requests)
		if excess <= 0 {
			return 0
		}
		for _, e := range s.Log {
			if excess -= e.Cost; excess <= 0 {
				return e.Time + l.length() - m.now
			}
		}
		return never // not reached: cost is at most the limit
	},
	charge: func(s State, l *Limit, m moment, cost int64) State {
		most := int64(l.Requests) + 1
		cost = min(cost, most)
		if cost == 0 {
			return s
		}
		if n := len(s.Log); n > 0 && s.Log[n-1].Time == m.now {
			s.Log[n-1].Cost += cost
		} else {
			s.Log = append(s.Log, LogEntry{m.now, cost})
		}
		s.Used += cost
		s.Time = m.now
		for s.Used > most { // the oldest is dropped, in part if need be
			drop := min(s.Log[0].Cost, s.Used-most)
			s.Used -= drop
			if s.Log[0].Cost -= drop; s.Log[0].Cost == 0 {
				s.Log = s.Log[1:]
			}
		}
		return s
	},
	refund: func(s State, _ *Limit, cost int64) State {
		for n := len(s.Log); n > 0 && cost > 0; n-- { // the newest first
			take := min(cost, s.Log[n-1].Cost)
			cost -= take
			s.Used -= take
			if s.Log[n-1].Cost -= take; s.Log[n-1].Cost == 0 {
				s.Log = s.Log[:n-1]
			}
		}
		if len(s.Log) == 0 {
			return State{}
		}
		s.Time = s.Log[len(s.Log)-1].Time
		return s
	},
	reset: func(s State, l *Limit, m moment) int64 {
		if len(s.Log) == 0 {
			return 0
		}
		return s.Time + l.length() - m.now
	},
	expires: func(s State, l *Limit, _ moment) int64 { return s.Time + l.length() },
}
