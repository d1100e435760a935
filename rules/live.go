package rules

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LiveOptions are what a Live needs. All may be left out.
type LiveOptions struct {
	Options
	Logger *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now
}

// Live is the rule set in force, which sources replace while requests read it.
type Live struct {
	options LiveOptions
	current atomic.Pointer[Set]

	applying sync.Mutex // held for a whole Apply: the last one in is the last one out
	mu       sync.Mutex // of what follows
	sources  map[string]*sourceState
	status   LiveStatus // without Sources
}

type sourceState struct {
	loaded    chan struct{} // closed when the first ones are in force
	documents []*Document   // the last good ones
	refused   *Snapshot     // the last one, if it may fit once other sources change
	status    SourceStatus
}

// LiveStatus tells how loading has gone.
type LiveStatus struct {
	Version  string                  `json:"version"`
	Domains  int                     `json:"domains"` // in force
	Rules    int                     `json:"rules"`
	LoadedAt time.Time               `json:"loaded_at,omitzero"` // zero: nothing was loaded yet
	Reloads  uint64                  `json:"reloads"`            // good ones, the first included
	Failures uint64                  `json:"failures"`
	Sources  map[string]SourceStatus `json:"sources"`
}

// SourceStatus tells how loading from one source has gone.
type SourceStatus struct {
	Version   string    `json:"version,omitempty"` // what the source calls the rules in force
	Digest    string    `json:"digest,omitempty"`  // as of Digest
	Documents int       `json:"documents"`
	Reloads   uint64    `json:"reloads"`            // good ones, the first included
	LoadedAt  time.Time `json:"loaded_at,omitzero"` // when they came into force; zero: there are none yet
	AsOf      time.Time `json:"as_of,omitzero"`     // when the source last held them, as far as is known
	Cached    bool      `json:"cached,omitempty"`   // they come from the disk: the source has given none since the start
	Failures  uint64    `json:"failures"`
	FailedAt  time.Time `json:"failed_at,omitzero"`   // zero: never
	LastError string    `json:"last_error,omitempty"` // "": the last try went well
}

// NewLive returns a Live with an empty set.
func NewLive(options LiveOptions) *Live {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	l := &Live{options: options, sources: map[string]*sourceState{}}
	empty, _ := CompileWith(options.Options) // of nothing: cannot fail
	l.current.Store(empty)
	l.status.Version = empty.Version()
	return l
}

// Current is the set in force, never nil. A request takes it once and keeps it.
func (l *Live) Current() *Set { return l.current.Load() }

// Apply puts a source's new snapshot into force, together with the last good
// ones of all other sources. If anything is wrong with them together, the set
// before stays in force, and the error is Faults. A snapshot that is refused for
// what another source says is tried again when that one has changed, so that a
// rule can move between sources. One that says what is in force already is no
// reload: it only ends what was wrong. It is safe for concurrent use.
func (l *Live) Apply(source string, snap Snapshot) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	if snap.AsOf.IsZero() {
		snap.AsOf = l.options.Now()
	}
	if l.confirmed(source, snap) {
		snap.taken()
		return nil
	}
	if err := l.try(source, snap); err != nil {
		l.refused(source, snap, err)
		return err
	}
	for l.retry() {
	}
	return nil
}

// SetGenerations puts other Options.Generations into force, for the rules that are
// and those that come: the counters of a rule whose generation is another begin
// anew. Requests see it as a change of rules, whose version stays what it is.
func (l *Live) SetGenerations(generations map[RuleID]uint64) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	if maps.Equal(l.options.Generations, generations) {
		return nil
	}
	options := l.options.Options
	options.Generations = maps.Clone(generations)
	set, err := CompileWith(options, l.othersThan("")...)
	if err != nil {
		return fmt.Errorf("compiling the rules again to reset some: %w", err) // they have no faults
	}
	l.options.Options = options
	l.current.Store(set)
	return nil
}

// confirmed notes a snapshot of the documents that are in force already, and
// tells whether it is one.
func (l *Live) confirmed(source string, snap Snapshot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	state := l.source(source)
	before := state.status
	if len(snap.Faults) > 0 || state.status.LoadedAt.IsZero() || !slices.EqualFunc(state.documents, snap.Documents, (*Document).same) {
		return false
	}
	state.refused = nil
	state.note(snap)
	if !snap.Cached && (before.LastError != "" || before.Cached) {
		l.options.Logger.Info("the source has the rules in force", "source", source, "rules_version", snap.Version)
	}
	return true
}

