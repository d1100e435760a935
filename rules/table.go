package rules

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
)

// table finds the node that a value takes among the many of a level, without trying
// each.
type table struct {
	seed     maphash.Seed
	exact    index // by value
	networks networkTable
	stars    starTable

	networksAt, starsAt, othersAt uint32 // where in the level these begin; the first are the exact ones
}

// newTable returns the table of a level's nodes; nil if they are few.
func newTable(nodes []node) *table {
	if len(nodes) <= few {
		return nil
	}
	begin := func(k kind) uint32 {
		at, _ := slices.BinarySearchFunc(nodes, k, func(n node, k kind) int { return int(n.kind) - int(k) })
		return uint32(at)
	}
	t := &table{seed: maphash.MakeSeed(), networksAt: begin(network), starsAt: begin(wildcard), othersAt: begin(regularExpression)}
	exact := nodes[:t.networksAt]
	t.exact = newIndex(len(exact), len(exact))
	for i := range exact {
		t.exact.add(t.text(exact[i].text), i)
	}
	t.networks = newNetworkTable(t.seed, nodes[t.networksAt:t.starsAt])
	t.stars = newStarTable(t, nodes[t.starsAt:t.othersAt])
	return t
}

func (t *table) text(text string) uint64 { return maphash.String(t.seed, text) }

func (t *table) take(nodes []node, value string) *node {
	if t.networksAt > 0 {
		hash := t.text(value)
		for at, i := t.exact.first(hash); i >= 0; at, i = t.exact.next(at, hash) {
			if nodes[i].text == value {
				return &nodes[i]
			}
		}
	}
	if n := t.networks.take(nodes[t.networksAt:t.starsAt], value); n != nil {
		return n
	}
	if n := t.stars.take(t, nodes[t.starsAt:t.othersAt], value); n != nil {
		return n
	}
	others := nodes[t.othersAt:] // regular expressions, each of which costs a match, and any value
	for i := range others {
		if others[i].matches(value) {
			return &others[i]
		}
	}
	return nil
}

// index finds numbers by hashes: open addressing with linear probing, two thirds
// full. A place has a number, plus 1, in its low bits, and of the hash as much as
// the others hold; 0 is free. So others than the one that is meant are seldom met.
// Numbers of one hash are found in the order in which they were added.
type index struct {
	places []uint32
	mask   uint32 // the low bits
}

// newIndex returns an index for n numbers below limit.
func newIndex(n, limit int) index {
	if n == 0 {
		return index{}
	}
	return index{places: make([]uint32, n+n/2+1), mask: 1<<bits.Len(uint(limit)) - 1}
}

func (x *index) add(hash uint64, number int) {
	at := x.home(hash)
	for x.places[at] != 0 {
		at = x.after(at)
	}
	x.places[at] = uint32(hash)&^x.mask | uint32(number+1)
}

func (x *index) home(hash uint64) int {
	at, _ := bits.Mul64(hash, uint64(len(x.places)))
	return int(at)
}

func (x *index) after(at int) int {
	if at++; at == len(x.places) {
		return 0
	}
	return at
}

// first returns a number that may have the hash, and the place to go on from; -1
// if there is none.
func (x *index) first(hash uint64) (at, number int) { return x.from(x.home(hash), hash) }

// next returns the number after the one at that place, as first does.
func (x *index) next(at int, hash uint64) (next, number int) { return x.from(x.after(at), hash) }

func (x *index) from(at int, hash uint64) (found, number int) {
	for ; x.places[at] != 0; at = x.after(at) {
		if (x.places[at]^uint32(hash))&^x.mask == 0 {
			return at, int(x.places[at]&x.mask) - 1
		}
	}
	return at, -1
}

// networkTable finds the longest range that holds an address: one look into an
// index for each length in use.
type networkTable struct {
	seed               maphash.Seed
	lengths4, lengths6 []uint8 // longest first
	ranges             index
}

func newNetworkTable(seed maphash.Seed, nodes []node) networkTable {
	t := networkTable{seed: seed, ranges: newIndex(len(nodes), len(nodes))}
	for i := range nodes { // the longest are the first
		prefix := nodes[i].prefix
		t.ranges.add(t.hash(prefix), i)
		lengths := &t.lengths6
		if prefix.Addr().Is4() {
			lengths = &t.lengths4
		}
		if length := uint8(prefix.Bits()); !slices.Contains(*lengths, length) {
			*lengths = append(*lengths, length)
		}
	}
	return t
}

func (t *networkTable) hash(prefix netip.Prefix) uint64 {
	var text [17]byte
	address := prefix.Addr().As16()
	copy(text[:], address[:])
	text[16] = byte(prefix.Bits())
	return maphash.Bytes(t.seed, text[:])
}

func (t *networkTable) take(nodes []node, value string) *node {
	if len(nodes) == 0 {
		return nil
	}
	addr, ok := parseAddress(value)
	if !ok {
		return nil
	}
	lengths := t.lengths6
	if addr.Is4() {
		lengths = t.lengths4
	}
	for _, length := range lengths {
		prefix, _ := addr.Prefix(int(length)) // the length is one of its family
		hash := t.hash(prefix)
		for at, i := t.ranges.first(hash); i >= 0; at, i = t.ranges.next(at, hash) {
			if nodes[i].prefix == prefix {
				return &nodes[i]
			}
		}
	}
	return nil
}

// starTable finds the wildcard with the most literal characters, of several the
// first in the file: one look into an index for each shape in use, where a shape is
// the lengths of what stands before the first star and after the last. Only
// wildcards of several stars that share both texts are tried one by one.
type starTable struct {
	shapes []starShape // that with the best rank first
}

type starShape struct {
	prefix, suffix int
	best           int   // the place of its first among all wildcards
	ends           index // the wildcards by their ends, those with the same ends in order
}

func newStarTable(t *table, nodes []node) starTable {
	var s starTable
	byLengths := map[[2]int]int{} // index in shapes
	var members []int             // of each shape
	for i := range nodes {
		prefix, suffix := nodes[i].endTexts()
		lengths := [2]int{len(prefix), len(suffix)}
		at, ok := byLengths[lengths]
		if !ok {
			at = len(s.shapes)
			byLengths[lengths] = at
			s.shapes = append(s.shapes, starShape{prefix: lengths[0], suffix: lengths[1], best: i})
			members = append(members, 0)
		}
		members[at]++
	}
	for i := range s.shapes {
		s.shapes[i].ends = newIndex(members[i], len(nodes))
	}
	for i := range nodes {
		prefix, suffix := nodes[i].endTexts()
		s.shapes[byLengths[[2]int{len(prefix), len(suffix)}]].ends.add(t.ends(prefix, suffix), i)
	}
	return s
}

func (t *table) ends(prefix, suffix string) uint64 {
	return t.text(prefix) ^ bits.RotateLeft64(t.text(suffix), 1)
}

func (s *starTable) take(t *table, nodes []node, value string) *node {
	best := len(nodes)
	for i := range s.shapes {
		shape := &s.shapes[i]
		if shape.best > best {
			break
		}
		if len(value) < shape.prefix+shape.suffix {
			continue
		}
		hash := t.ends(value[:shape.prefix], value[len(value)-shape.suffix:])
		for at, i := shape.ends.first(hash); i >= 0 && i < best; at, i = shape.ends.next(at, hash) {
			if nodes[i].matches(value) {
				best = i
			}
		}
	}
	if best == len(nodes) {
		return nil
	}
	return &nodes[best]
}
