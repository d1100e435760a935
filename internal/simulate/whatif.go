package simulate

import (
	"math"
	"slices"
	"time"

	"weir/limiter"
)

// A what-if is a limit tried on the hits of another, as if it were the only one: what
// else refuses the same requests, and so charges nothing, is not looked at. Passes over
// the hits try one limit in the place of each at once.

// outcome is what a limit would have done.
type outcome struct {
	refused  uint64
	counters uint64 // that were refused at least once
	held     uint64
	longest  time.Duration
	stopped  bool // it refused more than was asked about
}

// attempt is a limit to be tried, in the place of one of the replay's.
type attempt struct {
	limit    limiter.Limit
	enough   uint64 // refusals after which it is not followed further
	harmless uint32 // counters that never had more in a window are not refused, and not tried
}

// try tries limits on all hits: attempts[i] in the place of r.limits[i], unless nil.
func (r *replay) try(attempts []*attempt, peaks []uint32) ([]outcome, error) {
	outcomes := make([]outcome, len(attempts))
	trials := make([]*limiter.Trial, len(attempts))
	for i, a := range attempts {
		if a != nil {
			trials[i] = limiter.NewTrial(a.limit, patience(r.opts.Deadline))
		}
	}
	states := make([]limiter.State, len(r.counters.list))
	refused := make([]bool, len(r.counters.list))
	err := r.hits.each(func(at time.Time, number uint32, cost uint64) {
		limit := r.counters.list[number].limit
		trial, out := trials[limit], &outcomes[limit]
		if trial == nil || out.stopped || peaks[number] <= attempts[limit].harmless {
			return
		}
		var d limiter.Decision
		states[number], d = trial.Decide(states[number], cost, at)
		switch {
		case !d.Allowed:
			out.refused++
			out.stopped = out.refused > attempts[limit].enough
			if !refused[number] {
				refused[number] = true
				out.counters++
			}
		case d.Delay > 0:
			out.held++
			out.longest = max(out.longest, d.Delay)
		}
	})
	return outcomes, err
}

// attempts makes an attempt for each limit.
func (r *replay) attempts(make func(i int, l *limitTally) *attempt) []*attempt {
	var out []*attempt
	for i, l := range r.limits {
		out = append(out, make(i, l))
	}
	return out
}

// as is the limit counted by another algorithm: with a burst or a queue of the limit,
// and a window that does not follow the calendar, unless it is its own algorithm.
func as(l limiter.Limit, algorithm limiter.Algorithm) limiter.Limit {
	if l.Algorithm == algorithm {
		return l
	}
	out := limiter.Limit{Requests: l.Requests, Window: l.Window, Algorithm: algorithm, CountDenied: algorithm == limiter.SlidingWindowLog}
	if algorithm != limiter.FixedWindow {
		out.Window = limiter.Window{Length: l.Window.Length}
	}
	switch algorithm {
	case limiter.TokenBucket:
		out.Burst = l.Requests
	case limiter.LeakyBucket:
		out.Queue = l.Requests
	}
	return out
}

// algorithms tries each algorithm at the limit of each.
func (r *replay) algorithms(peaks []uint32) (byLimit [][]AlgorithmReport, err error) {
	byLimit = make([][]AlgorithmReport, len(r.limits))
	for i := range limiter.AlgorithmNames() {
		algorithm := limiter.Algorithm(i)
		attempts := r.attempts(func(_ int, l *limitTally) *attempt {
			limit := as(l.limit, algorithm)
			if limit.Validate() != nil {
				return nil
			}
			a := &attempt{limit: limit, enough: math.MaxUint64}
			if algorithm != limiter.LeakyBucket { // which also tells what it holds
				a.harmless = r.harmless(&limit)
			}
			return a
		})
		outcomes, err := r.try(attempts, peaks)
		if err != nil {
			return nil, err
		}
		for j, l := range r.limits {
			report := AlgorithmReport{Algorithm: algorithm.String(), Own: l.limit.Algorithm == algorithm}
			if attempts[j] == nil {
				report.Impossible = as(l.limit, algorithm).Validate().Error()
			} else {
				o := &outcomes[j]
				report.Limit = limitText(attempts[j].limit)
				report.Refused, report.Share, report.Counters = o.refused, share(o.refused, l.asked), o.counters
				report.Held, report.LongestHeld = o.held, o.longest.Seconds()
			}
			byLimit[j] = append(byLimit[j], report)
		}
	}
	return byLimit, nil
}

