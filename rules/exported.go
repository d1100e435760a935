package rules

import "weir/limiter"

// Keys are those of the entries that a descriptor has which matches the rule, in
// their order.
func (r *Rule) Keys() []string {
	keys := make([]string, len(r.path))
	for i := range r.path {
		keys[i] = r.path[i].key
	}
	return keys
}

// Pattern is a value as rules write it: exact, with *, ~ and a regular expression,
// or cidr: and an address range.
type Pattern struct{ pattern pattern }

// ParsePattern reads a value of a rule.
func ParsePattern(text string) (Pattern, error) {
	p, err := parsePattern(text)
	return Pattern{p}, err
}

// Matches tells whether the value is one that a rule with this pattern takes.
func (p *Pattern) Matches(value string) bool { return p.pattern.matches(value) }

// LimitText writes a limit for people: 5 per 1m, token_bucket, burst 10.
func LimitText(l limiter.Limit) string { return limitText(l) }

// CounterName is what to call the counter of a descriptor that matches the rule: the
// rule's path, with the values that tell its counters apart; of an address that is
// masked, the network.
func (r *Rule) CounterName(entries []Entry) string {
	var b []byte
	for i := range r.path {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, readable(r.path[i].key)...), '=')
		text := r.path[i].text
		for _, v := range r.variables {
			if v.entry == i {
				text = v.told(entries[i].Value)
			}
		}
		b = append(b, readable(text)...)
	}
	return string(b)
}

// told is the value, or the network that it is masked to.
func (v variable) told(value string) string {
	if v.mask.set() {
		if addr, ok := parseAddress(value); ok {
			network := v.mask.network(addr)
			if network.IsSingleIP() {
				return network.Addr().String()
			}
			return network.String()
		}
	}
	return value
}
