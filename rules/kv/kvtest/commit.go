package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/rules/kv"
)

// condition is an op on a key that is there or not.
type condition struct {
	kind   kv.OpKind
	exists bool   // the key
	when   string // what If is: none, now, once (a version that it had), never, any
	done   bool   // or a conflict
	remark string
}

func conditions() []condition {
	const put, remove, check = kv.Put, kv.Delete, kv.Check
	return []condition{
		{put, false, "none", true, "a new key"},
		{put, true, "none", false, "a new key that is there"},
		{put, true, "now", true, "as it was read"},
		{put, true, "once", false, "changed since"},
		{put, false, "once", false, "removed since"},
		{put, true, "never", false, "a version that there is not"},
		{put, false, "never", false, "of a key that there is not"},
		{put, true, "any", true, "whatever it is"},
		{put, false, "any", true, "whether it is or not"},

		{remove, true, "now", true, "as it was read"},
		{remove, true, "once", false, "changed since"},
		{remove, false, "once", false, "removed since"},
		{remove, true, "never", false, "a version that there is not"},
		{remove, true, "none", false, "only if it is not there"},
		{remove, false, "none", true, "which it is not"},
		{remove, true, "any", true, "whatever it is"},
		{remove, false, "any", true, "whether it is or not"},

		{check, true, "now", true, "as it was read"},
		{check, true, "once", false, "changed since"},
		{check, false, "once", false, "removed since"},
		{check, true, "never", false, "a version that there is not"},
		{check, true, "none", false, "that it is not there"},
		{check, false, "none", true, "that it is not there, as it is"},
		{check, true, "any", true, "whatever it is"},
		{check, false, "any", true, "whether it is or not"},
	}
}

func testConditions(s *suite) {
	for i, c := range conditions() {
		name := fmt.Sprintf("%02d", i)
		versions := map[string]uint64{"any": kv.AnyVersion, "once": s.put(name, "first"), "never": 1 << 40}
		versions["now"] = s.put(name, "before")
		if !c.exists {
			s.commit(kv.Op{Kind: kv.Delete, Key: s.key(name), If: kv.AnyVersion})
		}
		op := kv.Op{Kind: c.kind, Key: s.key(name), If: versions[c.when]}
		if c.kind == kv.Put {
			op.Value = []byte("after")
		}
		if c.done {
			c.succeeds(s, op)
			continue
		}
		c.conflicts(s, op)
		c.conflicts(s, op, kv.Op{Kind: kv.Put, Key: s.key("with"), If: kv.AnyVersion})
	}
	if l := s.query(kv.Query{Prefix: s.key("with")}); len(l.Pairs) != 0 {
		s.Errorf("a conflict has left %q", s.flat(l))
	}
}

func (c condition) succeeds(s *suite, op kv.Op) {
	s.Helper()
	ops := []kv.Op{op}
	before := s.query(kv.Query{Prefix: op.Key})
	version, err := s.try(ops...)
	after := s.query(kv.Query{Prefix: op.Key})
	as := false // they should be
	switch c.kind {
	case kv.Put:
		as = same(after.Pairs, []kv.Pair{{Key: op.Key, Version: version, Value: op.Value}})
	case kv.Delete:
		as = len(after.Pairs) == 0 && version == 0
	case kv.Check:
		as = same(after.Pairs, before.Pairs) && version == 0
	}
	if err != nil || !as {
		s.Errorf("%s, %s: version %d, %v; there was %+v and is %+v", show(ops), c.remark, version, err, before.Pairs, after.Pairs)
	}
}

func (c condition) conflicts(s *suite, ops ...kv.Op) {
	s.Helper()
	before := s.query(kv.Query{Prefix: ops[0].Key})
	_, err := s.try(ops...)
	if !errors.Is(err, kv.ErrConflict) {
		s.Errorf("%s, %s: %v, want a conflict", show(ops), c.remark, err)
	} else if !strings.Contains(err.Error(), ops[0].Key) {
		s.Errorf("%s, %s: the conflict does not name the key: %v", show(ops), c.remark, err)
	}
	if after := s.query(kv.Query{Prefix: ops[0].Key}); !same(before.Pairs, after.Pairs) {
		s.Errorf("%s, %s: in spite of a conflict there was %+v and is %+v", show(ops), c.remark, before.Pairs, after.Pairs)
	}
}

func testAllOrNothing(s *suite) {
	s.put("a", "1")
	s.put("b", "1")
	s.put("c", "1")
	before := s.holds("a=1", "b=1", "c=1")
	good := []kv.Op{
		{Kind: kv.Put, Key: s.key("a"), If: s.version(before, "a"), Value: []byte("2")},
		{Kind: kv.Put, Key: s.key("new"), If: 0, Value: []byte("2")},
		{Kind: kv.Delete, Key: s.key("b"), If: s.version(before, "b")},
		{Kind: kv.Delete, Key: s.key("c"), If: kv.AnyVersion},
		{Kind: kv.Check, Key: s.key("none"), If: 0},
	}
	for _, bad := range []kv.Op{
		{Kind: kv.Check, Key: s.key("x"), If: 1 << 40},
		{Kind: kv.Put, Key: s.key("x"), If: 1 << 40},
		{Kind: kv.Delete, Key: s.key("x"), If: 1 << 40},
	} {
		for at := range len(good) + 1 {
			ops := slices.Insert(slices.Clone(good), at, bad)
			if _, err := s.try(ops...); !errors.Is(err, kv.ErrConflict) {
				s.Fatalf("Commit(%s): %v", show(ops), err)
			}
			if after := s.list(); !same(before.Pairs, after.Pairs) {
				s.Fatalf("a conflict has left %q", s.flat(after))
			}
		}
	}
	s.commit(good...)
	s.holds("a=2", "new=2")
	if version, err := s.try(); err != nil || version != 0 {
		s.Errorf("a Commit of nothing: version %d, %v", version, err)
	}
}

