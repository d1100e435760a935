package kvtest

import (
	"context"
	"errors"
	"strings"
	"time"

	"weir/rules/kv"
)

func testEmpty(s *suite) {
	s.holds()
	if l := s.query(kv.Query{Prefix: s.prefix, Stale: true}); len(l.Pairs) != 0 {
		s.Errorf("stale, it holds %q", s.flat(l))
	}
	s.put("a", "1")
	s.holds("a=1")
	s.commit(kv.Op{Kind: kv.Delete, Key: s.key("a"), If: kv.AnyVersion})
	s.holds()
}

func testBytes(s *suite) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	values := []string{"", "\x00", "plain", "é\r\n\t\"\\", "\xff\xfe", string(all), strings.Repeat("long ", 5000)}
	// In the order of their bytes.
	names := []string{" ", "!", `"quoted"`, "#frag", "%", "%2F", "&a=b", "+", "<html>", "=", "?recurse", "Upper", "a b", "a/b/c", "a:b", "~", "é", "日本", "🦆"}
	var want []string
	for i, name := range names {
		value := values[i%len(values)]
		s.put(name, value)
		want = append(want, name+"="+value)
	}
	s.holds(want...)
	for i, name := range names { // and any key is a prefix
		got := s.query(kv.Query{Prefix: s.key(name)})
		if len(got.Pairs) == 0 || got.Pairs[0].Key != s.key(name) || string(got.Pairs[0].Value) != values[i%len(values)] {
			s.Errorf("beneath %q it holds %q", name, s.flat(got))
		}
	}
	l := s.list()
	for _, name := range names {
		s.commit(kv.Op{Kind: kv.Delete, Key: s.key(name), If: s.version(l, name)})
	}
	s.holds()
}

func testPrefix(s *suite) {
	for _, name := range []string{"a", "a/", "a/b", "a/b/c", "a0", "ab", "b/a/b", "A/b"} {
		s.put(name, "")
	}
	for _, c := range []struct{ prefix, want string }{
		{"", "A/b= a= a/= a/b= a/b/c= a0= ab= b/a/b="},
		{"a", "a= a/= a/b= a/b/c= a0= ab="},
		{"a/", "a/= a/b= a/b/c="},
		{"a/b", "a/b= a/b/c="},
		{"a/b/", "a/b/c="},
		{"a/b/c/", ""},
		{"A", "A/b="},
		{"c", ""},
	} {
		if got := strings.Join(s.flat(s.query(kv.Query{Prefix: s.key(c.prefix)})), " "); got != c.want {
			s.Errorf("beneath %q it holds %q, want %q", c.prefix, got, c.want)
		}
	}
}

func testVersions(s *suite) {
	seen := map[uint64]string{}
	note := func(version uint64, what string) {
		s.Helper()
		if before, ok := seen[version]; ok || version == 0 {
			s.Fatalf("%s: version %d, as %s", what, version, before)
		}
		seen[version] = what
	}
	other := s.put("other", "1")
	index := s.list().Index
	for _, value := range []string{"1", "2", "2", "", ""} { // also the same again
		version := s.put("a", value)
		note(version, "put "+value)
		l := s.list()
		if got := s.version(l, "a"); got != version {
			s.Fatalf("Commit says version %d, List %d", version, got)
		}
		if l.Index <= index {
			s.Fatalf("the index was %d before a write, and is %d after it", index, l.Index)
		}
		index = l.Index
	}
	s.commit(kv.Op{Kind: kv.Delete, Key: s.key("a"), If: kv.AnyVersion})
	note(s.put("a", "2"), "put after a delete")
	if got := s.version(s.list(), "other"); got != other {
		s.Errorf("a key that nobody wrote had version %d, and has %d", other, got)
	}
	version := s.commit(
		kv.Op{Kind: kv.Put, Key: s.key("a"), If: kv.AnyVersion, Value: []byte("2")},
		kv.Op{Kind: kv.Put, Key: s.key("b"), If: 0, Value: []byte("2")},
		kv.Op{Kind: kv.Check, Key: s.key("other"), If: other},
	)
	note(version, "put two")
	if l := s.list(); s.version(l, "a") != version || s.version(l, "b") != version || s.version(l, "other") != other {
		s.Errorf("after Commit said version %d, there are %+v", version, l.Pairs)
	}
}

// changes lists from an index on until something is changed, as a source does. A
// store may return early, but not all the time.
func (s *suite) changes(since kv.Listing, stale bool) (kv.Listing, error) {
	for range 5 {
		l, err := s.tryQuery(kv.Query{Prefix: s.prefix, Since: since.Index, Wait: never, Stale: stale})
		if err != nil || !same(l.Pairs, since.Pairs) {
			return l, err
		}
		since.Index = l.Index
	}
	return kv.Listing{}, errors.New("it returned five times with nothing changed")
}

