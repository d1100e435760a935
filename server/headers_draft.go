package server

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"weir/limiter"
	"weir/rules"
)

// maxPolicies is how many limits of a request the headers list at most: a
// request may have thousands, and headers have an end.
const maxPolicies = 16

// listed is a limit that the headers list.
type listed struct {
	policy  policy
	hit     int
	ordinal int // of the limit in its rule
}

// list returns the limits that clients are told of, in the order of the
// request: each policy once, or each of its counters if partitions are told
// apart. Where a policy has several counters, the strictest stands for it. The
// told-th hit is always among them. Names are unique.
func (s *Service) list(c *call, decisions []limiter.Decision, told int, partitions bool) []listed {
	p := &c.plan
	out := make([]listed, 0, min(len(p.Hits), maxPolicies))
	quotasRefuse := allQuotasRefuse(p.Hits, decisions)
	for m := range p.Matches {
		match := &p.Matches[m]
		for i := match.First; i < match.First+match.Hits; i++ {
			h := &p.Hits[i]
			if h.Shadow != p.Hits[told].Shadow || h.Quota && !decisions[i].Allowed && !quotasRefuse {
				continue
			}
			at, found := find(p, out, i, i-match.First, partitions)
			switch {
			case found:
				if i == told || out[at].hit != told && stricter(&decisions[i], &decisions[out[at].hit]) {
					out[at].hit = i
				}
			case len(out) < maxPolicies:
				out = append(out, listed{s.policyOf(p, i, i-match.First), i, i - match.First})
			case i == told:
				out[len(out)-1] = listed{s.policyOf(p, i, i-match.First), i, i - match.First}
			}
		}
	}
	uniqueNames(p, out)
	return out
}

// find tells where the limit of the i-th hit is listed already.
func find(p *rules.Plan, in []listed, i, ordinal int, partitions bool) (at int, found bool) {
	for at := range in {
		other := in[at].hit
		switch {
		case partitions && string(p.Hits[other].Key) == string(p.Hits[i].Key):
			return at, true
		case !partitions && p.Rules[i] != nil && p.Rules[other] == p.Rules[i] && in[at].ordinal == ordinal:
			return at, true
		}
	}
	return 0, false
}

// policyOf is the policy of the i-th hit.
func (s *Service) policyOf(p *rules.Plan, i, ordinal int) policy {
	r := p.Rules[i]
	if r == nil {
		return policiesOf(nil, []limiter.Limit{p.Hits[i].Limit})[0]
	}
	return s.texts.of(s.opts.Rules.Current(), r).policies[ordinal]
}

// uniqueNames renames what has the name of another limit before it: a policy is
// known by its name.
func uniqueNames(p *rules.Plan, in []listed) {
	var seen [maxPolicies]policy
	for i := range in {
		r, l := p.Rules[in[i].hit], &in[i]
		for at := range in[:i] {
			if seen[at].name != l.policy.name || r != nil && r == p.Rules[in[at].hit] { // counters of one limit share its name
				continue
			}
			ruleName := ""
			if r != nil {
				ruleName = r.Name
			}
			l.policy = newPolicy(unused(l.policy.name, seen[:i]), ruleName, &p.Hits[l.hit].Limit)
			break
		}
		seen[i] = l.policy
	}
}

// addIETF adds RateLimit-Policy, with all limits that the request met, and
// RateLimit, with what is left of them; the limit that matters most comes first
// there. Of a refused request only those that refuse have a RateLimit: the reset
// of another one may lie after the Retry-After, where none should.
func (s *Service) addIETF(c *call, decisions []limiter.Decision, told int, partitions bool) {
	a, list := &c.answer, s.list(c, decisions, told, partitions)
	b := a.inner[:0]
	for i := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, list[i].policy.item...)
		if partitions {
			b = appendPartition(b, c.plan.Hits[list[i].hit].Key)
		}
	}
	a.headers = append(a.headers, textHeader("RateLimit-Policy", string(b)))
	b = b[:0]
	for i := range list {
		if list[i].hit == told {
			b = appendServiceLimit(b, c, &list[i], decisions, partitions)
		}
	}
	for i := range list {
		if hit := list[i].hit; hit != told && (!a.over || !decisions[hit].Allowed) {
			b = appendServiceLimit(append(b, ", "...), c, &list[i], decisions, partitions)
		}
	}
	a.headers = append(a.headers, textHeader("RateLimit", string(b)))
	a.inner = b
}

// maxInteger is the greatest that a structured field can hold.
const maxInteger = 999_999_999_999_999

// appendServiceLimit appends "posts";r=4;t=60. t is the time after which a
// refused request would pass, or else until the counter is as new; it is left
// out where it would say nothing.
func appendServiceLimit(b []byte, c *call, l *listed, decisions []limiter.Decision, partitions bool) []byte {
	d := &decisions[l.hit]
	b = append(append(b, l.policy.quoted...), ";r="...)
	b = strconv.AppendUint(b, min(d.Remaining, maxInteger), 10)
	if reset := resetOf(d, c.answer.over); reset > 0 {
		b = strconv.AppendUint(append(b, ";t="...), seconds(reset), 10)
	}
	if partitions {
		b = appendPartition(b, c.plan.Hits[l.hit].Key)
	}
	return b
}

// resetOf is how long the client of this limit should wait; 0: nothing comes of
// waiting.
func resetOf(d *limiter.Decision, over bool) time.Duration {
	if over && !d.Allowed {
		return d.RetryAfter
	}
	return d.ResetAfter
}

// appendPartition appends ;pk=:…: with 64 bits of a hash of the counter's
// identity. It tells counters apart and gives nothing away to who does not know
// what is counted.
func appendPartition(b []byte, k limiter.Key) []byte {
	sum := sha256.Sum256(k)
	b = base64.StdEncoding.AppendEncode(append(b, ";pk=:"...), sum[:8])
	return append(b, ':')
}

// The headers of Draft03.
const (
	draft03Limit     = "X-RateLimit-Limit"
	draft03Remaining = "X-RateLimit-Remaining"
	draft03Reset     = "X-RateLimit-Reset"
)

// addDraft03 adds what Envoy writes for enable_x_ratelimit_headers:
// DRAFT_VERSION_03, but that they describe the limit that refuses, that windows
// are as long as they are (Envoy leaves out the multiplier, and weeks), and that
// there is no reset where waiting cannot help.
func (s *Service) addDraft03(c *call, decisions []limiter.Decision, told int) {
	a := &c.answer
	b := strconv.AppendUint(a.inner[:0], c.plan.Hits[told].Limit.Requests, 10)
	for _, l := range s.list(c, decisions, told, false) {
		b = append(b, l.policy.old...)
	}
	a.headers = append(a.headers,
		textHeader(draft03Limit, string(b)),
		numberHeader(draft03Remaining, decisions[told].Remaining))
	a.inner = b
	d := &decisions[told]
	if reset := resetOf(d, a.over); reset > 0 || !a.over || d.Allowed {
		a.headers = append(a.headers, numberHeader(draft03Reset, seconds(reset)))
	}
}