func testMostOps(s *suite) {
	n := s.store.Limits().Ops
	if n < 10 {
		s.Fatalf("a commit takes %d ops", n)
	}
	each := func(op func(name string, l kv.Listing) kv.Op) {
		s.Helper()
		l := s.list()
		var ops []kv.Op
		for i := range n {
			name := fmt.Sprintf("%04d", i)
			o := op(name, l)
			o.Key = s.key(name)
			ops = append(ops, o)
		}
		s.commit(ops...)
	}
	each(func(string, kv.Listing) kv.Op { return kv.Op{Kind: kv.Check} })
	each(func(name string, _ kv.Listing) kv.Op { return kv.Op{Kind: kv.Put, Value: []byte(name)} })
	each(func(name string, l kv.Listing) kv.Op {
		return kv.Op{Kind: kv.Put, If: s.version(l, name), Value: []byte("x" + name)}
	})
	each(func(name string, l kv.Listing) kv.Op { return kv.Op{Kind: kv.Check, If: s.version(l, name)} })
	l := s.list()
	if len(l.Pairs) != n {
		s.Fatalf("it holds %d keys, want %d", len(l.Pairs), n)
	}
	for i, p := range l.Pairs {
		if want := fmt.Sprintf("x%04d", i); string(p.Value) != want || p.Version != l.Pairs[0].Version {
			s.Fatalf("%s is %q with version %d, want %q with %d", p.Key, p.Value, p.Version, want, l.Pairs[0].Version)
		}
	}
	each(func(name string, l kv.Listing) kv.Op { return kv.Op{Kind: kv.Delete, If: s.version(l, name)} })
	s.holds()
	each(func(string, kv.Listing) kv.Op { return kv.Op{Kind: kv.Put, If: kv.AnyVersion} })
	each(func(string, kv.Listing) kv.Op { return kv.Op{Kind: kv.Delete, If: kv.AnyVersion} })
	s.holds()
}

func testMostBytes(s *suite) {
	limits := s.store.Limits()
	value := bytes.Repeat([]byte{0, 0xff, '<', '"', 'a'}, limits.Bytes/5+1)
	for _, n := range []int{1, 2, limits.Ops} {
		var ops []kv.Op
		for i := range n {
			op := kv.Op{Kind: kv.Put, Key: s.key(fmt.Sprintf("%d/a folder/of usual length/%04d.yaml", n, i)), If: 0}
			size := (limits.Bytes*(i+1))/n - (limits.Bytes*i)/n // which add up to all
			op.Value = value[:size-len(op.Key)]
			ops = append(ops, op)
		}
		version := s.commit(ops...)
		l := s.query(kv.Query{Prefix: s.key(fmt.Sprint(n))})
		if len(l.Pairs) != n {
			s.Fatalf("it holds %d keys, want %d", len(l.Pairs), n)
		}
		for i, p := range l.Pairs {
			if p.Version != version || !bytes.Equal(p.Value, ops[i].Value) {
				s.Fatalf("%s has version %d and %d bytes, want %d and %d", p.Key, p.Version, len(p.Value), version, len(ops[i].Value))
			}
		}
	}
	// As large as it may be, with company.
	half := kv.Op{Kind: kv.Put, Key: s.key("half"), If: 0, Value: value[:limits.Bytes/2]}
	none := kv.Op{Kind: kv.Check, Key: s.key("none"), If: 0}
	half.Value = value[:limits.Bytes-len(half.Key)-len(none.Key)]
	s.commit(half, none)
}

func testMostValue(s *suite) {
	most := s.store.Limits().Value
	value := bytes.Repeat([]byte{'x', 0, 0xff}, most/3+1)[:most]
	put := func(first byte, version uint64) (uint64, error) {
		mine := bytes.Clone(value)
		mine[0] = first
		return s.try(kv.Op{Kind: kv.Put, Key: s.key("a"), If: version, Value: mine})
	}
	must := func(version uint64, err error) uint64 {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
		return version
	}
	stands := func(first byte, version uint64) {
		s.Helper()
		l := s.list()
		if len(l.Pairs) != 1 || len(l.Pairs[0].Value) != most || l.Pairs[0].Value[0] != first || !bytes.Equal(l.Pairs[0].Value[1:], value[1:]) {
			s.Fatalf("it does not hold the value of %d bytes", most)
		}
		if l.Pairs[0].Version != version {
			s.Fatalf("Commit says version %d, List %d", version, l.Pairs[0].Version)
		}
	}
	first := must(put('1', 0))
	stands('1', first)
	if _, err := put('2', 0); !errors.Is(err, kv.ErrConflict) {
		s.Errorf("a new key that is there: %v", err)
	}
	second := must(put('3', first))
	stands('3', second)
	if _, err := put('4', first); !errors.Is(err, kv.ErrConflict) {
		s.Errorf("a key that was changed since: %v", err)
	}
	third := must(put('3', kv.AnyVersion)) // the same again
	if third == second {
		s.Error("the same value again has the same version")
	}
	stands('3', third)
	s.commit(kv.Op{Kind: kv.Delete, Key: s.key("a"), If: third})
	if _, err := put('5', third); !errors.Is(err, kv.ErrConflict) {
		s.Errorf("a key that was removed since: %v", err)
	}
	s.holds()
}
