package study

import (
	"math/rand/v2"

	"weir/limiter"
)

// Outcome is what an algorithm did with the requests of a shape, beside the exact log
// that was asked the same at the same times, each with its own history.
type Outcome struct {
	Passed         int64 `json:"passed"`
	WronglyAllowed int64 `json:"wrongly_allowed"` // the log refused it
	WronglyRefused int64 `json:"wrongly_refused"` // the log let it pass
	Over           int64 `json:"over"`            // passed although the limit had passed by this algorithm in the window's time before
	Early          int64 `json:"early"`           // refused although less had
	Most           int64 `json:"most"`            // that passed (of a leaky bucket: departed) within one window's time
}

func (o *Outcome) add(p *Outcome) {
	o.Passed += p.Passed
	o.WronglyAllowed += p.WronglyAllowed
	o.WronglyRefused += p.WronglyRefused
	o.Over += p.Over
	o.Early += p.Early
	o.Most = max(o.Most, p.Most)
}

// ShapeResult is what a shape of traffic shows.
type ShapeResult struct {
	Name     string              `json:"name"`
	Limit    int64               `json:"limit"`
	Requests int64               `json:"requests"`
	Outcomes [algorithms]Outcome `json:"outcomes"` // in the order of algorithmNames
	Arrivals Arrivals            `json:"arrivals"`
}

// Arrivals is Cloudflare's question: every request counts, refused or not, and the
// estimate of how many came in the last window's time is held against the true number.
type Arrivals struct {
	WronglyAllowed int64 `json:"wrongly_allowed"`
	WronglyRefused int64 `json:"wrongly_refused"`
	Difference     int64 `json:"difference"` // the sum, over the requests, of |estimate − true| / true, in millionths
}

func (s *ShapeResult) add(o *ShapeResult) {
	s.Requests += o.Requests
	for i := range s.Outcomes {
		s.Outcomes[i].add(&o.Outcomes[i])
	}
	s.Arrivals.WronglyAllowed += o.Arrivals.WronglyAllowed
	s.Arrivals.WronglyRefused += o.Arrivals.WronglyRefused
	s.Arrivals.Difference += o.Arrivals.Difference
}

func (s *shape) play(r *rand.Rand, z size) ShapeResult {
	result := ShapeResult{Name: s.name, Limit: int64(s.limit)}
	for rank := range z.clients(s.clients) {
		times := z.cut(s.client(r, rank))
		result.Requests += int64(len(times))
		s.decide(&result, times)
		s.estimate(&result.Arrivals, times)
	}
	return result
}

// decide asks the five about a client's requests.
func (s *shape) decide(result *ShapeResult, times []int64) {
	var counters [algorithms]*counter
	var passed [algorithms]recent // by each of them
	for i, l := range limits(s.limit, s.window) {
		counters[i], passed[i] = newCounter(l), recent{window: s.window}
	}
	for _, at := range times {
		var right bool
		for i, c := range counters {
			d, o := c.ask(at), &result.Outcomes[i]
			if i == exactLog {
				right = d.Allowed
			}
			departs := at + d.Delay.Microseconds()
			before := passed[i].count(departs)
			if d.Allowed {
				o.Passed++
				passed[i].add(departs)
				o.Most = max(o.Most, before+1)
			}
			o.judge(d.Allowed, right, before >= result.Limit)
		}
	}
}

// judge notes a decision: what the log decided, and whether the limit had passed.
func (o *Outcome) judge(allowed, right, full bool) {
	switch {
	case allowed && !right:
		o.WronglyAllowed++
	case !allowed && right:
		o.WronglyRefused++
	}
	switch {
	case allowed && full:
		o.Over++
	case !allowed && !full:
		o.Early++
	}
}

// estimate lets every request of a client count, in a counter that refuses none.
func (s *shape) estimate(a *Arrivals, times []int64) {
	all := newCounter(limits(limiter.MaxRequests, s.window)[slidingCounter])
	truly := recent{window: s.window}
	for _, at := range times {
		estimate := limiter.MaxRequests - int64(all.ask(at).Remaining)
		truly.add(at)
		n := truly.count(at)
		switch limit := int64(s.limit); {
		case estimate <= limit && n > limit:
			a.WronglyAllowed++
		case estimate > limit && n <= limit:
			a.WronglyRefused++
		}
		a.Difference += max(estimate-n, n-estimate) * 1_000_000 / n
	}
}
