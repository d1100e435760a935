package study

import "weir/limiter"

// Worst is what the worst traffic gets out of each algorithm, with a limit of
// WorstLimit a minute.
type Worst struct {
	Curves  [algorithms][]int64 `json:"curves"`  // the most that passes in curveStep × i
	Batches []BatchResult       `json:"batches"` // of a sliding counter
}

const (
	worstLimit  = 100
	worstWindow = minute
	curveStep   = worstWindow / 40
	curveSteps  = 60 // one window and a half
)

func worstCases() Worst {
	w := Worst{Batches: batches()}
	for i, l := range limits(worstLimit, worstWindow) {
		w.Curves[i] = curve(l)
	}
	return w
}

// curve is the most that passes within less than curveStep × i, wherever that time
// begins; the first is what passes within two microseconds.
func curve(l limiter.Limit) []int64 {
	most := make([]int64, curveSteps+1)
	for _, phase := range phases() {
		passes := greedy(newCounter(l), phase, phase+2*worstWindow)
		for i := range most {
			most[i] = max(most[i], mostWithin(passes, max(2, int64(i)*curveStep)))
		}
	}
	return most
}

// phases are when in a window an attack begins: its last microsecond is the one that
// matters to windows.
func phases() []int64 {
	ps := []int64{worstWindow - 1}
	for i := range int64(20) {
		ps = append(ps, i*worstWindow/20)
	}
	return ps
}

// greedy takes all there is from a time on, each hit at the first instant at which it
// passes, and returns when they passed, or departed.
func greedy(c *counter, at, end int64) (passes []int64) {
	for at < end {
		d := c.ask(at)
		if !d.Allowed {
			at += d.RetryAfter.Microseconds()
			continue
		}
		passes = append(passes, at+d.Delay.Microseconds())
	}
	return passes
}

// mostWithin is the most of the times, in order, that lie less than length apart.
func mostWithin(times []int64, length int64) (most int64) {
	first := 0
	for i, at := range times {
		for at-times[first] >= length {
			first++
		}
		most = max(most, int64(i-first+1))
	}
	return most
}

// bound is the most that may pass within less than a time of up to a window, as it
// follows from the algorithm's definition; docs/accuracy.md derives it.
func bound(algorithm int, limit, window, length int64) int64 {
	share := (limit*length + window - 1) / window // what the rate brings in that time
	switch algorithm {
	case fixedWindow:
		return 2 * limit // a window's end lies within
	case slidingCounter, tokenBucket:
		return limit + min(limit, share)
	case leakyBucket:
		return share
	}
	return limit
}

// BatchResult is what a sliding counter lets pass of 100 requests that come at once,
// once in each window, always at the same time of it.
type BatchResult struct {
	Phase  int64 `json:"phase"`  // in percent of the window
	Second int64 `json:"second"` // of the second batch, after a first one that passed whole
	Passes int64 `json:"passes"` // of each 100, on average, once it has settled
}

const settled = 200 // batches, after which one is much like the one before the last

func batches() (all []BatchResult) {
	for phase := int64(0); phase < 100; phase += 10 {
		c := newCounter(limits(worstLimit, worstWindow)[slidingCounter])
		var passed []int64
		for n := range int64(settled) {
			passed = append(passed, batch(c, n*worstWindow+phase*worstWindow/100))
		}
		all = append(all, BatchResult{Phase: phase, Second: passed[1], Passes: (passed[settled-1] + passed[settled-2]) / 2})
	}
	return all
}

func batch(c *counter, at int64) (passed int64) {
	for range worstLimit {
		if c.ask(at).Allowed {
			passed++
		}
	}
	return passed
}

// leaseHeld bounds what one instance holds of a counter that it leases from: takes ask
// for an eighth of what is left at most, and begin when less than a quarter of the one
// before is in hand: an eighth, a quarter of that, a quarter of that, …: a sixth.
func leaseHeld(limit, lease int64) int64 { return min(lease, limit/6) }

// leaseEarly bounds what is left, held by others, when a hit is refused.
func leaseEarly(instances, limit, lease int64) int64 {
	return min((instances-1)*leaseHeld(limit, lease), limit)
}
