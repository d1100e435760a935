// Package simulate rehearses rule sets on requests of the past, on their own time: who
// would have been refused, by which rule, and what other limits would have done.
//
//	Add(request): rules.Set.Plan → limiter.Terms → limiter.Memory, with the log's clock → tallies
//	Report:       what was counted, and other limits tried on the same hits (what-ifs)
//
// A Report is what it finds, as text, JSON or a page; a live server's counts of what its
// shadow rules would refuse make one too.
package simulate

import (
	"context"
	"fmt"
	"math"
	"time"

	"weir/limiter"
	"weir/rules"
)

// NamedSet is a rule set, and what to call it.
type NamedSet struct {
	Name string
	Set  *rules.Set
}

// Options configures a Simulation. Sets is required; the zero value of the rest is its
// default.
type Options struct {
	Sets       []NamedSet
	ChargeEach bool          // as limiter.Options has it
	Deadline   time.Duration // how long callers wait for an answer, which bounds what leaky buckets hold; 0: for ever
	AtMost     float64       // the share of requests that the tightest limits may refuse
	Top        int           // how many counters are told of each rule; 0: DefaultTop
	Suggest    bool          // the limits of the sets are only where to look for the tightest

	// Decided, unless nil, is told of each decision of each set, by its place in Sets.
	Decided func(set int, at time.Time, passes bool)
}

// DefaultTop is how many counters are told of each rule.
const DefaultTop = 5

// Simulation replays requests against rule sets, each with counters of its own. It is
// not safe for concurrent use.
type Simulation struct {
	opts           Options
	replays        []*replay
	requests       uint64
	from, to       time.Time
	second, minute rate
}

// New returns a Simulation that has met no request.
func New(opts Options) *Simulation {
	if opts.Top == 0 {
		opts.Top = DefaultTop
	}
	s := &Simulation{opts: opts, second: rate{unit: 1}, minute: rate{unit: 60}}
	for _, set := range opts.Sets {
		s.replays = append(s.replays, newReplay(set, &opts))
	}
	return s
}

// Close lets go of what the simulation keeps outside of memory.
func (s *Simulation) Close() {
	for _, r := range s.replays {
		r.hits.close()
	}
}

// Add decides a request. They come in the order of time.
func (s *Simulation) Add(at time.Time, req *rules.Request) error {
	if s.requests == 0 {
		s.from = at
	}
	s.requests++
	s.to = at
	seconds := at.Unix()
	s.second.add(seconds)
	s.minute.add(seconds)
	for i, r := range s.replays {
		passes, err := r.add(at, req)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if s.opts.Decided != nil {
			s.opts.Decided(i, at, passes)
		}
	}
	return nil
}

// replay is the requests against one rule set.
type replay struct {
	name  string
	set   *rules.Set
	opts  *Options
	terms limiter.Terms
	store *limiter.Memory
	now   time.Time
	swept int // counters that were left when ended ones were last removed
	plan  rules.Plan

	tallies  []tally // by Rule.Index
	limits   []*limitTally
	counters counters
	hits     spool
	series   series

	matched, refused, shadow, held uint64
	longest                        time.Duration
}

// tally is what became of the requests that met a rule.
type tally struct {
	asked, refused  uint64 // descriptors that matched it; those that one of its limits refused
	limits          []uint32
	refusing, busy  ranking
	counters        uint64
	countersRefused uint64
}

// limitTally is a limit of a rule that was met.
type limitTally struct {
	limit          limiter.Limit
	asked, refused uint64
}

func newReplay(set NamedSet, opts *Options) *replay {
	r := &replay{name: set.Name, set: set.Set, opts: opts, counters: newCounters()}
	_, n := set.Set.Size()
	r.tallies = make([]tally, n)
	r.store = limiter.NewMemory(limiter.MemoryOptions{
		Options:     limiter.Options{ChargeEach: opts.ChargeEach},
		MaxCounters: math.MaxInt, // those of the log are all there are
		Now:         func() time.Time { return r.now },
	})
	r.terms = limiter.Terms{Patience: func() time.Duration { return patience(opts.Deadline) }}
	return r
}

