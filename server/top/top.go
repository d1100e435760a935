// Package top remembers who was refused most often in the last minutes, in
// bounded memory whatever clients send.
//
// It is a Space-Saving sketch (Metwally, Agrawal, El Abbadi 2005): it has room for
// so many counters, and a new one takes the place of the least refused, with that
// one's count as its error. Whoever had more than a share of 1/size of all refusals
// is in it for certain.
package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"weir/rules"
)

// Options configure a Top. The zero value is its default.
type Options struct {
	Size   int              // counters that it has room for; 0: DefaultSize
	Period time.Duration    // it tells of the last one to two of these; 0: DefaultPeriod
	Now    func() time.Time // nil: time.Now
}

// Defaults of Options.
const (
	DefaultSize   = 1000
	DefaultPeriod = 5 * time.Minute
)

// MaxText is how much of the keys and values of a counter is kept, in bytes: what is
// longer is cut.
const MaxText = 512

// Top counts refusals. It is safe for concurrent use. A nil *Top counts none.
type Top struct {
	opts Options
	seed maphash.Seed

	mu       sync.Mutex
	now, old *sketch
	since    time.Time // of now
	oldSince time.Time
}

// Refusal is a request that a counter refused.
type Refusal struct {
	Counter []byte // its identity, such as the key of its first limit
	Domain  string
	Rule    string // "": a limit that the request brought itself
	Entries []rules.Entry
}

// Counter is one that was refused often.
type Counter struct {
	Domain, Rule string
	Entries      []rules.Entry // of the last refusal, cut to MaxText in all
	Refused      uint64        // so often at least
	Error        uint64        // and at most so often more
	Last         time.Time
}

// New returns an empty Top.
func New(opts Options) *Top {
	opts.Size = cmp.Or(opts.Size, DefaultSize)
	opts.Period = cmp.Or(opts.Period, DefaultPeriod)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	now := opts.Now()
	return &Top{opts: opts, seed: maphash.MakeSeed(), now: newSketch(opts.Size), old: newSketch(opts.Size), since: now, oldSince: now}
}

// Add counts a refusal. It keeps nothing of it, and allocates nothing for a counter
// that it knows.
func (t *Top) Add(r *Refusal) {
	if t == nil {
		return
	}
	key := maphash.Bytes(t.seed, r.Counter)
	now := t.opts.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.now.add(key, r, now)
}

// turn begins a new sketch when the period is over.
func (t *Top) turn(now time.Time) {
	age := now.Sub(t.since)
	if age < t.opts.Period {
		return
	}
	t.old, t.now = t.now, t.old
	t.now.clear()
	t.oldSince, t.since = t.since, now
	if age >= 2*t.opts.Period { // nothing happened for so long
		t.old.clear()
		t.oldSince = now
	}
}

// Top lists the counters of a domain ("": of all) that were refused most often, the
// first so many, and since when.
func (t *Top) Top(domain string, n int) (counters []Counter, since time.Time) {
	if t == nil {
		return nil, time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(t.opts.Now())
	var all []found
	for i := range t.now.slots {
		s := &t.now.slots[i]
		f := found{slot: s, refused: s.count - s.err, err: s.err}
		if at, ok := t.old.at[s.key]; ok {
			before := &t.old.slots[at]
			f.refused, f.err = f.refused+before.count-before.err, f.err+before.err
		} else {
			f.err += t.old.least()
		}
		all = append(all, f)
	}
	for i := range t.old.slots {
		s := &t.old.slots[i]
		if _, ok := t.now.at[s.key]; !ok {
			all = append(all, found{slot: s, refused: s.count - s.err, err: s.err + t.now.least()})
		}
	}
	all = slices.DeleteFunc(all, func(f found) bool { return domain != "" && f.slot.domain != domain })
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(b.slot.last.UnixNano(), a.slot.last.UnixNano()), cmp.Compare(a.slot.key, b.slot.key))
	})
	for _, f := range all[:max(0, min(n, len(all)))] {
		counters = append(counters, Counter{
			Domain: f.slot.domain, Rule: f.slot.rule, Entries: f.slot.entries(),
			Refused: f.refused, Error: f.err, Last: f.slot.last,
		})
	}
	return counters, t.oldSince
}

// found is a counter of both sketches.
type found struct {
	slot         *slot
	refused, err uint64
}
