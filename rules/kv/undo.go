package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNoPush is that no push stands.
var ErrNoPush = errors.New("no push is under way")

// Resume finishes a push that was interrupted. Whoever began it can do no more.
func (r *Repository) Resume(ctx context.Context, info Info) (Version, error) {
	s, err := r.standing(ctx)
	if err != nil {
		return Version{}, err
	}
	files, v, err := r.pending(ctx, s)
	if err != nil {
		return Version{}, err
	}
	if v == nil {
		return Version{}, fmt.Errorf("the push of %v had no document written yet: take it back (push --abort), which loses nothing, and push again", s.Push)
	}
	before, _, err := r.replaced(ctx, s)
	if err != nil {
		return Version{}, err
	}
	for _, name := range names(s.Files, files, before) {
		if side := sideOf(name, s.Files, files, before); side == neither {
			return Version{}, fmt.Errorf("finishing version %d: %s was %w by other means: take the push back (push --abort) and push again", v.Number, r.key(name), ErrConflict)
		}
	}
	marker, err := r.takeOver(ctx, s, info)
	if err != nil {
		return Version{}, err
	}
	if err := r.write(ctx, r.changes(s, files), marker); err != nil {
		return Version{}, fmt.Errorf("finishing version %d: %w", v.Number, err)
	}
	p := &plan{Repository: r, files: files, version: *v, marker: marker}
	if err := p.finish(ctx); err != nil {
		return Version{}, fmt.Errorf("finishing version %d: %w", v.Number, err)
	}
	return *v, nil
}

// Abort takes back a push that was interrupted: what it wrote becomes again what
// it was. It returns the version that is in force then, 0 if there was none.
// Whoever began the push can do no more.
func (r *Repository) Abort(ctx context.Context, info Info) (version uint64, err error) {
	s, err := r.standing(ctx)
	if err != nil {
		return 0, err
	}
	marker, err := r.takeOver(ctx, s, info)
	if err != nil {
		return 0, err
	}
	if err := r.undo(ctx, marker); err != nil {
		return 0, fmt.Errorf("taking version %d back: %w", s.Push.Version, err)
	}
	if s.Push.Recorded {
		return s.Push.Replaces, nil
	}
	return s.Version, nil
}

// standing is the state with a push in it.
func (r *Repository) standing(ctx context.Context) (*State, error) {
	s, err := r.State(ctx)
	if err == nil && s.Push == nil {
		err = ErrNoPush
	}
	return s, err
}

// takeOver writes the marker anew, so that whoever had set it cannot go on.
func (r *Repository) takeOver(ctx context.Context, s *State, info Info) (marker uint64, err error) {
	m := *s.Push
	m.Info, m.ID = info, rand.Text()
	was := s.contents.marker.Version
	marker, err = r.store.Commit(ctx, []Op{{Kind: Put, Key: r.key(markerName), If: was, Value: encode(m)}})
	if err != nil {
		return 0, fmt.Errorf("taking over the push of version %d: %w", m.Version, err)
	}
	return marker, nil
}

// undo writes what documents were before the push whose marker has the version,
// and removes the marker. What somebody else wrote meanwhile stays.
func (r *Repository) undo(ctx context.Context, marker uint64) error {
	s, err := r.standing(ctx)
	if err != nil {
		return err
	}
	last := []Op{{Kind: Delete, Key: r.key(markerName), If: marker}}
	if s.Push.Recorded { // else no document was touched
		more, err := r.restore(ctx, s, marker)
		if err != nil {
			return err
		}
		last = append(last, more...)
	}
	_, err = r.store.Commit(ctx, last)
	return err
}

// restore writes the documents, and returns what else is to be done at the end.
func (r *Repository) restore(ctx context.Context, s *State, marker uint64) (last []Op, err error) {
	files, _, err := r.pending(ctx, s)
	if err != nil {
		return nil, err
	}
	before, old, err := r.replaced(ctx, s)
	if err != nil {
		return nil, err
	}
	target := map[string][]byte{}
	for _, name := range names(s.Files, files, before) {
		from := s.Files
		if sideOf(name, s.Files, files, before) == pushed {
			from = before
		}
		if value, ok := from[name]; ok {
			target[name] = value
		}
	}
	if err := r.write(ctx, r.changes(s, target), marker); err != nil {
		return nil, err
	}
	last = append(last, Op{Kind: Delete, Key: r.versionKey(s.Push.Version), If: AnyVersion})
	if old != nil && s.contents.current == nil { // somebody removed it
		now := current{Version: old.Number, Digest: old.Digest, Fingerprint: Fingerprint(before)}
		last = append(last, Op{Kind: Put, Key: r.key(currentName), If: 0, Value: encode(now)})
	}
	return last, nil
}

