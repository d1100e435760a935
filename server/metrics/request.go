package metrics

import (
	"time"

	"weir/limiter"
	"weir/rules"
)

// Request measures one request. It reads the clock three times: as the request
// arrives, before the store is asked and when it is decided; and twice more if it is
// held. The zero value measures nothing.
type Request struct {
	m                       *Metrics
	arrived, asked, decided time.Duration // as of Metrics.now; decided is 0 until then
}

// Begin begins a request, which End ends.
func (m *Metrics) Begin() Request {
	if m == nil {
		return Request{}
	}
	m.inFlight.Add(1)
	return Request{m: m, arrived: m.now()}
}

// Asking is called before the store is asked.
func (r *Request) Asking() {
	if r.m != nil {
		r.asked = r.m.now()
	}
}

// Decided counts the decisions that the store has made of a plan of the set. Shadow
// is the whole server's. Nothing of it is kept.
func (r *Request) Decided(set *rules.Set, req *rules.Request, plan *rules.Plan, decisions []limiter.Decision, shadow bool) {
	m := r.m
	if m == nil {
		return
	}
	r.decided = m.now()
	asked := false
	charged := m.opts.ChargeEach || limiter.Passes(plan.Hits, decisions)
	for i := range plan.Matches {
		match := &plan.Matches[i]
		for h := match.First; h < match.First+match.Hits; h++ {
			d := &decisions[h]
			hit := &plan.Hits[h]
			asked = asked || d.Origin == limiter.OriginStore && hit.Limit.Requests > 0 // else there is no counter
			o := m.outcome(hit, d, shadow)
			rule := plan.Rules[h]
			var c *ruleCounters
			if rule == nil {
				c = m.overridesOf(set, req.Domain)
			} else {
				c = m.countersOf(set, rule)
			}
			c.all[o].Add(1)
			if charged && begun(hit, d) {
				c.begun.Add(1)
			}
			if rule != nil && rule.TellsValues() {
				m.tallyOf(c, rule, req.Descriptors[i].Entries)[o].Add(1)
			}
		}
	}
	if asked {
		m.stored.Observe((r.decided - r.asked).Seconds())
	}
}

// begun tells whether a hit that was charged has begun its counter: nothing else is used
// of it.
func begun(h *limiter.Hit, d *limiter.Decision) bool {
	return d.Allowed && h.Cost > 0 && !h.Refund && (d.Origin == limiter.OriginStore || d.Origin == limiter.OriginLocal) &&
		d.Remaining+h.Cost == uint64(h.Limit.Capacity())
}

// Outcome is how a decision came out, one of Outcomes. Shadow is the whole server's.
func (m *Metrics) Outcome(h *limiter.Hit, d *limiter.Decision, shadow bool) string {
	return outcomeNames[m.outcome(h, d, shadow)]
}

// outcome is exactly one, for each decision.
func (m *Metrics) outcome(h *limiter.Hit, d *limiter.Decision, shadow bool) outcome {
	switch {
	case d.Origin == limiter.OriginOpen:
		return outcomeFailedOpen
	case d.Origin == limiter.OriginClosed:
		return outcomeFailedClosed
	case d.Origin == limiter.OriginLocal:
		return outcomeFailedLocal
	case d.Allowed:
		if d.Remaining < m.nearFrom(h.Limit.Capacity()) {
			return outcomeNearLimit
		}
		return outcomeOK
	case h.Shadow || shadow:
		return outcomeShadowOverLimit
	case d.Origin == limiter.OriginDenyCache:
		return outcomeDenyCache
	}
	return outcomeOverLimit
}

// Holding notes that the request waits for its turn from now on. Done is called when
// it does so no more.
func (r *Request) Holding() (done func()) {
	m := r.m
	if m == nil {
		return func() {}
	}
	begin := m.now()
	m.holding.Add(1)
	return func() {
		m.holding.Add(-1)
		m.held.Observe((m.now() - begin).Seconds())
	}
}

// End ends a request for a domain, which was answered with a gRPC code: 0 is OK, also
// of what is over the limit.
func (r *Request) End(domain string, code uint32, overLimit bool) {
	m := r.m
	if m == nil {
		return
	}
	if r.decided == 0 {
		r.decided = m.now()
	}
	m.decided.Observe((r.decided - r.arrived).Seconds())
	m.inFlight.Add(-1)
	switch {
	case overLimit && code == 0:
		code = codeOverLimit
	case code >= codeOverLimit:
		code = codeUnknown
	}
	m.codesOf(domain).codes[code].Add(1)
}

// Unread counts a request that was answered with a gRPC code before it was known for
// which domain it is.
func (m *Metrics) Unread(code uint32) {
	if m == nil {
		return
	}
	if code >= codeOverLimit {
		code = codeUnknown
	}
	m.none.codes[code].Add(1)
}
