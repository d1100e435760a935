package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/rules"
)

// SourceOptions are how to read. Store, Prefix and URL must be set.
type SourceOptions struct {
	Store  Reader
	Prefix string       // without a slash at its end
	URL    string       // of the prefix, as it stands before a document's name in faults
	Logger *slog.Logger // nil: none
}

const (
	wait      = 30 * time.Second       // for a change, until the store is asked anew
	spacing   = 100 * time.Millisecond // between two listings, so that a burst of writes is few reloads
	idle      = 300 * time.Millisecond // after one that came soon with nothing new
	backoff   = 500 * time.Millisecond // after a failure, doubled with each further one
	backoffTo = 5 * time.Second
)

// Source is the rules beneath a prefix: each key is a YAML document, but those
// with a component that begins with a dot, and folders (keys that end in a
// slash). While a push is under way, nothing changes.
type Source struct {
	options SourceOptions
	alarm   time.Duration // that a push may take before it is taken for dead
}

var _ rules.Source = (*Source)(nil)

// NewSource returns the source of a prefix. It reads nothing yet.
func NewSource(options SourceOptions) *Source {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	options.Logger = options.Logger.With("source", options.URL)
	return &Source{options: options, alarm: time.Minute}
}

// Run is the Source's contract. It goes on while the store is away, and takes no
// prefix without keys for rules: an empty document clears them.
func (s *Source) Run(ctx context.Context, apply func(rules.Snapshot) error) error {
	r := &reader{Source: s, apply: apply}
	for ctx.Err() == nil {
		pause := r.step(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
	}
	return nil
}

// step lists once, and returns how long to wait then.
func (r *reader) step(ctx context.Context) (pause time.Duration) {
	asked := time.Now()
	listing, err := r.options.Store.List(ctx, Query{Prefix: r.options.Prefix + "/", Since: r.index, Wait: r.patience(), Stale: !r.behind})
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		r.index = 0 // whatever happened meanwhile is seen at the first answer
		r.away(err)
		r.failures++
		return min(backoff<<min(r.failures-1, 10), backoffTo)
	case listing.Index < r.index:
		// The store began anew, or another server is behind. What is newest is asked
		// of the one that knows.
		r.options.Logger.Info("the index went backwards, reading anew", "from", r.index, "to", listing.Index)
		r.index, r.behind, r.failures = 0, true, 0
		return 0
	}
	r.index, r.behind, r.failures = listing.Index, false, 0
	if !r.take(listing.Pairs) && time.Since(asked) < time.Second {
		return idle // a store, or what is in front of it, that does not wait for changes
	}
	return spacing
}

// jitter spreads what many instances do at once.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

// reader is one Run.
type reader struct {
	*Source
	apply func(rules.Snapshot) error

	index    uint64 // of the last listing; 0: list at once
	failures int    // since the last listing
	behind   bool   // the index went backwards: the next listing is not to be stale

	seen    string         // what apply was last called with: version and fingerprint
	last    rules.Snapshot // of then
	good    *atomic.Bool   // it was taken, if only later
	problem string         // the kind of it that apply was told of and still is
	told    string         // its words
	toldAt  time.Time

	pushing string    // the marker of a push that stands, as it is written
	since   time.Time // when it was first seen
}

// patience is how long to wait for a change.
func (r *reader) patience() time.Duration {
	left := wait
	if r.pushing != "" {
		left = min(left, max(time.Until(r.since.Add(r.alarm)), spacing))
	}
	return left - rand.N(left/3)
}

// take applies what stands beneath the prefix, if it is new and whole. It tells
// whether anything is new.
func (r *reader) take(pairs []Pair) bool {
	c := sortOut(r.options.Prefix, pairs)
	if c.marker != nil {
		return r.hold(c.marker.Value)
	}
	r.pushing = ""
	if len(c.files) == 0 {
		return r.tell("empty", "there are no rules beneath "+r.options.Prefix+"/")
	}
	version, print := c.version()
	seen := version + " " + print
	if r.problem == "" && r.seen == seen {
		if r.good.Load() {
			_ = r.apply(r.last) // it still is so
		}
		return false
	}
	snap := rules.ParseSnapshot(r.named(c.files), r.last.Documents...)
	good := new(atomic.Bool)
	snap.Version, snap.Taken = version, func() { good.Store(true) }
	r.problem, r.seen, r.last, r.good = "", seen, snap, good
	_ = r.apply(snap) // whoever applies tells of its error; the next change is another try
	return true
}