// Release removes the marker of a push and leaves the documents as they are, be
// they half of it: the way out where the history was removed that Resume and
// Abort need.
func (r *Repository) Release(ctx context.Context) error {
	s, err := r.standing(ctx)
	if err != nil {
		return err
	}
	_, err = r.store.Commit(ctx, []Op{{Kind: Delete, Key: r.key(markerName), If: s.contents.marker.Version}})
	return err
}

// ErrHistory is that the history does not have what it had.
var ErrHistory = errors.New("the history was changed by other means; `push --abort --force` leaves the documents as they stand, after which whole rules can be pushed")

// pending returns the documents that the push is to bring; nil if it has not got
// so far that it wrote a document.
func (r *Repository) pending(ctx context.Context, s *State) (map[string][]byte, *Version, error) {
	if !s.Push.Recorded {
		return nil, nil, nil
	}
	v, files, err := r.Version(ctx, s.Push.Version)
	if err != nil {
		return nil, nil, fmt.Errorf("reading what was being pushed: %w: %w", err, ErrHistory)
	}
	return files, &v, nil
}

// replaced returns the documents that were there before the push, and their
// version; none if it is the first.
func (r *Repository) replaced(ctx context.Context, s *State) (map[string][]byte, *Version, error) {
	if s.Push.Replaces == 0 {
		return nil, nil, nil
	}
	v, files, err := r.Version(ctx, s.Push.Replaces)
	if err != nil {
		return nil, nil, fmt.Errorf("reading what was there before: %w: %w", err, ErrHistory)
	}
	return files, &v, nil
}

// side is whose content a document has during a push.
type side int

const (
	unchanged side = iota // before the push and after it, or not written yet
	pushed                // the push has written it
	neither               // somebody else has
)

func sideOf(name string, now, after, before map[string][]byte) side {
	value, is := now[name]
	old, was := before[name]
	pending, willBe := after[name]
	switch {
	case is == was && string(value) == string(old):
		return unchanged
	case is == willBe && string(value) == string(pending):
		return pushed
	}
	return neither
}

// names are all that any of the sets has, sorted.
func names(sets ...map[string][]byte) []string {
	var all []string
	for _, files := range sets {
		for name := range files {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Prune removes the oldest versions beyond those to keep, and the contents that
// no version has any more. It does nothing while a push is under way, and stops
// at one that begins.
func (r *Repository) Prune(ctx context.Context, keep int) error {
	s, err := r.State(ctx) // before the lists: whoever pushes later changes what the checks want
	if err != nil || s.Push != nil || s.contents.current == nil {
		return err
	}
	blobs, err := r.store.List(ctx, Query{Prefix: r.history(blobsName)})
	if err != nil {
		return err
	}
	versions, err := r.Log(ctx)
	if err != nil || len(versions) <= keep {
		return err
	}
	used := map[string]bool{}
	for _, v := range versions[:keep] {
		for _, blob := range v.Files {
			used[blob] = true
		}
	}
	var ops []Op
	for _, v := range versions[keep:] {
		ops = append(ops, Op{Kind: Delete, Key: r.versionKey(v.Number), If: AnyVersion})
	}
	for _, p := range blobs.Pairs {
		if !used[strings.TrimPrefix(p.Key, r.history(blobsName))] {
			ops = append(ops, Op{Kind: Delete, Key: p.Key, If: p.Version})
		}
	}
	limits := r.store.Limits()
	limits.Ops -= 2
	for _, group := range chunks(ops, limits) {
		group = append(group,
			Op{Kind: Check, Key: r.key(currentName), If: s.contents.current.Version},
			Op{Kind: Check, Key: r.key(markerName), If: 0})
		if _, err := r.store.Commit(ctx, group); err != nil {
			return err
		}
	}
	return nil
}