func testWait(s *suite) {
	s.put("kept", "1")
	for _, step := range []struct {
		remark string
		ops    []kv.Op
	}{
		{"a new key", []kv.Op{{Kind: kv.Put, Key: s.key("a"), Value: []byte("1")}}},
		{"a key that is written again", []kv.Op{{Kind: kv.Put, Key: s.key("a"), If: kv.AnyVersion, Value: []byte("2")}}},
		{"several keys", []kv.Op{
			{Kind: kv.Put, Key: s.key("b"), Value: []byte("1")},
			{Kind: kv.Put, Key: s.key("c/d"), Value: []byte("1")},
			{Kind: kv.Delete, Key: s.key("a"), If: kv.AnyVersion}}},
		{"a key that is removed", []kv.Op{{Kind: kv.Delete, Key: s.key("b"), If: kv.AnyVersion}}},
		{"all that are left", []kv.Op{
			{Kind: kv.Delete, Key: s.key("c/d"), If: kv.AnyVersion},
			{Kind: kv.Delete, Key: s.key("kept"), If: kv.AnyVersion}}},
		{"a key where none was", []kv.Op{{Kind: kv.Put, Key: s.key("z"), Value: []byte("1")}}},
	} {
		for _, stale := range []bool{false, true} {
			before := s.list()
			if stale { // the same once more, on what the step has left
				s.put("stale", step.remark)
				before = s.list()
			}
			type result struct {
				kv.Listing
				err error
			}
			done := make(chan result, 1)
			go func() {
				l, err := s.changes(before, stale)
				done <- result{l, err}
			}()
			select {
			case got := <-done:
				s.Fatalf("%s: before, it returned %q, %v", step.remark, s.flat(got.Listing), got.err)
			case <-time.After(300 * time.Millisecond): // by then it waits, and if not, the test still holds
			}
			if stale {
				s.commit(kv.Op{Kind: kv.Delete, Key: s.key("stale"), If: kv.AnyVersion})
			} else {
				s.commit(step.ops...)
			}
			select {
			case got := <-done:
				if got.err != nil || got.Index <= before.Index {
					s.Fatalf("%s: index %d, %v", step.remark, got.Index, got.err)
				}
				if want := s.list(); !same(got.Pairs, want.Pairs) {
					s.Fatalf("%s: it woke with %q, and holds %q", step.remark, s.flat(got.Listing), s.flat(want))
				}
			case <-time.After(soon):
				s.Fatalf("%s: nothing within %v", step.remark, soon)
			}
		}
	}
}

func testMissed(s *suite) {
	first := s.list()
	s.put("a", "1")
	second := s.list()
	s.put("a", "2")
	s.put("a", "3")
	third := s.list()
	s.commit(kv.Op{Kind: kv.Delete, Key: s.key("a"), If: kv.AnyVersion})
	for _, c := range []struct {
		since  kv.Listing
		remark string
	}{{first, "all"}, {second, "three changes"}, {third, "a removal"}} {
		begin := time.Now()
		got := s.query(kv.Query{Prefix: s.prefix, Since: c.since.Index, Wait: never})
		if took := time.Since(begin); took > soon {
			s.Errorf("%s: it took %v", c.remark, took)
		}
		if len(got.Pairs) != 0 || got.Index <= c.since.Index {
			s.Errorf("%s: from index %d it has come to %d, %q", c.remark, c.since.Index, got.Index, s.flat(got))
		}
	}
}

func testNoChange(s *suite) {
	for _, name := range []string{"", "a", "b"} {
		if name != "" {
			s.put(name, "1")
		}
		before := s.list()
		begin := time.Now()
		got := s.query(kv.Query{Prefix: s.prefix, Since: before.Index, Wait: 400 * time.Millisecond})
		if took := time.Since(begin); took > soon {
			s.Errorf("it waited %v", took)
		}
		if !same(got.Pairs, before.Pairs) || got.Index < before.Index {
			s.Errorf("before, %+v, then %+v", before, got)
		}
		begin = time.Now()
		got = s.query(kv.Query{Prefix: s.prefix, Since: before.Index}) // no wait at all
		if took := time.Since(begin); took > soon || !same(got.Pairs, before.Pairs) {
			s.Errorf("after %v, %+v, then %+v", took, before, got)
		}
	}
}

func testCancel(s *suite) {
	s.put("a", "1")
	since := s.list().Index
	gone, leave := context.WithCancel(context.Background())
	leave()
	if _, err := s.store.List(gone, kv.Query{Prefix: s.prefix}); !errors.Is(err, context.Canceled) {
		s.Errorf("List of one who has left: %v", err)
	}
	if _, err := s.store.Commit(gone, []kv.Op{{Kind: kv.Put, Key: s.key("b")}}); !errors.Is(err, context.Canceled) {
		s.Errorf("Commit of one who has left: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	for ctx.Err() == nil { // it may return early
		_, err := s.store.List(ctx, kv.Query{Prefix: s.prefix, Since: since, Wait: never})
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("List of one who leaves: %v", err)
		}
	}
	if took := time.Since(begin); took > soon {
		s.Errorf("it was let go after %v", took)
	}
}
