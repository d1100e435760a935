package metrics

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"weir/rules"
)

// tally counts decisions by outcome.
type tally [outcomeCount]atomic.Uint64

func (t *tally) add(other *tally) {
	for o := range t {
		t[o].Add(other[o].Load())
	}
}

// ruleName is a rule's labels. Rules of a domain with the same name count together.
type ruleName struct{ domain, rule string }

func nameOf(r *rules.Rule) ruleName { return ruleName{text(r.Domain), text(r.Label())} }

// ruleCounters is what is counted of a rule, over all rule sets that have it.
type ruleCounters struct {
	name  ruleName
	since time.Time // when it was met first
	in    *domainCounters
	all   tally
	begun atomic.Uint64 // counters
	each  valueTable
}

// domainCounters is what is counted of a domain that has rules, or of all others.
type domainCounters struct {
	name     string
	codes    [codeCount]atomic.Uint64
	override atomic.Pointer[ruleCounters] // of limits that requests brought themselves; nil: there were none
	gone     tally                        // of rules that the domain has no more
}

func (d *domainCounters) errors() (n uint64) {
	for code := range d.codes {
		if code != 0 && code != codeOverLimit {
			n += d.codes[code].Load()
		}
	}
	return n
}

// table finds the counters of a rule set without a lock, and those of its rules
// without a hash.
type table struct {
	set     *rules.Set
	domains map[string]*domainCounters
	rules   []atomic.Pointer[ruleCounters] // by Rule.Index; nil: not asked for yet
}

// follow makes the table of a rule set that has come into force, and lets go of what
// it does not have.
func (m *Metrics) follow(set *rules.Set) {
	if t := m.table.Load(); t != nil && t.set == set {
		return
	}
	domains, names := map[string]bool{noDomain: true}, map[ruleName]bool{}
	for _, name := range set.Domains() {
		domains[text(name)] = true
		names[ruleName{text(name), override}] = true
	}
	all := slices.Collect(set.Rules(""))
	for _, r := range all {
		names[nameOf(r)] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.table.Load(); t != nil && t.set == set || m.opts.Rules.Current() != set {
		return // another was faster, or a newer one comes soon
	}
	for name, c := range m.rules {
		if !names[name] {
			m.forget(c)
		}
	}
	for name, d := range m.domains {
		if !domains[name] {
			m.gone.add(&d.gone)
			m.goneErrors += d.errors()
			delete(m.domains, name)
		}
	}
	t := &table{set: set, domains: map[string]*domainCounters{}, rules: make([]atomic.Pointer[ruleCounters], len(all))}
	for _, name := range set.Domains() {
		t.domains[name] = m.domain(text(name))
	}
	m.table.Store(t)
}

// forget lets go of a rule that is in force no more. m.mu is held.
func (m *Metrics) forget(c *ruleCounters) {
	c.in.gone.add(&c.all)
	m.values.Add(-c.each.close())
	m.ingested.DeletePartialMatch(prometheus.Labels{"domain": c.name.domain, "rule": c.name.rule})
	delete(m.rules, c.name)
}

// domain returns the counters of a label. m.mu is held.
func (m *Metrics) domain(label string) *domainCounters {
	d := m.domains[label]
	if d == nil {
		d = &domainCounters{name: label}
		m.domains[label] = d
	}
	return d
}

// countersOf returns the counters of a rule of a set, of which the table may not be
// there yet.
func (m *Metrics) countersOf(set *rules.Set, r *rules.Rule) *ruleCounters {
	t := m.table.Load()
	if t.set == set {
		if c := t.rules[r.Index()].Load(); c != nil {
			return c
		}
	}
	c := m.counters(set, nameOf(r))
	if t.set == set {
		t.rules[r.Index()].Store(c)
	}
	return c
}

// overridesOf returns the counters of the limits that requests for a domain brought
// themselves.
func (m *Metrics) overridesOf(set *rules.Set, domain string) *ruleCounters {
	d := m.table.Load().domains[domain]
	if d != nil {
		if c := d.override.Load(); c != nil {
			return c
		}
	}
	c := m.counters(set, ruleName{text(domain), override})
	if d == c.in {
		d.override.Store(c)
	}
	return c
}

// counters returns the counters of a name. A rule that is in force no more counts for
// nobody, so that what is let go of does not come back.
func (m *Metrics) counters(set *rules.Set, name ruleName) *ruleCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.rules[name]
	if c == nil {
		c = &ruleCounters{name: name, since: time.Now()}
		if m.opts.Rules.Current() != set {
			c.in, c.each.closed = &domainCounters{name: name.domain}, true
			return c
		}
		c.in = m.domain(name.domain)
		m.rules[name] = c
	}
	return c
}

// codesOf returns the counters of the domain that a request names.
func (m *Metrics) codesOf(name string) *domainCounters {
	t := m.table.Load()
	if d := t.domains[name]; d != nil {
		return d
	}
	if t.set == m.opts.Rules.Current() {
		return m.none
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.domains[text(name)]; d != nil {
		return d
	}
	return m.none
}

// Total is how often decisions in a domain came out in a way, since the start.
type Total struct {
	Domain, Outcome string
	Count           uint64
}

// Totals lists what is over 0, in no order. What domains had that are there no more is
// under "(none)".
func (m *Metrics) Totals() []Total {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := map[string]*tally{noDomain: {}}
	sums[noDomain].add(&m.gone)
	for name, d := range m.domains {
		if sums[name] == nil {
			sums[name] = new(tally)
		}
		sums[name].add(&d.gone)
	}
	for name, c := range m.rules {
		sums[name.domain].add(&c.all)
	}
	var totals []Total
	for name, sum := range sums {
		for o := range sum {
			if n := sum[o].Load(); n > 0 {
				totals = append(totals, Total{name, outcomeNames[o], n})
			}
		}
	}
	return totals
}

// OfRule lists how the decisions of a rule came out, those over 0 by the order of
// Outcomes, and since when they were counted: zero if no request has met it. Rules of a
// domain with one name count together.
func (m *Metrics) OfRule(r *rules.Rule) (totals []Total, since time.Time) {
	if m == nil {
		return nil, time.Time{}
	}
	name := nameOf(r)
	m.mu.Lock()
	c := m.rules[name]
	m.mu.Unlock()
	if c == nil {
		return nil, time.Time{}
	}
	for o := range c.all {
		if n := c.all[o].Load(); n > 0 {
			totals = append(totals, Total{name.domain, outcomeNames[o], n})
		}
	}
	return totals, c.since
}

// Errors is how many requests were answered with an error, since the start.
func (m *Metrics) Errors() uint64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.goneErrors
	for _, d := range m.domains {
		n += d.errors()
	}
	return n
}

// maxText is how long a label may be, in bytes.
const maxText = 256

// text is a label for a text: valid UTF-8 and not too long. Long ones stay apart by a
// hash.
func text(s string) string {
	if len(s) <= maxText && utf8.ValidString(s) {
		return s
	}
	if len(s) > maxText {
		h := fnv.New64a()
		_, _ = h.Write([]byte(s))
		s = s[:maxText-20] + fmt.Sprintf("…%016x", h.Sum64())
	}
	return strings.ToValidUTF8(s, "�")
}
