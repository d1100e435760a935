package metrics

import (
	"sync"
	"unicode/utf8"

	"weir/rules"
)

// maxValue is how many bytes of an entry's value a label has.
const maxValue = 64

// valueTable counts a rule's decisions for each descriptor, of those that came first.
// There is room for Options.MaxValues over all rules; the others count together. So
// whatever clients send, it takes no more memory.
type valueTable struct {
	mu     sync.RWMutex
	known  map[string]*tally
	closed bool // takes no more: its rule has gone
	other  tally
}

// close returns how many descriptors were told apart.
func (v *valueTable) close() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	return int64(len(v.known))
}

// tallyOf returns the counters of a descriptor of the rule.
func (m *Metrics) tallyOf(c *ruleCounters, r *rules.Rule, entries []rules.Entry) *tally {
	var buffer [2 * maxText]byte
	b := r.AppendMetric(buffer[:0], entries, maxValue)
	v := &c.each
	if len(b) > maxText || !utf8.Valid(b) {
		b = []byte(text(string(b)))
	}
	v.mu.RLock()
	t := v.known[string(b)]
	v.mu.RUnlock()
	switch {
	case t != nil:
		return t
	case m.values.Load() >= int64(m.opts.MaxValues): // no more than a look: strangers come here often
		return &v.other
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if t := v.known[string(b)]; t != nil {
		return t
	}
	if v.closed {
		return &v.other
	}
	if m.values.Add(1) > int64(m.opts.MaxValues) {
		m.values.Add(-1)
		return &v.other
	}
	if v.known == nil {
		v.known = map[string]*tally{}
	}
	t = new(tally)
	v.known[string(b)] = t
	return t
}
