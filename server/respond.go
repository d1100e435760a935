package server

import (
	"math"

	"weir/limiter"
	"weir/rules"
)

// respond turns a plan and its decisions into the answer.
func (s *Service) respond(c *call, decisions []limiter.Decision, passes bool) {
	a, p := &c.answer, &c.plan
	a.over = !passes && !s.opts.Shadow
	for i := range p.Matches {
		a.statuses = append(a.statuses, statusOf(p, &p.Matches[i], decisions))
	}
	told := s.hint(c, decisions)
	a.metadata = s.metadata(c, decisions, told)
}

// hint adds what the response to the client and the request to the upstream are to
// carry. It returns the hit that they tell of; -1: none.
func (s *Service) hint(c *call, decisions []limiter.Decision) (told int) {
	a, p := &c.answer, &c.plan
	told = telling(p.Hits, decisions)
	if told >= 0 {
		s.addHeaders(c, decisions, told)
		if s.opts.UpstreamHeaders && !a.over {
			a.addUpstream(p.Rules[told], &p.Hits[told], &decisions[told])
		}
	}
	if a.over {
		s.addBody(c, decisions, told)
	} else if !s.opts.Shadow {
		s.addOverflow(c, decisions)
	}
	return told
}

// statusOf is one descriptor's: of several limits, the strictest is shown.
func statusOf(p *rules.Plan, m *rules.Match, decisions []limiter.Decision) status {
	switch {
	case m.Unlimited:
		return status{remaining: math.MaxUint32}
	case m.Hits == 0:
		return status{}
	}
	shown := m.First
	for i := m.First + 1; i < m.First+m.Hits; i++ {
		if stricter(&decisions[i], &decisions[shown]) {
			shown = i
		}
	}
	h, d := &p.Hits[shown], &decisions[shown]
	st := status{limit: &h.Limit, remaining: clamp32(d.Remaining), reset: d.ResetAfter, hasReset: true}
	if r := p.Rules[shown]; r != nil {
		st.name = toValid(r.Name)
	}
	if !d.Allowed && !h.Shadow {
		st.over, st.reset, st.hasReset = true, d.RetryAfter, d.RetryAfter > 0
	}
	return st
}

// stricter tells whether a refuses longer than b, a limit that can never pass
// longest of all; or, if neither refuses, leaves less.
func stricter(a, b *limiter.Decision) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	}
	return b.RetryAfter != 0 && (a.RetryAfter == 0 || a.RetryAfter > b.RetryAfter)
}

// telling is the hit that the headers describe: of those that refuse the request
// the one that refuses longest, else the one that leaves least. Shadow limits
// are left out unless they are alone, and so are quota limits whose refusal
// another quota made good. -1: there is none.
func telling(hits []limiter.Hit, decisions []limiter.Decision) int {
	best, shadow := -1, -1
	quotasRefuse := allQuotasRefuse(hits, decisions)
	for i := range hits {
		h, d := &hits[i], &decisions[i]
		switch {
		case h.Shadow:
			if shadow < 0 || d.Remaining < decisions[shadow].Remaining {
				shadow = i
			}
		case h.Quota && !d.Allowed && !quotasRefuse:
		case best < 0 || stricter(d, &decisions[best]):
			best = i
		}
	}
	if best < 0 {
		return shadow
	}
	return best
}

func allQuotasRefuse(hits []limiter.Hit, decisions []limiter.Decision) bool {
	for i := range hits {
		if hits[i].Quota && !hits[i].Shadow && !hits[i].Refund && decisions[i].Allowed {
			return false
		}
	}
	return true
}