// patience is how long a caller with such a deadline can wait for its turn, as the
// server has it.
func patience(deadline time.Duration) time.Duration {
	if deadline == 0 {
		return limiter.NoDeadline
	}
	return max(0, deadline-limiter.DeadlineMargin)
}

// add decides one request, and tells whether it passes.
func (r *replay) add(at time.Time, req *rules.Request) (bool, error) {
	r.now = at
	r.set.Plan(req, &r.plan)
	hits := r.plan.Hits
	if len(hits) == 0 {
		r.series.add(at.Unix(), false, false)
		return true, nil
	}
	r.waitForQueues(hits)
	decisions, err := r.store.Decide(context.Background(), hits)
	if err != nil {
		return false, err
	}
	r.sweep()
	passes := limiter.Passes(hits, decisions)
	shadow := false
	for i := range r.plan.Matches {
		m := &r.plan.Matches[i]
		if m.Hits == 0 {
			continue
		}
		refused, err := r.tally(at, m, decisions, req.Descriptors[i].Entries)
		if err != nil {
			return false, err
		}
		shadow = shadow || refused && m.Rule.Shadow
	}
	r.matched++
	if !passes {
		r.refused++
	}
	if shadow {
		r.shadow++
	}
	r.hold(decisions)
	r.series.add(at.Unix(), !passes, shadow)
	return passes, nil
}

// waitForQueues takes queues for what they are to the rest: requests that wait for
// their turn, however long.
func (r *replay) waitForQueues(hits []limiter.Hit) {
	r.terms.Apply(hits)
	for i := range hits {
		if rule := r.plan.Rules[i]; rule != nil && rule.Overflow != nil {
			hits[i].MaxDelay = limiter.NoDeadline
		}
	}
}

// sweep removes counters that have ended, when they may be half of all.
func (r *replay) sweep() {
	const few = 10_000
	if n := r.store.Len(); n > 2*max(r.swept, few) {
		r.store.Sweep()
		r.swept = r.store.Len()
	}
}

// hold counts a request that a leaky bucket holds.
func (r *replay) hold(decisions []limiter.Decision) {
	longest := time.Duration(0)
	for i := range decisions {
		longest = max(longest, decisions[i].Delay)
	}
	if longest > 0 {
		r.held++
		r.longest = max(r.longest, longest)
	}
}

// tally counts what a rule's limits say of a request, and whether one of them refuses.
func (r *replay) tally(at time.Time, m *rules.Match, decisions []limiter.Decision, entries []rules.Entry) (refused bool, err error) {
	t := &r.tallies[m.Rule.Index()]
	if t.limits == nil {
		r.begin(t, m.Rule)
	}
	t.asked++
	first := uint32(0)
	for i := range m.Hits {
		h := m.First + i
		hit := &r.plan.Hits[h]
		limit := t.limits[i]
		l := r.limits[limit]
		l.asked++
		if !decisions[h].Allowed {
			l.refused++
			refused = true
		}
		number := r.counters.number(hit.Key, limit)
		if i == 0 {
			first = number
		}
		if err := r.hits.add(at.UnixMicro(), number, hit.Cost); err != nil {
			return false, err
		}
	}
	c := &r.counters.list[first]
	c.add(at.Unix(), refused)
	if c.asked == 1 {
		t.counters++
	}
	if refused {
		t.refused++
		if c.refused == 1 {
			t.countersRefused++
		}
		t.refusing.note(first, c.refused, m.Rule, entries)
	}
	t.busy.note(first, c.peakOfMinutes, m.Rule, entries)
	return refused, nil
}

// begin makes the limits of a rule that is met first.
func (r *replay) begin(t *tally, rule *rules.Rule) {
	t.refusing.size, t.busy.size = r.opts.Top, r.opts.Top
	for _, l := range rule.Limits {
		t.limits = append(t.limits, uint32(len(r.limits)))
		r.limits = append(r.limits, &limitTally{limit: l})
	}
}

func nameOf(rule *rules.Rule, entries []rules.Entry) string { return rule.CounterName(entries) }
