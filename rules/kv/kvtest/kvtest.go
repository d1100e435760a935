// Package kvtest is the acceptance suite that every kv.Store passes.
package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/rules/kv"
)

// soon is within how long a store answers, also on a machine that is busy; a call
// that takes longer than patience fails, and never is longer than any takes.
const (
	soon     = 20 * time.Second
	patience = 3 * soon
	never    = 10 * time.Minute
)

// Run runs the suite. Each of its tests opens a store, which may be on the same
// server as others: it keeps to keys of its own, beneath "kvtest".
func Run(t *testing.T, open func(t *testing.T) kv.Store) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"NothingIsListedWhereNothingIs", testEmpty},
		{"KeysAndValuesOfAnyBytes", testBytes},
		{"APrefixIsExact", testPrefix},
		{"EveryWriteHasANewVersion", testVersions},
		{"AListingWaitsForAChange", testWait},
		{"AChangeThatWasMissedIsSeenAtOnce", testMissed},
		{"WithoutAChangeTheWaitEnds", testNoChange},
		{"AnOpIsDoneOnlyIfItsVersionHolds", testConditions},
		{"AllOfACommitOrNothing", testAllOrNothing},
		{"OpsUpToTheLimit", testMostOps},
		{"BytesUpToTheLimit", testMostBytes},
		{"AValueUpToTheLimit", testMostValue},
		{"OfWritersAtOnceOneWins", testWriters},
		{"NobodySeesHalfACommit", testHalves},
		{"ACallerThatLeavesIsLetGo", testCancel},
		{"ManyAtOnce", testMany},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			prefix := fmt.Sprintf("kvtest%d-%d/", time.Now().UnixNano(), prefixes.Add(1))
			test.run(&suite{T: t, store: open(t), prefix: prefix})
		})
	}
}

// prefixes tells those of tests apart that begin at the same time.
var prefixes atomic.Int64

// suite is one test, with a store and a prefix of its own.
type suite struct {
	*testing.T
	store  kv.Store
	prefix string
}

func (s *suite) key(name string) string { return s.prefix + name }

// list lists at once.
func (s *suite) list() kv.Listing {
	s.Helper()
	return s.query(kv.Query{Prefix: s.prefix})
}

// query lists, and holds what is promised of any listing.
func (s *suite) query(q kv.Query) kv.Listing {
	s.Helper()
	l, err := s.tryQuery(q)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

// tryQuery is query for other goroutines than the test's.
func (s *suite) tryQuery(q kv.Query) (kv.Listing, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := s.store.List(ctx, q)
	if err != nil {
		return l, fmt.Errorf("List(%+v): %w", q, err)
	}
	if l.Index == 0 {
		return l, fmt.Errorf("List(%+v): the index is 0", q)
	}
	for i, p := range l.Pairs {
		switch {
		case !strings.HasPrefix(p.Key, q.Prefix):
			return l, fmt.Errorf("List(%+v): it has %q", q, p.Key)
		case i > 0 && l.Pairs[i-1].Key >= p.Key:
			return l, fmt.Errorf("List(%+v): %q comes before %q", q, l.Pairs[i-1].Key, p.Key)
		case p.Version == 0:
			return l, fmt.Errorf("List(%+v): %q has version 0", q, p.Key)
		}
	}
	return l, nil
}

// commit commits what has to succeed.
func (s *suite) commit(ops ...kv.Op) (version uint64) {
	s.Helper()
	version, err := s.try(ops...)
	if err != nil {
		s.Fatalf("Commit(%s): %v", show(ops), err)
	}
	return version
}

func (s *suite) try(ops ...kv.Op) (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.store.Commit(ctx, ops)
}

// put writes a key, whatever it was.
func (s *suite) put(name, value string) (version uint64) {
	s.Helper()
	return s.commit(kv.Op{Kind: kv.Put, Key: s.key(name), If: kv.AnyVersion, Value: []byte(value)})
}

// holds lists until that is exactly the pairs, given as name=value in the order
// of their keys: a listing that is not stale has all that was committed.
func (s *suite) holds(want ...string) kv.Listing {
	s.Helper()
	l := s.list()
	if got := s.flat(l); !slices.Equal(got, want) {
		s.Fatalf("it holds %q, want %q", got, want)
	}
	return l
}

// flat is a listing as name=value.
func (s *suite) flat(l kv.Listing) []string {
	var flat []string
	for _, p := range l.Pairs {
		flat = append(flat, strings.TrimPrefix(p.Key, s.prefix)+"="+string(p.Value))
	}
	return flat
}

// version is that of a key in a listing; 0: it is not there.
func (s *suite) version(l kv.Listing, name string) uint64 {
	for _, p := range l.Pairs {
		if p.Key == s.key(name) {
			return p.Version
		}
	}
	return 0
}

func same(a, b []kv.Pair) bool {
	return slices.EqualFunc(a, b, func(a, b kv.Pair) bool {
		return a.Key == b.Key && a.Version == b.Version && bytes.Equal(a.Value, b.Value)
	})
}

// show is ops in a line that can be read.
func show(ops []kv.Op) string {
	kinds := map[kv.OpKind]string{kv.Check: "check", kv.Put: "put", kv.Delete: "delete"}
	var texts []string
	for _, op := range ops[:min(len(ops), 5)] {
		version := fmt.Sprint(op.If)
		if op.If == kv.AnyVersion {
			version = "any"
		}
		texts = append(texts, fmt.Sprintf("%s %q if %s (%d bytes)", kinds[op.Kind], op.Key, version, len(op.Value)))
	}
	if len(ops) > 5 {
		texts = append(texts, fmt.Sprintf("%d more", len(ops)-5))
	}
	return strings.Join(texts, ", ")
}
