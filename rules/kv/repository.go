package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"weir/rules"
)

// Repository is the rules beneath a prefix, and their history beside it.
type Repository struct {
	store  Store
	prefix string
}

// NewRepository returns the repository of a prefix, which has no slash at its end.
func NewRepository(store Store, prefix string) *Repository { return &Repository{store, prefix} }

// State is what stands beneath the prefix at one moment.
type State struct {
	Files   map[string][]byte // the documents, by name beneath the prefix
	Version uint64            // which one was pushed last; 0: none
	ByHand  bool              // the documents are not those of Version: keys were written by other means
	Push    *Marker           // a push that is under way, so that the documents may be half of one and half of another; nil: none

	contents contents
}

// Digest is that of the documents, as of rules.Digest.
func (s *State) Digest() string { return rules.Digest(s.Files) }

// State reads what stands beneath the prefix.
func (r *Repository) State(ctx context.Context) (*State, error) {
	listing, err := r.store.List(ctx, Query{Prefix: r.prefix + "/"})
	if err != nil {
		return nil, err
	}
	c := sortOut(r.prefix, listing.Pairs)
	s := &State{Files: c.files, contents: c}
	current, known := parseCurrent(c.current)
	s.Version = current.Version
	s.ByHand = (known || len(c.files) > 0) && current.Fingerprint != Fingerprint(c.files)
	if c.marker != nil {
		s.Push = parseMarker(c.marker.Value)
	}
	return s, nil
}

// Log returns the versions, newest first.
func (r *Repository) Log(ctx context.Context) ([]Version, error) {
	listing, err := r.store.List(ctx, Query{Prefix: r.history(versionsName)})
	if err != nil {
		return nil, err
	}
	var versions []Version
	for _, p := range listing.Pairs {
		number, err := strconv.ParseUint(strings.TrimPrefix(p.Key, r.history(versionsName)), 10, 64)
		if err != nil {
			continue // not written by this program
		}
		v, err := readVersion(p)
		if err != nil || v.Number != number {
			v = Version{Number: number, Info: Info{Message: "its description is damaged"}}
		}
		versions = append(versions, v)
	}
	slices.Reverse(versions) // keys are sorted, and numbers have ten digits
	return versions, nil
}

func readVersion(p Pair) (Version, error) {
	var v Version
	if err := json.Unmarshal(p.Value, &v); err != nil || v.Number == 0 {
		return v, fmt.Errorf("reading %s: it does not describe a version", p.Key)
	}
	return v, nil
}

// ErrNoVersion is that a version is not in the history.
var ErrNoVersion = errors.New("it is not in the history")

// VersionInfo returns what the history says of a version.
func (r *Repository) VersionInfo(ctx context.Context, number uint64) (Version, error) {
	p, err := r.get(ctx, r.versionKey(number))
	switch {
	case err != nil:
		return Version{}, err
	case p == nil:
		return Version{}, fmt.Errorf("version %d: %w", number, ErrNoVersion)
	}
	return readVersion(*p)
}

// Version returns a version and its documents.
func (r *Repository) Version(ctx context.Context, number uint64) (Version, map[string][]byte, error) {
	v, err := r.VersionInfo(ctx, number)
	if err != nil {
		return v, nil, err
	}
	blobs, err := r.store.List(ctx, Query{Prefix: r.history(blobsName)})
	if err != nil {
		return v, nil, err
	}
	contents := map[string][]byte{}
	for _, p := range blobs.Pairs {
		contents[strings.TrimPrefix(p.Key, r.history(blobsName))] = p.Value
	}
	files := make(map[string][]byte, len(v.Files))
	for name, sum := range v.Files {
		value, ok := contents[sum]
		if !ok || blobName(value) != sum {
			return v, nil, fmt.Errorf("version %d: the content of %s is missing in the history (%s)", number, name, r.history(blobsName+sum))
		}
		files[name] = value
	}
	return v, files, nil
}

// get returns one key; nil if it does not exist.
func (r *Repository) get(ctx context.Context, key string) (*Pair, error) {
	listing, err := r.store.List(ctx, Query{Prefix: key})
	if err != nil {
		return nil, err
	}
	for i, p := range listing.Pairs {
		if p.Key == key {
			return &listing.Pairs[i], nil
		}
	}
	return nil, nil
}

// history is a key beside the prefix.
func (r *Repository) history(name string) string { return r.prefix + ".history/" + name }

func (r *Repository) versionKey(number uint64) string {
	return r.history(versionsName + fmt.Sprintf("%010d", number))
}

func (r *Repository) key(name string) string { return r.prefix + "/" + name }

// next is the number of the version after the one that was pushed last. Where
// that is not known, or not true, because somebody changed what says it, the
// history tells.
func (r *Repository) next(ctx context.Context, s *State) (uint64, error) {
	if s.Version > 0 {
		if _, err := r.VersionInfo(ctx, s.Version+1); errors.Is(err, ErrNoVersion) {
			return s.Version + 1, nil
		}
	}
	versions, err := r.Log(ctx)
	if err != nil {
		return 0, err
	}
	next := s.Version + 1
	if len(versions) > 0 {
		next = max(next, versions[0].Number+1)
	}
	if next+1 >= lastVersion {
		return 0, fmt.Errorf("version %d would be too large a number; remove what is wrong in %s", next, r.history(versionsName))
	}
	return next, nil
}

// sameFiles tells whether two sets of documents are alike.
func sameFiles(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, slices.Equal[[]byte]) }
