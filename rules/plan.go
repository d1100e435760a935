package rules

import (
	"slices"

	"weir/limiter"
)

// Plan fills p with what the set makes of a request. It allocates nothing once
// p has met requests of that size.
//
// A descriptor with a limit of its own (Override) has that limit alone, in a
// domain that has rules: the rule that matches it says nothing but exempt.
func (s *Set) Plan(req *Request, p *Plan) {
	p.Exempt = false
	p.Matches, p.Hits, p.Rules, p.keys = p.Matches[:0], p.Hits[:0], p.Rules[:0], p.keys[:0]
	p.replacing = p.replacing[:0]
	d := s.domains[req.Domain]
	for i := range req.Descriptors {
		p.Matches = append(p.Matches, Match{})
		if d != nil {
			p.match(d, &req.Descriptors[i], &p.Matches[i])
		}
	}
	if p.Exempt || d == nil {
		return
	}
	p.dropReplaced()
	for i := range req.Descriptors {
		p.plan(s, d, req, i)
	}
}

// match finds the rule of a descriptor.
func (p *Plan) match(d *domain, descriptor *Descriptor, m *Match) {
	if len(descriptor.Entries) == 0 {
		return
	}
	r := d.ruleOf(d.find(descriptor.Entries))
	if r == nil {
		return
	}
	switch {
	case r.Exempt:
		p.Exempt = true
	case descriptor.Override != nil:
		return
	case len(r.Replaces) > 0 && !slices.Contains(p.replacing, r):
		p.replacing = append(p.replacing, r)
	}
	m.Rule = r
}

// dropReplaced takes away the rules that others replace. All that match count
// for that, also those that are replaced themselves.
func (p *Plan) dropReplaced() {
	if len(p.replacing) == 0 {
		return
	}
	for i := range p.Matches {
		m := &p.Matches[i]
		if m.Rule == nil || m.Rule.Name == "" {
			continue
		}
		for _, by := range p.replacing {
			if slices.Contains(by.Replaces, m.Rule.Name) {
				m.Rule = nil
				break
			}
		}
	}
}

// plan appends the hits of the i-th descriptor.
func (p *Plan) plan(s *Set, d *domain, req *Request, i int) {
	descriptor, m := &req.Descriptors[i], &p.Matches[i]
	m.First = len(p.Hits)
	hit := limiter.Hit{Cost: req.cost(descriptor), Refund: descriptor.Refund, OnFailure: s.options.OnFailure}
	if o := descriptor.Override; o != nil && len(descriptor.Entries) > 0 {
		start := len(p.keys)
		p.keys = o.appendKey(p.keys, d.overrides, descriptor.Entries)
		hit.Key = p.keyFrom(start)
		hit.Limit = o.limit
		hit.Limit.CountDenied = s.options.CountDenied
		p.add(m, nil, hit)
		return
	}
	r := m.Rule
	if r == nil {
		return
	}
	m.Unlimited = r.Unlimited
	hit.Shadow, hit.Quota, hit.OnFailure = r.Shadow, r.Quota, r.policy
	for j := range r.Limits {
		start := len(p.keys)
		p.keys = r.appendKey(p.keys, r.counter(j), descriptor.Entries)
		hit.Key = p.keyFrom(start)
		hit.Limit = r.Limits[j]
		hit.Overflow = r.Overflow
		p.add(m, r, hit)
	}
}

func (p *Plan) add(m *Match, r *Rule, hit limiter.Hit) {
	p.Hits = append(p.Hits, hit)
	p.Rules = append(p.Rules, r)
	m.Hits++
}

// keyFrom is the key that was appended last. It stays as it is when more keys
// move p.keys to a larger array.
func (p *Plan) keyFrom(start int) limiter.Key {
	return limiter.Key(p.keys[start:len(p.keys):len(p.keys)])
}