// named gives the documents the names that faults show.
func (r *reader) named(files map[string][]byte) map[string][]byte {
	named := make(map[string][]byte, len(files))
	for name, value := range files {
		named[r.options.URL+"/"+name] = value
	}
	return named
}

// hold leaves everything as it is while a push is under way.
func (r *reader) hold(marker []byte) (changed bool) {
	if changed = r.pushing != string(marker); changed {
		r.pushing, r.since = string(marker), time.Now()
		r.options.Logger.Info("a push is under way, its rules are taken when it is done", "push", r.pushing)
	}
	if r.seen == "" && r.problem != "pushing" && r.problem != "push stands" || r.problem == "away" || r.problem == "denied" {
		r.tell("pushing", "a push is under way ("+describe(marker)+"); its rules are taken when it is done")
	}
	if time.Since(r.since) >= r.alarm {
		r.tell("push stands", fmt.Sprintf("a push (%s) is not finished after %v; finish it by `weir rules push --resume`, or take it back by `weir rules push --abort`", describe(marker), r.alarm))
	}
	return changed
}

// describe says whose push a marker is of.
func describe(marker []byte) string {
	m := parseMarker(marker)
	if m.Version == 0 {
		return m.String() + ", " + strconv.Quote(string(marker[:min(len(marker), 80)]))
	}
	return m.String()
}

// away tells of a store that cannot be read.
func (r *reader) away(err error) {
	kind := "away"
	if errors.Is(err, ErrDenied) {
		kind = "denied"
	}
	r.tell(kind, err.Error())
}

// tell applies why there are no rules, once for each kind of problem. The words
// of one may change with each try; those that do are told twice a minute at most.
func (r *reader) tell(kind, problem string) (news bool) {
	if r.problem == kind && (r.told == problem || time.Since(r.toldAt) < wait) {
		return false
	}
	r.problem, r.told, r.toldAt = kind, problem, time.Now()
	switch {
	case r.seen != "":
		problem += "; the last good rules stay"
	case kind == "empty":
		problem += "; push some, or write an empty document if none are meant"
	}
	if r.seen != "" && kind == "empty" {
		problem += " (an empty document clears them)"
	}
	_ = r.apply(rules.Snapshot{Faults: rules.Faults{{File: r.options.URL, Msg: problem}}})
	return true
}

// contents is what stands beneath a prefix, sorted by what it is.
type contents struct {
	files    map[string][]byte // documents by name beneath the prefix
	versions map[string]uint64 // of their keys
	current  *Pair             // which push this is of; nil: none
	marker   *Pair             // a push is under way; nil: none
}

func sortOut(prefix string, pairs []Pair) contents {
	c := contents{files: map[string][]byte{}, versions: map[string]uint64{}}
	for i, p := range pairs {
		name, ok := strings.CutPrefix(p.Key, prefix+"/")
		switch {
		case !ok:
		case name == markerName:
			c.marker = &pairs[i]
		case name == currentName:
			c.current = &pairs[i]
		case isDocument(name, p.Value):
			c.files[name], c.versions[name] = p.Value, p.Version
		}
	}
	return c
}

// isDocument tells whether a key beneath the prefix is one.
func isDocument(name string, value []byte) bool {
	isFolder := strings.HasSuffix(name, "/") && len(value) == 0
	return name != "" && !isFolder && !strings.HasPrefix(name, ".") && !strings.Contains(name, "/.")
}

// version is the number of the push, with a + if keys were changed since, and the
// fingerprint of the documents.
func (c *contents) version() (version, print string) {
	print = Fingerprint(c.files)
	current, ok := parseCurrent(c.current)
	switch {
	case !ok:
		return "", print
	case current.Fingerprint != print:
		return strconv.FormatUint(current.Version, 10) + "+", print
	}
	return strconv.FormatUint(current.Version, 10), print
}
