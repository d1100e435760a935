// Package kv keeps rules in a key-value store: every key beneath a prefix is a
// YAML document. It reads them as a source of rules, and pushes whole sets of
// them as versions with a history. Consul and etcd are such stores.
package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Pair is a key and its value.
type Pair struct {
	Key     string
	Value   []byte
	Version uint64 // never 0, and another one after each write of the key
}

// Listing is what stood beneath a prefix at one moment.
type Listing struct {
	Pairs []Pair // sorted by key
	Index uint64 // of that moment, over 0; not to be compared with a pair's Version
}

// Query says what to list.
type Query struct {
	Prefix string
	Since  uint64        // 0: list at once; else wait for a change after the listing with this Index
	Wait   time.Duration // how long, at most; then what stands is listed, changed or not
	Stale  bool          // any server may answer, from what it knows
}

// Reader lists.
type Reader interface {
	// List returns all pairs whose keys begin with the prefix, as of one moment: a
	// transaction is in it as a whole or not at all. With Since it may also return
	// early, with what has not changed. An Index below Since means that the store
	// began anew, or that another server answered that is behind. It returns
	// ErrDenied, or what else went wrong, always with what was being done to what;
	// if the store hangs, some seconds after Wait at the latest. It is safe for
	// concurrent use.
	List(ctx context.Context, q Query) (Listing, error)
}

// AnyVersion is the Op.If of a write that does not look at what stands there.
const AnyVersion = ^uint64(0)

// Op is what to do with one key, if it has the version If; 0: if it does not
// exist.
type Op struct {
	Kind  OpKind
	Key   string
	If    uint64
	Value []byte // to put
}

// OpKind is what an Op does.
type OpKind int

// The kinds of Op.
const (
	Check  OpKind = iota // nothing, but that If must hold
	Put                  // write Value
	Delete               // remove the key
)

// Writer changes several keys at once.
type Writer interface {
	// Commit does all ops, each on a key of its own, in one transaction. If one
	// cannot be done it does none, and returns ErrConflict where an If did not
	// hold, ErrDenied where rights are missing. After any other error the ops may
	// have been done or not. It returns the version that all keys have which were
	// put. It is safe for concurrent use.
	Commit(ctx context.Context, ops []Op) (version uint64, err error)

	// Limits returns what one Commit can take.
	Limits() Limits
}

// Limits are how much one Commit takes. A single Put may have a value of up to
// Value bytes, also where that is more than Bytes.
type Limits struct {
	Ops   int
	Bytes int // of all keys and values together
	Value int
}

// Store is a key-value store.
type Store interface {
	Reader
	Writer
}

// ErrConflict is that a key has not the version that was expected.
var ErrConflict = errors.New("changed in the meantime")

// ErrDenied is that the caller lacks a right.
var ErrDenied = errors.New("permission denied")

// Denied says that a right is missing, and which. It is an ErrDenied.
func Denied(doing, right string, cause error) error {
	return fmt.Errorf("%s: %w: %s is needed: %w", doing, ErrDenied, right, cause)
}
