package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/limiter"
)

// Change is a rule that two sets do not have alike, or the order of rules.
type Change struct {
	Domain string
	Path   string   // of the rule; "": the change is of the domain's order
	From   *Rule    // nil: the rule is new
	To     *Rule    // nil: the rule is gone
	Gone   []string // what the rule said, a line each, and says no more
	New    []string // what it says now
}

// Diff returns what changes for requests where one set takes the place of
// another, by domain and path. Files, comments and spelling do not matter.
func Diff(from, to *Set) []Change {
	var changes []Change
	names := map[string]bool{}
	for name := range from.domains {
		names[name] = true
	}
	for name := range to.domains {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		changes = append(changes, diffDomain(name, from.domains[name].list(), to.domains[name].list())...)
	}
	return changes
}

// list returns the rules of a domain that may not exist.
func (d *domain) list() []*Rule {
	if d == nil {
		return nil
	}
	rules := make([]*Rule, len(d.rules))
	for i := range rules {
		rules[i] = &d.rules[i]
	}
	return rules
}

func diffDomain(name string, from, to []*Rule) []Change {
	before, after := byPath(from), byPath(to)
	paths := maps.Clone(before)
	maps.Copy(paths, after)
	var changes []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		c := Change{Domain: name, Path: path, From: before[path], To: after[path]}
		was, is := c.From.says(nil), c.To.says(c.From)
		c.Gone, c.New = without(was, c.To.says(nil)), without(is, was)
		if c.From == nil || c.To == nil || len(c.Gone)+len(c.New) > 0 {
			changes = append(changes, c)
		}
	}
	if !slices.Equal(ordered(from, after), ordered(to, before)) {
		changes = append(changes, Change{Domain: name})
	}
	return changes
}

func byPath(rules []*Rule) map[string]*Rule {
	paths := make(map[string]*Rule, len(rules))
	for _, r := range rules {
		paths[r.Path] = r
	}
	return paths
}

// ordered returns the paths of the rules whose order may matter, where several
// fit a value, if the other set has them too.
func ordered(rules []*Rule, other map[string]*Rule) []string {
	var paths []string
	for _, r := range rules {
		byOrder := func(s part) bool { return s.kind == wildcard || s.kind == regularExpression }
		if slices.ContainsFunc(r.path, byOrder) && other[r.Path] != nil {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// without returns the lines that others does not have, each as often as it is
// missing there. What a line says in brackets is not compared.
func without(lines, others []string) []string {
	have := map[string]int{}
	for _, line := range others {
		have[bare(line)]++
	}
	var missing []string
	for _, line := range lines {
		if have[bare(line)]--; have[bare(line)] < 0 {
			missing = append(missing, line)
		}
	}
	return missing
}

func bare(line string) string { return strings.TrimSuffix(line, anew) }

// anew ends the line of a limit of which nothing is known yet.
const anew = " (counts anew)"

// says returns all that a rule says, a line each. A limit whose counters before
// did not have says so.
func (r *Rule) says(before *Rule) []string {
	if r == nil {
		return nil
	}
	var lines []string
	add := func(on bool, format string, args ...any) {
		if on {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(r.Name != "", "name %s", readable(r.Name))
	add(r.Exempt, "exempt")
	add(r.Unlimited, "unlimited")
	for i, l := range r.Limits {
		note := ""
		if before != nil && !slices.Contains(before.counters(), *r.counter(i)) {
			note = anew
		}
		add(true, "limit %s%s", limitText(l), note)
	}
	add(r.Overflow != nil, "over_limit queue")
	add(r.Shadow, "shadow_mode")
	add(r.Quota, "quota_mode")
	for _, v := range r.variables {
		add(v.mask.set(), "mask of %s: %s", readable(r.path[v.entry].key), v.mask)
	}
	for _, s := range r.path {
		add(s.share, "share_threshold of %s", readable(s.key))
	}
	add(r.OnFailure != nil, "on_store_failure %v", r.failure())
	for _, name := range r.Replaces {
		add(true, "replaces %s", readable(name))
	}
	metadata, _ := json.Marshal(r.Metadata) // it was made from YAML: it can be written as JSON
	add(len(r.Metadata) > 0, "metadata %s", metadata)
	add(r.DetailedMetric, "detailed_metric")
	add(r.ValueToMetric, "value_to_metric")
	return lines
}

// failure is what the rule itself says of a store's failure.
func (r *Rule) failure() limiter.FailurePolicy {
	if r.OnFailure == nil {
		return 0
	}
	return *r.OnFailure
}

// String writes the change for a terminal: + a new rule, - one that is gone,
// ~ one that says something else.
func (c Change) String() string {
	sign, rule := "~", c.To
	switch {
	case c.Path == "":
		return fmt.Sprintf("~ domain %s: the order of patterns, which decides where several fit\n", readable(c.Domain))
	case c.From == nil:
		sign = "+"
	case c.To == nil:
		sign, rule = "-", c.From
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s domain %s: %s  (%s)\n", sign, readable(c.Domain), c.Path, rule.Place())
	for _, line := range c.Gone {
		fmt.Fprintf(&text, "    - %s\n", line)
	}
	for _, line := range c.New {
		fmt.Fprintf(&text, "    + %s\n", line)
	}
	return text.String()
}
