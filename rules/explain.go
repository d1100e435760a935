package rules

import (
	"fmt"
	"strings"

	"weir/limiter"
)

// Explanation tells which rule a descriptor meets, why, and which it nearly met.
type Explanation struct {
	Domain     string       `json:"domain"`
	Verdict    string       `json:"verdict"` // in a sentence
	Entries    []Choice     `json:"entries"` // as far as the descriptor got
	Rule       *RuleDetails `json:"rule,omitempty"`
	NearMisses []NearMiss   `json:"near_misses,omitempty"`
}

// Choice is which way an entry took.
type Choice struct {
	Entry string `json:"entry"`
	Taken *Way   `json:"taken,omitempty"` // nil: none fits
	Lost  []Way  `json:"lost,omitempty"`  // fit too, but come after the one taken

	Wanted []string `json:"wanted,omitempty"` // where none fits: what some of the rules take there
	More   int      `json:"more,omitempty"`   // how many others there are
}

// Way is a pattern that fits an entry.
type Way struct {
	Pattern string `json:"pattern"`
	Kind    string `json:"kind"` // such as "exact value" or "address range"
	Place   string `json:"place"`
}

// RuleDetails is the rule that matches.
type RuleDetails struct {
	Name     string         `json:"name,omitempty"`
	Path     string         `json:"path"`
	Place    string         `json:"place"`
	Modes    []string       `json:"modes,omitempty"` // such as exempt, unlimited, shadow_mode
	Replaces []string       `json:"replaces,omitempty"`
	Limits   []LimitDetails `json:"limits,omitempty"`

	Exempt, Unlimited, Shadow, Quota bool `json:"-"` // the modes, to compute with
}

// LimitDetails is a limit and the counter of it that the descriptor meets.
type LimitDetails struct {
	Limit  string        `json:"limit"` // such as "5 per 1m, fixed_window"
	Values limiter.Limit `json:"-"`     // the same, to compute with
	Key    limiter.Key   `json:"key"`
	Queue  limiter.Key   `json:"queue,omitempty"` // that takes what is over the limit

	Counter string `json:"counter,omitempty"` // what the store calls it, see NameCounters
}

// NearMiss is a rule that nearly matched.
type NearMiss struct {
	Path  string `json:"path"`
	Place string `json:"place"`
	Why   string `json:"why"`
}

// Explain tells what the set makes of a descriptor. It looks at every rule of
// the domain.
func (s *Set) Explain(domain string, entries []Entry) *Explanation {
	x := &Explanation{Domain: domain}
	d := s.domains[domain]
	switch {
	case d == nil:
		x.Verdict = fmt.Sprintf("domain %q has no rules: no limit%s", domain, suggestion(domain, s.Domains()))
		return x
	case len(entries) == 0:
		x.Verdict = "a descriptor with no entries has no limit"
		return x
	}
	n := x.walk(d.tree, entries)
	switch {
	case n == nil:
		x.Verdict = fmt.Sprintf("nothing fits %s: no limit", x.Entries[len(x.Entries)-1].Entry)
	case n.rule == 0 && n.levels == 0:
		x.Verdict = fmt.Sprintf("%s sets no limit: no limit", n.stated.place())
	case n.rule == 0:
		x.Verdict = fmt.Sprintf("rules go on from %s, and none ends there: no limit", x.Entries[len(x.Entries)-1].Entry)
	default:
		rule := d.ruleOf(n)
		x.Rule = rule.details(entries)
		x.Verdict = fmt.Sprintf("rule %s matches", rule.Label())
	}
	x.NearMisses = nearMisses(d.rules, x.Rule != nil, entries)
	return x
}

// NameCounters says what the store calls the counters of the rule's limits; the
// queue is nil where none takes what is over the limit.
func (x *Explanation) NameCounters(name func(key, queue limiter.Key) string) *Explanation {
	if x.Rule != nil {
		for i := range x.Rule.Limits {
			l := &x.Rule.Limits[i]
			l.Counter = name(l.Key, l.Queue)
		}
	}
	return x
}

// walk does what tree.find does, and takes notes.
func (x *Explanation) walk(t *tree, entries []Entry) *node {
	n := t.root()
	for _, entry := range entries {
		choice := Choice{Entry: readable(entry.Key) + "=" + readable(entry.Value)}
		var taken *node
		if l := t.level(n, entry.Key); l != nil {
			taken = t.take(l, entry.Value)
			nodes := t.nodesOf(l)
			for i := range nodes {
				if other := &nodes[i]; other != taken && other.matches(entry.Value) {
					choice.Lost = append(choice.Lost, other.way())
				}
			}
		}
		if taken != nil {
			way := taken.way()
			choice.Taken = &way
		}
		if taken == nil {
			choice.Wanted, choice.More = t.wanted(n, entry.Key)
			x.Entries = append(x.Entries, choice)
			return nil
		}
		x.Entries = append(x.Entries, choice)
		n = taken
	}
	return n
}

