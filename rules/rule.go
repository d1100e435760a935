package rules

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/limiter"
)

// Rule is what to do with the descriptors that match its path. It is immutable. Its
// fields are in parts, since most rules have some of them in common with others.
type Rule struct {
	*stated      // Path
	*particulars // Name, Limits
	*does        // Domain and all others

	id    counterID // of the first limit's counters; zero without limits
	more  uint32    // where those of the others begin, in domain.counters
	index uint32
}

// particulars are what the rule is called and what it allows.
type particulars struct {
	Name   string // "" where none is given
	Limits []limiter.Limit
}

// does is what else a rule does.
type does struct {
	Domain    string
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

	variables   []variable // whose values tell the counters of a limit apart
	policy      limiter.FailurePolicy
	replacesAt  place
	tellsValues bool
	in          *domain
}

// Place is where the rule stands: file:line:col.
func (r *Rule) Place() string { return r.place() }

// counter is the identity of the i-th limit's counters.
func (r *Rule) counter(i int) *counterID {
	if i == 0 {
		return &r.id
	}
	return &r.does.in.counters[int(r.more)+i-1]
}

// counters are those of all its limits.
func (r *Rule) counters() []counterID {
	ids := make([]counterID, len(r.Limits))
	for i := range ids {
		ids[i] = *r.counter(i)
	}
	return ids
}

// Index numbers the rules of a Set, from 0 to the number of its rules, less one. It
// changes from one Set to the next.
func (r *Rule) Index() int { return int(r.index) }

// Label is what to call the rule: its name, or else its path.
func (r *Rule) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Path
}

// QueueCounter is the key of the one counter of a rule that has an Overflow.
func (r *Rule) QueueCounter() limiter.Key { return r.appendKey(nil, r.counter(0), nil) }

// variable is an entry whose value is part of the counter's identity.
type variable struct {
	entry int
	mask  mask
}

// completer completes drafts with the server's defaults, and has what they share
// made once.
type completer struct {
	options     Options
	particulars map[particularsOf]*particulars // of rules without a name
	does        map[doesOf]*does               // the last one of each
	variables   []variable                     // of the rule at hand, as are ids
	ids         []counterID
}

type particularsOf struct {
	limits *limitDraft // the first of them
	lease  uint64
	queue  bool
}

type doesOf struct {
	draft *ruleDraft
	in    *domain
}

func newCompleter(options Options) *completer {
	return &completer{options: options, particulars: map[particularsOf]*particulars{}, does: map[doesOf]*does{}}
}

// rule makes the rule that the draft at a path is, and its counters.
func (c *completer) rule(in *domain, at *stated, draft *statedDraft) Rule {
	r := Rule{stated: at, particulars: c.particularsOf(draft), does: c.doesOf(in, at.path, draft.rule), more: uint32(len(in.counters))}
	c.ids = appendCounterIDs(c.ids[:0], r.Domain, at.path, r.Limits, c.options.generation(r.Domain, at.path))
	if len(c.ids) > 0 {
		r.id = c.ids[0]
		in.counters = append(in.counters, c.ids[1:]...)
	}
	return r
}

func (c *completer) particularsOf(draft *statedDraft) *particulars {
	var of particularsOf
	if len(draft.limits) > 0 {
		of = particularsOf{&draft.limits[0], draft.rule.lease, draft.rule.queue}
	}
	shared := c.particulars[of]
	if shared == nil {
		shared = &particulars{Limits: c.limits(draft)}
		c.particulars[of] = shared
	}
	if draft.name == "" {
		return shared
	}
	return &particulars{draft.name, shared.Limits}
}

func (c *completer) limits(draft *statedDraft) []limiter.Limit {
	if len(draft.limits) == 0 {
		return nil
	}
	limits := make([]limiter.Limit, 0, len(draft.limits))
	for _, l := range draft.limits {
		limit := l.Limit
		limit.Lease = draft.rule.lease
		limit.CountDenied = c.options.CountDenied && !draft.rule.queue || limit.Algorithm == limiter.SlidingWindowLog
		if l.countDenied != nil {
			limit.CountDenied = *l.countDenied
		}
		limits = append(limits, limit)
	}
	return limits
}

func (c *completer) doesOf(in *domain, path []part, draft *ruleDraft) *does {
	c.variables = c.variables[:0]
	tells := false
	for i := range path {
		s := &path[i]
		tells = tells || told(s, draft.detailedMetric)
		if s.kind != exactValue && !s.share {
			c.variables = append(c.variables, variable{entry: i, mask: s.own.or(draft.mask).or(s.defaults)})
		}
	}
	last := c.does[doesOf{draft, in}]
	if last != nil && last.Overflow == nil && last.tellsValues == tells && slices.Equal(last.variables, c.variables) {
		return last
	}
	d := &does{
		Domain: in.name, Shadow: draft.shadow, Quota: draft.quota, Unlimited: draft.unlimited, Exempt: draft.exempt,
		OnFailure: draft.onFailure, Replaces: draft.replaces, Metadata: draft.metadata,
		DetailedMetric: draft.detailedMetric, ValueToMetric: draft.valueToMetric,
		variables: slices.Clone(c.variables), policy: c.options.OnFailure,
		replacesAt: draft.replacesAt, tellsValues: tells, in: in,
	}
	if draft.onFailure != nil {
		d.policy = *draft.onFailure
	}
	if draft.queue {
		d.Overflow = queueKey(in.name, path)
	}
	c.does[doesOf{draft, in}] = d
	return d
}

// pathText writes a path for people.
func pathText(path []part) string {
	var text strings.Builder
	writePath(&text, path)
	return text.String()
}

func writePath(text *strings.Builder, path []part) {
	for i := range path {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(readable(path[i].key))
		text.WriteByte('=')
		text.WriteString(readable(path[i].text))
	}
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
