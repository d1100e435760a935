package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/rules"
)

// undoTimeout is how long a push that failed tries to leave no half behind.
const undoTimeout = 10 * time.Second

// ErrPushing is that another push stands.
var ErrPushing = errors.New("another push is under way")

// ErrNothing is that there is nothing to push.
var ErrNothing = errors.New("the rules are there already")

// Push makes files the documents, in place of those that from has, and a version
// of the history. It is all or nothing, for sources and for the store: what fits
// into a transaction is one; else a marker stands while it writes, and if it
// fails halfway it takes back what it wrote. If a key was changed after from was
// read, it changes nothing and returns ErrConflict. Documents that were written
// by other means become a version of their own first, so that they are not lost.
//
// The files are not compiled: whoever pushes has done so.
func (r *Repository) Push(ctx context.Context, from *State, files map[string][]byte, info Info) (Version, error) {
	if from.Push != nil {
		return Version{}, fmt.Errorf("%w: %v", ErrPushing, from.Push)
	}
	if sameFiles(from.Files, files) && !from.ByHand {
		return Version{}, ErrNothing
	}
	p, err := r.plan(ctx, from, files, info)
	if err != nil {
		return Version{}, fmt.Errorf("pushing: %w; nothing was changed", err)
	}
	if ops := p.all(); r.fit(ops) {
		_, err := r.store.Commit(ctx, ops)
		return p.version, p.outcome(err)
	}
	return p.version, p.push(ctx)
}

// outcome says what became of a push that is one transaction.
func (p *plan) outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConflict), errors.Is(err, ErrDenied):
		return fmt.Errorf("pushing version %d: %w; nothing was changed", p.version.Number, err)
	}
	done, unknown := p.done()
	switch {
	case done:
		return nil
	case unknown != nil:
		return fmt.Errorf("pushing version %d: %w; it may have been done or not: see `weir rules status` when the store is back", p.version.Number, err)
	}
	return fmt.Errorf("pushing version %d: %w; nothing was changed", p.version.Number, err)
}

// done tells whether the push is in force, for an answer may be lost of what was
// done.
func (p *plan) done() (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	now, err := p.State(ctx)
	if err != nil {
		return false, err
	}
	return now.Version == p.version.Number && now.Push == nil && now.Digest() == p.version.Digest, nil
}

// plan is all that a push writes.
type plan struct {
	*Repository
	from    *State
	files   map[string][]byte
	version Version
	found   *Version // what is there, if it was written by other means; nil: it was not
	blobs   []Op
	docs    []Op // documents that change
	written Marker
	marker  uint64 // the version of the marker's key, while it stands
}

func (r *Repository) plan(ctx context.Context, from *State, files map[string][]byte, info Info) (*plan, error) {
	if err := r.checkFiles(files); err != nil {
		return nil, err
	}
	for name := range from.Files {
		if !plainName(name) {
			return nil, fmt.Errorf("the key %q is not UTF-8, or has a control character, and cannot be replaced or kept; remove it from the store", r.key(name))
		}
	}
	number, err := r.next(ctx, from)
	if err != nil {
		return nil, err
	}
	p := &plan{Repository: r, from: from, files: files}
	kept := map[string]bool{} // blobs that a version has which is not to go
	if from.ByHand && len(from.Files) > 0 {
		found := newVersion(number, from.Files, from.Digest(), Info{By: "unknown", At: info.At, Message: "found: keys were written by other means"})
		found.Found = true
		p.found = &found
		p.keep(from.Files, kept)
		number++
	} else if _, err := r.VersionInfo(ctx, from.Version); err == nil {
		for _, value := range from.Files { // the version that is in force has them
			kept[blobName(value)] = true
		}
	} else if !errors.Is(err, ErrNoVersion) { // else somebody removed the history
		return nil, err
	}
	p.version = newVersion(number, files, rules.Digest(files), info)
	p.keep(files, kept)
	p.docs = r.changes(from, files)
	if size := len(encode(p.version)); size > r.room() {
		return nil, fmt.Errorf("the list of %d documents takes %d bytes, and there is room for %d: join some of them", len(files), size, r.room())
	}
	if p.found != nil && len(encode(*p.found)) > r.room() {
		return nil, fmt.Errorf("beneath %s/ there are %d documents that no push wrote, too many to keep in the history: pull them, to have them, then remove them from the store, and push", r.prefix, len(from.Files))
	}
	return p, nil
}

