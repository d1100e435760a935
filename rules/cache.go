package rules

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// CacheOptions say where to keep rules. Dir and Name must be set.
type CacheOptions struct {
	Dir    string           // made if need be
	Name   string           // of the source: each has a file of its own
	Wait   time.Duration    // how long the source may take at a start before the cache stands in; 0: 1 s
	Logger *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now
}

// Cache is a Source that keeps the last good rules of another one on disk. At a
// start at which that one has none, be it away, empty or faulty, they stand in
// until it has.
type Cache struct {
	source  Source
	options CacheOptions
	path    string
}

var _ Source = (*Cache)(nil)

// NewCache returns the cache of a source. It fails if Dir cannot be written, but
// where it has rules of the source already.
func NewCache(source Source, options CacheOptions) (*Cache, error) {
	if options.Wait == 0 {
		options.Wait = time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	c := &Cache{source: source, options: options, path: filepath.Join(options.Dir, cacheName(options.Name))}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the rules cache: %w", err)
	}
	trial, err := os.CreateTemp(options.Dir, ".new-*")
	if err == nil {
		trial.Close()
		os.Remove(trial.Name())
		return c, nil
	}
	if _, unread := c.read(); unread != nil {
		return nil, fmt.Errorf("writing to the rules cache: %w", err)
	}
	options.Logger.Warn("rules cache: its folder cannot be written, what is in it may get old", "error", err)
	return c, nil
}

// cacheName is a file name that is readable, and each source's own.
func cacheName(source string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, source)
	digest := sha256.Sum256([]byte(source))
	return fmt.Sprintf("%.60s-%x.json", readable, digest[:8])
}

// cached is what the file holds, as JSON.
type cached struct {
	Source  string            `json:"source"`
	Version string            `json:"version,omitempty"`
	AsOf    time.Time         `json:"as_of"`
	Files   map[string][]byte `json:"files"`
}

// Run is the Source's contract.
func (c *Cache) Run(ctx context.Context, apply func(Snapshot) error) error {
	run := &cacheRun{Cache: c, apply: apply}
	standIn := time.AfterFunc(c.options.Wait, run.standIn)
	defer standIn.Stop()
	return c.source.Run(ctx, run.take)
}

// cacheRun is one Run.
type cacheRun struct {
	*Cache
	apply func(Snapshot) error

	mu   sync.Mutex // apply is never called twice at once
	done bool       // the source has given good rules, or the cache stands in

	keeping sync.Mutex // of what follows; apply is not called while it is held
	kept    bool       // last is on disk
	last    Snapshot   // that was good
}

// take applies what the source gives, and keeps it if, and when, it is taken.
func (r *cacheRun) take(snap Snapshot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := snap.Taken
	snap.Taken = func() {
		if taken != nil {
			taken()
		}
		r.keep(snap)
	}
	err := r.apply(snap)
	if err != nil {
		r.load()
		return err
	}
	r.done = true
	return nil
}

func (r *cacheRun) keep(snap Snapshot) {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	write := r.save
	if r.kept && snap.Version == r.last.Version && slices.EqualFunc(snap.Documents, r.last.Documents, (*Document).same) {
		write = r.touch
	}
	err := write(snap)
	r.kept, r.last = err == nil, snap
	if err != nil {
		r.options.Logger.Warn("rules cache: the rules in force are not kept on disk", "error", err)
	}
}

func (r *cacheRun) standIn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load()
}

// load applies what is on disk, if nothing was applied yet. r.mu is held.
func (r *cacheRun) load() {
	if r.done {
		return
	}
	r.done = true // once is enough: what is on disk does not get better
	snap, err := r.read()
	switch {
	case os.IsNotExist(err):
	case err != nil:
		r.options.Logger.Error("rules cache: not usable", "error", err)
	default:
		_ = r.apply(snap) // whoever applies tells of its error
	}
}

func (c *Cache) read() (Snapshot, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return Snapshot{}, err
	}
	var kept cached
	if err := json.Unmarshal(text, &kept); err != nil {
		return Snapshot{}, fmt.Errorf("reading %s: %w; remove it", c.path, err)
	}
	if kept.Source != c.options.Name {
		return Snapshot{}, fmt.Errorf("reading %s: it holds rules of %s; remove it", c.path, kept.Source)
	}
	if kept.Files == nil {
		return Snapshot{}, fmt.Errorf("reading %s: it has no files; remove it", c.path)
	}
	snap := ParseSnapshot(kept.Files)
	snap.Version, snap.AsOf, snap.Cached = kept.Version, kept.AsOf, true
	if info, err := os.Stat(c.path); err == nil && info.ModTime().After(snap.AsOf) {
		snap.AsOf = info.ModTime() // see touch
	}
	return snap, nil
}

// touch notes in the file's time that the source still has what is kept.
func (c *Cache) touch(snap Snapshot) error {
	at := snap.AsOf
	if at.IsZero() {
		at = c.options.Now()
	}
	return os.Chtimes(c.path, at, at)
}

// save replaces the file at once: a crash leaves the old one or the new one.
func (c *Cache) save(snap Snapshot) error {
	kept := cached{Source: c.options.Name, Version: snap.Version, AsOf: snap.AsOf, Files: map[string][]byte{}}
	if kept.AsOf.IsZero() {
		kept.AsOf = c.options.Now()
	}
	for _, doc := range snap.Documents {
		kept.Files[doc.Name] = doc.Source()
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(c.options.Dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone if all went well
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chtimes(f.Name(), kept.AsOf, kept.AsOf)
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), c.path)
}