// maxWanted is how many ways on an explanation names at most.
const maxWanted = 5

// wanted are the ways on from a node: those for the key, or, if it has none, the other
// keys; and how many there are beyond those that are named.
func (t *tree) wanted(n *node, key string) (patterns []string, more int) {
	if l := t.level(n, key); l != nil {
		nodes := t.nodesOf(l)
		for i := range nodes[:min(len(nodes), maxWanted)] {
			patterns = append(patterns, nodes[i].patternText())
		}
		return patterns, len(nodes) - len(patterns)
	}
	levels := t.levelsOf(n)
	for i := range levels[:min(len(levels), maxWanted)] {
		patterns = append(patterns, readable(t.key(&levels[i]))+"=…")
	}
	return patterns, len(levels) - len(patterns)
}

func (n *node) patternText() string { return readable(n.key) + "=" + readable(n.text) }

func (n *node) way() Way {
	return Way{Pattern: n.patternText(), Kind: n.kind.String(), Place: n.stated.place()}
}

func (r *Rule) details(entries []Entry) *RuleDetails {
	details := &RuleDetails{
		Name: r.Name, Path: r.Path, Place: r.Place(), Replaces: r.Replaces,
		Exempt: r.Exempt, Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota,
	}
	for _, mode := range []struct {
		on   bool
		name string
	}{
		{r.Exempt, "exempt"}, {r.Unlimited, "unlimited"}, {r.Overflow != nil, "over_limit: queue"}, {r.Shadow, "shadow_mode"}, {r.Quota, "quota_mode"},
	} {
		if mode.on {
			details.Modes = append(details.Modes, mode.name)
		}
	}
	for i, limit := range r.Limits {
		details.Limits = append(details.Limits, LimitDetails{
			Limit:  limitText(limit),
			Values: limit,
			Key:    r.appendKey(nil, r.counter(i), entries),
			Queue:  r.Overflow,
		})
	}
	return details
}

func limitText(l limiter.Limit) string {
	window := l.Window.String()
	if l.Window.Calendar == limiter.NoCalendar {
		window = shortDuration(l.Window.Length)
	}
	text := fmt.Sprintf("%d per %s, %v", l.Requests, window, l.Algorithm)
	switch l.Algorithm {
	case limiter.TokenBucket:
		text += fmt.Sprintf(", burst %d", l.Burst)
	case limiter.LeakyBucket:
		text += fmt.Sprintf(", queue %d", l.Queue)
	}
	if l.CountDenied {
		text += ", count_denied"
	}
	if l.Lease > 0 {
		text += fmt.Sprintf(", lease %d", l.Lease)
	}
	return text
}

// wantedText says what would fit in place of an entry.
func (c *Choice) wantedText() string {
	switch {
	case len(c.Wanted) == 0:
		return "no rule goes on here"
	case c.More > 0:
		return fmt.Sprintf("rules take %s and %d more here", strings.Join(c.Wanted, ", "), c.More)
	}
	return fmt.Sprintf("rules take %s here", strings.Join(c.Wanted, ", "))
}

// String writes the explanation for a terminal, in lines.
func (x *Explanation) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "domain %s: %s\n", readable(x.Domain), x.Verdict)
	for _, c := range x.Entries {
		if c.Taken == nil {
			fmt.Fprintf(&text, "  %s: nothing fits; %s\n", c.Entry, c.wantedText())
			continue
		}
		fmt.Fprintf(&text, "  %s: takes %s, %s (%s)\n", c.Entry, c.Taken.Pattern, c.Taken.Kind, c.Taken.Place)
		for _, lost := range c.Lost {
			fmt.Fprintf(&text, "    which comes before %s, %s (%s)\n", lost.Pattern, lost.Kind, lost.Place)
		}
	}
	if r := x.Rule; r != nil {
		named := ""
		if r.Name != "" {
			named = ", named " + readable(r.Name)
		}
		fmt.Fprintf(&text, "  rule %s%s (%s)\n", r.Path, named, r.Place)
		for _, mode := range r.Modes {
			fmt.Fprintf(&text, "    %s\n", mode)
		}
		for _, name := range r.Replaces {
			fmt.Fprintf(&text, "    replaces %s\n", readable(name))
		}
		for _, l := range r.Limits {
			fmt.Fprintf(&text, "    limit %s\n", l.Limit)
			if l.Counter != "" {
				fmt.Fprintf(&text, "      counter %s\n", l.Counter)
			}
		}
	}
	for _, miss := range x.NearMisses {
		fmt.Fprintf(&text, "  nearly: %s (%s): %s\n", miss.Path, miss.Place, miss.Why)
	}
	return text.String()
}
