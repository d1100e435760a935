package rules

import (
	"cmp"
	"net/netip"
	"slices"
)

// node is what a path leads to: a rule, ways on, or both.
type node struct {
	levels map[string]*level // by the key of the next entry
	rule   *Rule             // nil: the node only takes values
	way    place             // where it was first stated
	file   string
}

// level is the ways on from a node for one key.
type level struct {
	edges []*edge // all, in file order

	exact    map[string]*edge
	networks networkTable
	stars    starTable
	regexps  []*edge // in file order: each costs a match
	any      *edge
}

// edge is one way on: the values that take it, and where it leads.
type edge struct {
	pattern
	key string
	to  *node
}

// builder makes the tree of a domain. Levels find their edges by id only while
// they are built.
type builder struct {
	root  *node
	edges map[*node]map[edgeID]*edge
}

type edgeID struct{ key, pattern string }

func newBuilder() *builder {
	return &builder{root: &node{}, edges: map[*node]map[edgeID]*edge{}}
}

// reach returns the node at the end of the path, and makes what is not there.
func (b *builder) reach(file string, d *draft) *node {
	at := b.root
	for i := range d.path {
		s := &d.path[i]
		id := edgeID{s.key, s.value.id()}
		e := b.edges[at][id]
		if e == nil {
			e = &edge{pattern: s.value, key: s.key, to: &node{way: d.at, file: file}}
			b.add(at, id, e)
		}
		at = e.to
	}
	return at
}

func (b *builder) add(from *node, id edgeID, e *edge) {
	if b.edges[from] == nil {
		b.edges[from] = map[edgeID]*edge{}
		from.levels = map[string]*level{}
	}
	b.edges[from][id] = e
	l := from.levels[e.key]
	if l == nil {
		l = &level{exact: map[string]*edge{}}
		from.levels[e.key] = l
	}
	l.edges = append(l.edges, e)
}

// finish builds the tables of all levels.
func (n *node) finish() {
	for _, l := range n.levels {
		var networks, stars []*edge
		for _, e := range l.edges {
			switch e.kind {
			case exactValue:
				l.exact[e.text] = e
			case network:
				networks = append(networks, e)
			case wildcard:
				stars = append(stars, e)
			case regularExpression:
				l.regexps = append(l.regexps, e)
			case anyValue:
				l.any = e
			}
			e.to.finish()
		}
		l.networks, l.stars = newNetworkTable(networks), newStarTable(stars)
	}
}

// find returns the node that the entries lead to, or nil. A way once taken is
// never left for another.
func (n *node) find(entries []Entry) *node {
	for i := range entries {
		l := n.levels[entries[i].Key]
		if l == nil {
			return nil
		}
		e := l.take(entries[i].Value)
		if e == nil {
			return nil
		}
		n = e.to
	}
	return n
}

// take returns the edge that the value takes, or nil.
func (l *level) take(value string) *edge {
	if e := l.exact[value]; e != nil {
		return e
	}
	if e := l.networks.take(value); e != nil {
		return e
	}
	if e := l.stars.take(value); e != nil {
		return e
	}
	for _, e := range l.regexps {
		if e.re.MatchString(value) {
			return e
		}
	}
	return l.any
}

// networkTable finds the longest range that holds an address: one look into a
// map for each length in use.
type networkTable struct {
	lengths4, lengths6 []int // longest first
	edges              map[netip.Prefix]*edge
}

func newNetworkTable(edges []*edge) networkTable {
	t := networkTable{edges: make(map[netip.Prefix]*edge, len(edges))}
	for _, e := range edges {
		t.edges[e.prefix] = e
		lengths := &t.lengths6
		if e.prefix.Addr().Is4() {
			lengths = &t.lengths4
		}
		if !slices.Contains(*lengths, e.prefix.Bits()) {
			*lengths = append(*lengths, e.prefix.Bits())
		}
	}
	longestFirst := func(a, b int) int { return cmp.Compare(b, a) }
	slices.SortFunc(t.lengths4, longestFirst)
	slices.SortFunc(t.lengths6, longestFirst)
	return t
}

func (t *networkTable) take(value string) *edge {
	if len(t.edges) == 0 {
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
		prefix, _ := addr.Prefix(length) // the length is one of its family
		if e := t.edges[prefix]; e != nil {
			return e
		}
	}
	return nil
}

// starTable finds the wildcard with the most literal characters: one look into
// a map for each shape in use, where a shape is the lengths of what stands
// before the first star and after the last. Only wildcards of several stars
// that share both texts are tried one by one.
type starTable struct {
	shapes []starShape // that with the best rank first
}

type starShape struct {
	prefix, suffix int
	best           int // the lowest rank
	edges          map[starEnds][]rankedEdge
}

type starEnds struct{ prefix, suffix string }

// rankedEdge is a wildcard and its place in the order of preference.
type rankedEdge struct {
	*edge
	rank int
}

func newStarTable(edges []*edge) starTable {
	edges = slices.Clone(edges)
	slices.SortStableFunc(edges, func(a, b *edge) int { return cmp.Compare(b.literal, a.literal) })
	var t starTable
	byLengths := map[[2]int]int{} // index in shapes
	for rank, e := range edges {
		prefix, suffix := e.ends()
		lengths := [2]int{len(prefix), len(suffix)}
		i, ok := byLengths[lengths]
		if !ok {
			i = len(t.shapes)
			byLengths[lengths] = i
			t.shapes = append(t.shapes, starShape{lengths[0], lengths[1], rank, map[starEnds][]rankedEdge{}})
		}
		ends := starEnds{prefix, suffix}
		t.shapes[i].edges[ends] = append(t.shapes[i].edges[ends], rankedEdge{e, rank})
	}
	return t
}

func (t *starTable) take(value string) *edge {
	var best rankedEdge
	for i := range t.shapes {
		shape := &t.shapes[i]
		if best.edge != nil && shape.best > best.rank {
			break
		}
		if len(value) < shape.prefix+shape.suffix {
			continue
		}
		ends := starEnds{value[:shape.prefix], value[len(value)-shape.suffix:]}
		middle := value[shape.prefix : len(value)-shape.suffix]
		for _, e := range shape.edges[ends] {
			if best.edge != nil && e.rank > best.rank {
				break
			}
			if e.matchesMiddle(middle) {
				best = e
				break
			}
		}
	}
	return best.edge
}
