// Package file reads rules from a file or a folder, and again when they change.
package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"weir/rules"
)

// Options are how to watch. The zero value is fine.
type Options struct {
	ReloadInterval time.Duration // how often to read even if nothing tells of a change; 0: 10 s
	Logger         *slog.Logger  // nil: none
}

// Files are read when nothing has changed for settle, so that a file that is
// being written is not taken half; but no later than patience after a change.
const (
	settle   = 100 * time.Millisecond
	patience = 500 * time.Millisecond
)

// Source is a file, or a folder with all *.yaml and *.yml files beneath, without
// hidden files and folders. Symbolic links are followed.
type Source struct {
	path     string
	interval time.Duration
	log      *slog.Logger
}

var _ rules.Source = (*Source)(nil)

// New returns the source of a path. It reads nothing yet.
func New(path string, options Options) *Source {
	if options.ReloadInterval <= 0 {
		options.ReloadInterval = 10 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{path: path, interval: options.ReloadInterval, log: options.Logger.With("rules", path)}
}

// Run is the Source's contract. While a file cannot be read, is gone with all
// others, or has become empty, the last good rules stay, and what apply is called
// with says so once. Whoever wants no rules leaves a comment in the file.
func (s *Source) Run(ctx context.Context, apply func(rules.Snapshot) error) error {
	first, err := readFirst(s.path)
	if err != nil {
		return err
	}
	watch := newWatch(s.log)
	defer watch.close()
	watch.follow(first.folders)
	// What changed between the first read and the watch is found now.
	if again, err := readFirst(s.path); err == nil {
		first = again
	}
	if err := apply(rules.ParseSnapshot(first.files)); err != nil {
		return fmt.Errorf("load rules from %s: %w", s.path, err)
	}
	r := &reloader{source: s, apply: apply, watch: watch, seen: digests(first.files)}
	r.loop(ctx)
	return nil
}

// reloader reads again and applies what is new.
type reloader struct {
	source  *Source
	apply   func(rules.Snapshot) error
	watch   *watch
	seen    map[string]digest // what apply was last called with
	problem string            // that apply was told of and still is
}

// digest tells a file's contents apart.
type digest struct {
	sum  [sha256.Size]byte
	size int
}

func digests(files map[string][]byte) map[string]digest {
	sums := make(map[string]digest, len(files))
	for name, data := range files {
		sums[name] = digest{sha256.Sum256(data), len(data)}
	}
	return sums
}

func (r *reloader) loop(ctx context.Context) {
	tick := time.NewTicker(r.source.interval)
	defer tick.Stop()
	var settled <-chan time.Time // of a change that is not read yet
	var changed time.Time        // when the first such change was seen
	note := func() {
		now := time.Now()
		if settled == nil {
			changed = now
		}
		settled = time.After(min(settle, patience-now.Sub(changed)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case err, ok := <-r.watch.errors():
			if !ok {
				r.watch.close()
				continue
			}
			// Events may be lost, such as when their queue is full.
			r.source.log.Warn("watching rules: reading them instead", "error", err)
			note()
		case event, ok := <-r.watch.events():
			if !ok {
				r.watch.close()
			} else if r.watch.concerns(event) {
				note()
			}
		case <-tick.C:
			if settled == nil && r.differs() {
				note() // read once more: the file may be half written
			}
		case <-settled:
			settled = nil
			if r.reload() {
				note()
			}
		}
	}
}

// differs tells whether a reload would find something new.
func (r *reloader) differs() bool {
	now, err := r.read()
	if err != nil {
		return err.Error() != r.problem
	}
	return r.problem != "" || !maps.Equal(digests(now.files), r.seen)
}

// reload applies what is new. It returns true if folders are new, in which
// something may have changed before they were watched.
func (r *reloader) reload() (again bool) {
	now, err := r.read()
	again = r.watch.follow(now.folders)
	// Whoever applies tells of its error; the next change is another try.
	if err != nil {
		if r.problem != err.Error() {
			r.problem = err.Error()
			_ = r.apply(refused(err))
		}
		return again
	}
	sums := digests(now.files)
	if r.problem == "" && maps.Equal(sums, r.seen) {
		return again
	}
	// After a problem the same content too: so it is known to be over.
	r.problem, r.seen = "", sums
	_ = r.apply(rules.ParseSnapshot(now.files))
	return again
}

// refused is what to apply where the rules could not be read.
func refused(err error) rules.Snapshot {
	var faults rules.Faults
	errors.As(err, &faults)
	snap := rules.Snapshot{Faults: slices.Clone(faults)}
	for i := range snap.Faults {
		f := &snap.Faults[i]
		switch f.Msg {
		case noFile, noRuleFiles, emptied:
			f.Msg += "; the last good rules stay (a file with only a comment clears them)"
		default:
			f.Msg += "; the last good rules stay"
		}
	}
	return snap
}

// What is wrong with files that became empty: all, or some.
const (
	emptied     = "the file became empty"
	someEmptied = "the file became empty; if that is meant, remove it, or leave a comment in it"
)

// read reads the tree, and takes no file that became empty: it is likely being
// written, or was lost. The error is rules.Faults.
func (r *reloader) read() (tree, error) {
	now, err := readTree(r.source.path)
	if err != nil {
		return now, err
	}
	if now.allEmpty() {
		return now, now.eachEmpty(emptied)
	}
	became := tree{files: maps.Clone(now.files)}
	maps.DeleteFunc(became.files, func(name string, _ []byte) bool { return r.seen[name].size == 0 })
	if faults := became.eachEmpty(someEmptied); len(faults) > 0 {
		return now, faults
	}
	return now, nil
}