// note takes down where the rules in force come from. What is wrong with a
// source is not over when the cache has stood in for it.
func (s *sourceState) note(snap Snapshot) {
	s.status.Version, s.status.AsOf, s.status.Cached = snap.Version, snap.AsOf, snap.Cached
	if !snap.Cached {
		s.status.LastError = ""
	}
}

// try puts the snapshot into force if it fits.
func (l *Live) try(source string, snap Snapshot) error {
	documents := slices.Concat(l.othersThan(source), snap.Documents)
	set, err := CompileWith(l.options.Options, documents...)
	if err = joinFaults(snap.Faults, err); err != nil {
		return err
	}
	l.accepted(source, snap, set)
	snap.taken()
	return nil
}

func (s *Snapshot) taken() {
	if s.Taken != nil {
		s.Taken()
	}
}

// retry puts one refused snapshot into force, if one fits now.
func (l *Live) retry() bool {
	l.mu.Lock()
	refused := map[string]Snapshot{}
	for name, state := range l.sources {
		if state.refused != nil {
			refused[name] = *state.refused
		}
	}
	l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if l.try(name, refused[name]) == nil {
			return true
		}
	}
	return false
}

// joinFaults adds those of a snapshot to those that compiling found, most of
// which are the same.
func joinFaults(faults Faults, err error) error {
	var compiled Faults
	if errors.As(err, &compiled) {
		faults = slices.Concat(faults, compiled)
	}
	return faults.asError()
}

// othersThan returns the documents in force from all other sources; "" is none.
func (l *Live) othersThan(source string) []*Document {
	l.mu.Lock()
	defer l.mu.Unlock()
	var documents []*Document
	for name, state := range l.sources {
		if name != source {
			documents = append(documents, state.documents...)
		}
	}
	return documents
}

func (l *Live) accepted(source string, snap Snapshot, set *Set) {
	now := l.options.Now()
	domains, rules := set.Size()
	l.current.Store(set)
	l.mu.Lock()
	state := l.source(source)
	state.documents = snap.Documents
	if !snap.Cached { // what the source has now is newer than the cache
		state.refused = nil
	}
	if state.status.LoadedAt.IsZero() {
		close(state.loaded)
	}
	state.status.Reloads++
	state.status.LoadedAt, state.status.Documents, state.status.Digest = now, len(snap.Documents), version(snap.Documents)
	state.note(snap)
	l.status.Version, l.status.LoadedAt = set.Version(), now
	l.status.Domains, l.status.Rules = domains, rules
	l.status.Reloads++
	l.mu.Unlock()
	log := l.options.Logger.With("source", source, "version", set.Version())
	if snap.Version != "" {
		log = log.With("rules_version", snap.Version)
	}
	if snap.Cached {
		log = log.With("cached", true, "age", now.Sub(snap.AsOf).Round(time.Second))
	}
	log.Info("rules loaded", "domains", domains, "rules", rules)
	for _, w := range set.Warnings() {
		l.options.Logger.Warn("rules: "+w.Msg, "source", source, "at", w.place())
	}
}

func (l *Live) refused(source string, snap Snapshot, err error) {
	now := l.options.Now()
	l.mu.Lock()
	state := l.source(source)
	state.refused = nil
	if len(snap.Faults) == 0 {
		state.refused = &snap
	}
	state.status.FailedAt, state.status.LastError = now, err.Error()
	state.status.Failures++
	l.status.Failures++
	version, none := l.status.Version, state.status.LoadedAt.IsZero()
	l.mu.Unlock()
	what := "rules refused"
	if len(snap.Documents) == 0 {
		what = "rules not read"
	}
	if none {
		what += ", none of this source are in force yet"
	} else {
		what += ", those before stay in force"
	}
	l.options.Logger.Error(what, "source", source, "version", version, "error", err)
}

// source returns what is known of a source. l.mu is held.
func (l *Live) source(name string) *sourceState {
	if l.sources[name] == nil {
		l.sources[name] = &sourceState{loaded: make(chan struct{})}
	}
	return l.sources[name]
}

// Loaded returns a channel that is closed once rules of the source are in force.
func (l *Live) Loaded(source string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source(source).loaded
}

// Status tells how loading has gone until now.
func (l *Live) Status() LiveStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.status
	status.Sources = make(map[string]SourceStatus, len(l.sources))
	for name, state := range l.sources {
		status.Sources[name] = state.status
	}
	return status
}
