package rules

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/limiter"
)

// Rule is what to do with the descriptors that match its path. It is immutable.
type Rule struct {
	Name   string // "" where none is given
	Domain string
	Path   string // such as "endpoint=/a, remote_address=*"
	Place  string // file:line:col

	Limits    []limiter.Limit
	Shadow    bool // counted and reported, never refuses
	Quota     bool // refuses only with all other quota rules of a request
	Unlimited bool // never refuses, counts nothing
	Exempt    bool // the whole request passes, and charges nothing

	Overflow limiter.Key // the identity of the queue that takes what is over the limit (over_limit: queue); nil: none

	OnFailure      *limiter.FailurePolicy // nil: the server's
	Replaces       []string               // names of rules that do not count beside this one
	Metadata       map[string]any         // as JSON has it; not to be changed
	DetailedMetric bool
	ValueToMetric  bool

	path      []step
	counters  []counterID // one for each limit
	variables []variable  // whose values tell the counters of a limit apart
	policy    limiter.FailurePolicy

	file        string
	replacesAt  place
	index       int
	tellsValues bool
}

// Index numbers the rules of a Set, from 0 to the number of its rules, less one. It
// changes from one Set to the next.
func (r *Rule) Index() int { return r.index }

// Label is what to call the rule: its name, or else its path.
func (r *Rule) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Path
}

// QueueCounter is the key of the one counter of a rule that has an Overflow.
func (r *Rule) QueueCounter() limiter.Key { return r.appendKey(nil, r.counters[0], nil) }

// variable is an entry whose value is part of the counter's identity.
type variable struct {
	entry int
	mask  mask
}

// newRule completes a draft with the server's defaults.
func newRule(options Options, file string, d *draft) *Rule {
	draft := d.rule
	r := &Rule{
		Name: draft.name, Domain: d.domain, Path: pathText(d.path),
		Place:  Fault{File: file, Line: draft.at.line, Col: draft.at.col}.place(),
		Shadow: draft.shadow, Quota: draft.quota, Unlimited: draft.unlimited, Exempt: draft.exempt,
		OnFailure: draft.onFailure, Replaces: draft.replaces, Metadata: draft.metadata,
		DetailedMetric: draft.detailedMetric, ValueToMetric: draft.valueToMetric,
		path: d.path, policy: options.OnFailure,
		file: file, replacesAt: draft.replacesAt,
	}
	if draft.onFailure != nil {
		r.policy = *draft.onFailure
	}
	for _, l := range draft.limits {
		limit := l.Limit
		limit.Lease = draft.lease
		limit.CountDenied = options.CountDenied && !draft.queue || limit.Algorithm == limiter.SlidingWindowLog
		if l.countDenied != nil {
			limit.CountDenied = *l.countDenied
		}
		r.Limits = append(r.Limits, limit)
	}
	r.counters = counterIDs(d.domain, d.path, r.Limits, options.generation(d.domain, d.path))
	if draft.queue {
		r.Overflow = queueKey(d.domain, d.path)
	}
	for i, s := range d.path {
		r.tellsValues = r.tellsValues || r.told(&d.path[i])
		if s.value.kind != exactValue && !s.share {
			r.variables = append(r.variables, variable{entry: i, mask: s.own.or(draft.mask).or(s.defaults)})
		}
	}
	return r
}

// pathText writes a path for people.
func pathText(path []step) string {
	var text strings.Builder
	for i := range path {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(readable(path[i].key))
		text.WriteByte('=')
		text.WriteString(readable(path[i].value.text))
	}
	return text.String()
}

// readable quotes what would be hard to read, or to tell apart, in a path.
func readable(text string) string {
	misleads := func(r rune) bool {
		return !strconv.IsPrint(r) || r == utf8.RuneError || strings.ContainsRune(`,= "\`, r)
	}
	if text == "" || strings.ContainsFunc(text, misleads) {
		return strconv.Quote(text)
	}
	return text
}
