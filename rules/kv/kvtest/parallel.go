package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"weir/rules/kv"
)

// Each round, all write the same key as they have read it.
func testWriters(s *suite) {
	large := bytes.Repeat([]byte("x"), s.store.Limits().Value)
	for _, c := range []struct {
		remark  string
		rounds  int
		writers int
		ops     func(writer int, version uint64) []kv.Op
	}{
		{"one key", 20, 8, func(writer int, version uint64) []kv.Op {
			return []kv.Op{{Kind: kv.Put, Key: s.key("a"), If: version, Value: fmt.Append(nil, writer)}}
		}},
		{"a key and a key of their own", 20, 8, func(writer int, version uint64) []kv.Op {
			return []kv.Op{
				{Kind: kv.Put, Key: s.key(fmt.Sprintf("own/%d", writer)), If: kv.AnyVersion, Value: fmt.Append(nil, writer)},
				{Kind: kv.Put, Key: s.key("a"), If: version, Value: []byte("same")}}
		}},
		{"a value of the largest size", 5, 4, func(writer int, version uint64) []kv.Op {
			value := bytes.Clone(large)
			value[0] = byte(writer)
			return []kv.Op{{Kind: kv.Put, Key: s.key("a"), If: version, Value: value}}
		}},
	} {
		for range c.rounds {
			version := s.version(s.list(), "a")
			var won atomic.Int64
			var winner atomic.Uint64
			var writing sync.WaitGroup
			for writer := range c.writers {
				writing.Go(func() {
					now, err := s.try(c.ops(writer, version)...)
					switch {
					case err == nil:
						won.Add(1)
						winner.Store(now)
					case !errors.Is(err, kv.ErrConflict):
						s.Errorf("%s: %v", c.remark, err)
					}
				})
			}
			writing.Wait()
			if n := won.Load(); n != 1 {
				s.Fatalf("%s: %d of %d writers have won", c.remark, n, c.writers)
			}
			if now := s.version(s.list(), "a"); now != winner.Load() {
				s.Fatalf("%s: the winner wrote version %d, and there is %d", c.remark, winner.Load(), now)
			}
		}
	}
}

// A writer changes twenty keys together, again and again, and readers list them
// in every way.
func testHalves(s *suite) {
	const keys, rounds = 20, 100
	turn := func(round int) []kv.Op {
		var ops []kv.Op
		for i := range keys {
			op := kv.Op{Kind: kv.Put, Key: s.key(fmt.Sprintf("%02d", i)), If: kv.AnyVersion, Value: fmt.Append(nil, round)}
			if i%2 == 0 && round%2 == 1 { // half of them come and go
				op = kv.Op{Kind: kv.Delete, Key: op.Key, If: kv.AnyVersion}
			}
			ops = append(ops, op)
		}
		return ops
	}
	s.commit(turn(0)...)
	var over atomic.Bool
	var reading sync.WaitGroup
	for reader := range 4 {
		reading.Go(func() {
			q := kv.Query{Prefix: s.prefix, Stale: reader%2 == 0}
			seen := 0
			for ; !over.Load(); seen++ {
				l, err := s.tryQuery(q)
				if err != nil {
					s.Error(err)
					return
				}
				round := string(l.Pairs[len(l.Pairs)-1].Value)
				want := keys
				if last := round[len(round)-1]; (last-'0')%2 == 1 {
					want = keys / 2
				}
				for _, p := range l.Pairs {
					if string(p.Value) != round || p.Version != l.Pairs[0].Version || len(l.Pairs) != want {
						s.Errorf("half of a commit: %q", s.flat(l))
						return
					}
				}
				if reader >= 2 { // these wait for changes
					q.Since, q.Wait = l.Index, soon
				}
			}
			s.Logf("reader %d has listed %d times", reader, seen)
		})
	}
	for round := range rounds {
		s.commit(turn(round + 1)...)
	}
	over.Store(true)
	s.commit(turn(0)...) // for those who wait
	reading.Wait()
}

// Everything at once on one store: for the race detector, and for answers that
// get to another caller.
func testMany(s *suite) {
	var running sync.WaitGroup
	for n := range 8 {
		running.Go(func() {
			mine := *s
			mine.prefix = s.key(fmt.Sprintf("%d/", n))
			version := uint64(0)
			for round := range 10 {
				before, err := mine.tryQuery(kv.Query{Prefix: mine.prefix, Stale: round%2 == 0})
				if err != nil {
					s.Error(err)
					return
				}
				version, err = mine.try(kv.Op{Kind: kv.Put, Key: mine.key("a"), If: version, Value: fmt.Append(nil, round)})
				if err != nil {
					s.Errorf("writer %d: %v", n, err)
					return
				}
				after, err := mine.changes(before, round%3 == 0)
				if err != nil || mine.version(after, "a") != version {
					s.Errorf("writer %d wrote version %d, and there is %+v, %v", n, version, after.Pairs, err)
					return
				}
			}
		})
	}
	running.Wait()
}