// search looks for the least number of requests at which a limit refuses no more than
// it may. It doubles until it is enough, and then halves what is left.
type search struct {
	limit     limiter.Limit
	allowed   uint64
	low, high uint64 // too few; enough, as soon as found
	found     bool
	at        uint64  // the number that is tried now; 0: none, it is done
	best      outcome // of high
	none      string  // why there is none
}

// scaled is the limit with another number, and a burst or a queue in proportion.
func scaled(l limiter.Limit, requests uint64) limiter.Limit {
	proportion := func(size uint64) uint64 {
		if l.Requests == 0 {
			return requests
		}
		return uint64(math.Ceil(float64(size) / float64(l.Requests) * float64(requests)))
	}
	switch l.Algorithm {
	case limiter.TokenBucket:
		l.Burst = max(1, proportion(l.Burst))
	case limiter.LeakyBucket:
		l.Queue = proportion(l.Queue)
	}
	l.Requests = requests
	return l
}

// next says which number to try after what the last one came to.
func (s *search) next(o outcome) {
	if enough := !o.stopped; enough {
		s.high, s.found, s.best = s.at, true, o
	} else {
		s.low = s.at
	}
	switch {
	case s.found && s.high-s.low <= 1:
		s.at = 0
	case s.found:
		s.at = s.low + (s.high-s.low)/2
	default:
		s.grow(2 * s.at)
	}
}

// grow tries a larger number, if there may be one.
func (s *search) grow(to uint64) {
	s.at = to
	if err := scaled(s.limit, to).Validate(); err == nil {
		return
	}
	s.at = 0
	if most := s.most(); most > s.low {
		s.at = most
		return
	}
	s.none = "also the largest limit that there may be refuses more"
}

// most is the largest number that is valid, by halving.
func (s *search) most() uint64 {
	low, high := uint64(0), uint64(limiter.MaxRequests)
	for low < high {
		middle := high - (high-low)/2
		if scaled(s.limit, middle).Validate() == nil {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// tightest searches for all limits at once, each pass one step.
func (r *replay) tightest(atMost float64, peaks []uint32) ([]*search, error) {
	highest := make([]uint32, len(r.limits))
	for number, peak := range peaks {
		limit := r.counters.list[number].limit
		highest[limit] = max(highest[limit], peak)
	}
	searches := make([]*search, len(r.limits))
	for i, l := range r.limits {
		s := &search{limit: l.limit, allowed: uint64(atMost * float64(l.asked))}
		s.limit.Lease = 0
		if r.opts.Suggest {
			s.limit.Requests = 0 // it means nothing
		}
		s.grow(max(1, uint64(highest[i])))
		searches[i] = s
	}
	for slices.ContainsFunc(searches, func(s *search) bool { return s.at > 0 }) {
		attempts := r.attempts(func(i int, _ *limitTally) *attempt {
			s := searches[i]
			if s.at == 0 {
				return nil
			}
			limit := scaled(s.limit, s.at)
			return &attempt{limit: limit, enough: s.allowed, harmless: r.harmless(&limit)}
		})
		outcomes, err := r.try(attempts, peaks)
		if err != nil {
			return nil, err
		}
		for i, s := range searches {
			if s.at > 0 {
				s.next(outcomes[i])
			}
		}
	}
	return searches, nil
}

// demand is the most that each counter's windows came to, as fixed windows count them.
func (r *replay) demand() ([]uint32, error) {
	trials := make([]*limiter.Trial, len(r.limits))
	for i, l := range r.limits {
		limit := limiter.Limit{Requests: limiter.MaxRequests, Window: l.limit.Window}
		trials[i] = limiter.NewTrial(limit, 0)
	}
	states := make([]limiter.State, len(r.counters.list))
	peaks := make([]uint32, len(r.counters.list))
	err := r.hits.each(func(at time.Time, number uint32, cost uint64) {
		s, _ := trials[r.counters.list[number].limit].Decide(states[number], cost, at)
		states[number] = s
		peaks[number] = max(peaks[number], uint32(min(s.Used, math.MaxUint32)))
	})
	return peaks, err
}

// harmless is how much a counter may have had in a fixed window at most, so that the
// limit surely refuses nothing of it: any span of a window's time lies in two of them.
func (r *replay) harmless(l *limiter.Limit) uint32 {
	room := l.Requests
	switch l.Algorithm {
	case limiter.FixedWindow:
		return uint32(min(room, math.MaxUint32-1))
	case limiter.TokenBucket:
		room = min(room, l.Burst)
	case limiter.LeakyBucket:
		if r.opts.Deadline > 0 {
			return 0 // it may refuse what has to wait
		}
		room = min(room, l.Queue)
	}
	return uint32(min(room/2, math.MaxUint32-1))
}