// room is how long a value may be that is written in one transaction with a look
// at the marker.
func (r *Repository) room() int {
	limits := r.store.Limits()
	const keys = 4096 // of both: no name of a document is longer
	return min(limits.Value, limits.Bytes-keys)
}

// checkFiles finds documents that the store does not take.
func (r *Repository) checkFiles(files map[string][]byte) error {
	var faults rules.Faults
	most := r.room()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case !isDocument(name, files[name]) || strings.HasSuffix(name, "/"):
			faults = append(faults, rules.Fault{File: name, Msg: "a document's name has no part that begins with a dot, and no slash at its end"})
		case !plainName(name) || len(name) > 1024:
			faults = append(faults, rules.Fault{File: name, Msg: "a document's name is UTF-8 without control characters, of 1024 bytes at most"})
		case len(files[name]) > most:
			faults = append(faults, rules.Fault{File: name, Msg: fmt.Sprintf("it has %d bytes, and the store takes %d: split it", len(files[name]), most)})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// plainName tells whether a name is kept as it is by any store, and shown as it is
// by any terminal.
func plainName(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}

// keep writes the contents that the history has not yet.
func (p *plan) keep(files map[string][]byte, kept map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		blob := blobName(files[name])
		if !kept[blob] {
			p.blobs = append(p.blobs, Op{Kind: Put, Key: p.history(blobsName + blob), If: AnyVersion, Value: files[name]})
			kept[blob] = true
		}
	}
}

// changes are what makes the documents of one state those of files.
func (r *Repository) changes(from *State, files map[string][]byte) []Op {
	var ops []Op
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if value, ok := from.Files[name]; !ok || string(value) != string(files[name]) {
			ops = append(ops, Op{Kind: Put, Key: r.key(name), If: from.contents.versions[name], Value: files[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.Files)) {
		if _, stays := files[name]; !stays {
			ops = append(ops, Op{Kind: Delete, Key: r.key(name), If: from.contents.versions[name]})
		}
	}
	return ops
}

// all is the push as one transaction, which also wants that no document which
// stays as it is was changed.
func (p *plan) all() []Op {
	ops := slices.Concat(p.blobs, p.docs, []Op{
		p.putVersion(p.version),
		{Kind: Check, Key: p.key(markerName), If: 0},
		p.setCurrent(p.version, p.files, p.currentVersion()),
	})
	if p.found != nil {
		ops = append(ops, p.putVersion(*p.found))
	}
	changed := map[string]bool{}
	for _, op := range p.docs {
		changed[op.Key] = true
	}
	for name, version := range p.from.contents.versions {
		if !changed[p.key(name)] {
			ops = append(ops, Op{Kind: Check, Key: p.key(name), If: version})
		}
	}
	return ops
}

// putVersion describes a version in the history.
func (p *plan) putVersion(v Version) Op {
	return Op{Kind: Put, Key: p.versionKey(v.Number), If: 0, Value: encode(v)}
}

// setCurrent says that the documents are those of v.
func (p *plan) setCurrent(v Version, files map[string][]byte, was uint64) Op {
	now := current{Version: v.Number, Digest: v.Digest, Fingerprint: Fingerprint(files)}
	return Op{Kind: Put, Key: p.key(currentName), If: was, Value: encode(now)}
}

// currentVersion is that of the key which says what is in force.
func (p *plan) currentVersion() uint64 {
	if p.from.contents.current == nil {
		return 0
	}
	return p.from.contents.current.Version
}

// encode writes what this package keeps in the store. It cannot fail: there is
// nothing in it that JSON does not have.
func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

// fit tells whether the ops are one transaction.
func (r *Repository) fit(ops []Op) bool { return len(chunks(ops, r.store.Limits())) == 1 }

// chunks groups ops into transactions. What alone is larger than one gets one of
// its own.
func chunks(ops []Op, limits Limits) [][]Op {
	var groups [][]Op
	var group []Op
	bytes := 0
	for _, op := range ops {
		size := len(op.Key) + len(op.Value)
		if len(group) > 0 && (len(group) == limits.Ops || bytes+size > limits.Bytes) {
			groups, group, bytes = append(groups, group), nil, 0
		}
		group = append(group, op)
		bytes += size
	}
	if len(group) > 0 {
		groups = append(groups, group)
	}
	return groups
}

// push writes what does not fit into one transaction.
func (p *plan) push(ctx context.Context) error {
	err := p.begin(ctx)
	if err != nil {
		return p.withdraw(err)
	}
	if err = p.record(ctx); err == nil {
		if err = p.write(ctx, p.docs); err == nil {
			err = p.finish(ctx)
		}
	}
	if err == nil {
		return nil
	}
	if done, _ := p.done(); done {
		return nil
	}
	// Also if ctx is done: half a push must not stay.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if now, e := p.State(ctx); e == nil && now.Push != nil && now.Push.ID == p.written.ID {
		p.marker = now.contents.marker.Version // an answer may have been lost
	}
	if undone := p.undo(ctx, p.marker); undone != nil {
		return fmt.Errorf("pushing version %d: %w; taking it back: %w; while it stands half done, rules stay as they were: finish it (push --resume) or take it back (push --abort)", p.version.Number, err, undone)
	}
	return fmt.Errorf("pushing version %d: %w; nothing was changed", p.version.Number, err)
}

// begin sets the marker.
func (p *plan) begin(ctx context.Context) (err error) {
	p.written = Marker{Version: p.version.Number, Digest: p.version.Digest, Replaces: p.from.Version, ID: rand.Text(), Info: p.version.Info}
	if p.found != nil {
		p.written.Replaces = p.found.Number
	}
	p.marker, err = p.store.Commit(ctx, []Op{
		{Kind: Put, Key: p.key(markerName), If: 0, Value: encode(p.written)},
		{Kind: Check, Key: p.key(currentName), If: p.currentVersion()},
	})
	return err
}

// withdraw removes the marker if it was set although setting it failed: an answer
// may be lost.
func (p *plan) withdraw(cause error) error {
	failed := fmt.Errorf("pushing version %d: %w", p.version.Number, cause)
	if errors.Is(cause, ErrConflict) || errors.Is(cause, ErrDenied) {
		return fmt.Errorf("%w; nothing was changed", failed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	now, err := p.State(ctx)
	if err == nil && now.Push != nil && now.Push.ID == p.written.ID {
		_, err = p.store.Commit(ctx, []Op{{Kind: Delete, Key: p.key(markerName), If: now.contents.marker.Version}})
	}
	if err != nil {
		return fmt.Errorf("%w; its marker may stand (%w): look at `weir rules status`, and take it back by push --abort", failed, err)
	}
	return fmt.Errorf("%w; nothing was changed", failed)
}

// record writes the history. Until its last step no document is touched, and
// after it everything is there that finishing or taking back needs.
func (p *plan) record(ctx context.Context) error {
	if err := p.write(ctx, p.blobs); err != nil {
		return err
	}
	if p.found != nil {
		if err := p.write(ctx, []Op{p.putVersion(*p.found)}); err != nil {
			return err
		}
	}
	p.written.Recorded = true
	ops := []Op{p.putVersion(p.version), {Kind: Put, Key: p.key(markerName), If: p.marker, Value: encode(p.written)}}
	if p.found != nil {
		ops = append(ops, p.setCurrent(*p.found, p.from.Files, p.currentVersion()))
	}
	marker, err := p.store.Commit(ctx, ops)
	if err == nil {
		p.marker = marker
	}
	return err
}

// write does the ops, chunk by chunk, while the marker is this push's.
func (p *plan) write(ctx context.Context, ops []Op) error {
	return p.Repository.write(ctx, ops, p.marker)
}

func (r *Repository) write(ctx context.Context, ops []Op, marker uint64) error {
	limits := r.store.Limits()
	mine := Op{Kind: Check, Key: r.key(markerName), If: marker}
	limits.Ops, limits.Bytes = limits.Ops-1, limits.Bytes-len(mine.Key)
	for _, group := range chunks(ops, limits) {
		if len(group) > 1 || len(group[0].Key)+len(group[0].Value) <= limits.Bytes {
			group = append(group, mine)
		} // else it is a content for the history, which does no harm there
		if _, err := r.store.Commit(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// finish removes the marker, if the documents are what they should be.
func (p *plan) finish(ctx context.Context) error {
	now, err := p.State(ctx)
	if err != nil {
		return err
	}
	if !sameFiles(now.Files, p.files) {
		return fmt.Errorf("documents beneath %s/ were %w", p.prefix, ErrConflict)
	}
	was := uint64(0)
	if now.contents.current != nil {
		was = now.contents.current.Version
	}
	_, err = p.store.Commit(ctx, []Op{
		p.setCurrent(p.version, p.files, was),
		{Kind: Delete, Key: p.key(markerName), If: p.marker},
	})
	return err
}
