package rules

import (
	"cmp"
	"slices"
	"strings"
)

// builder makes the tree of a domain. Nodes are numbered in file order until it
// ends, the root being 0.
type builder struct {
	nodes []growing
	byWay map[way]uint32
}

// growing is a node of a tree that is being built.
type growing struct {
	node
	parent uint32
	rank   int // among the ways of its kind, the least is taken first
}

// way tells apart the ways on from all nodes.
type way struct {
	parent         uint32
	kind           kind
	key, canonical string
}

func newBuilder() *builder {
	return &builder{nodes: make([]growing, 1), byWay: map[way]uint32{}}
}

// reach returns the node at the end of the path, and makes what is not there. It is
// good until the next call.
func (b *builder) reach(s *stated) *node {
	at := uint32(0)
	for i := range s.path {
		p := &s.path[i]
		pattern := p.pattern()
		w := way{at, p.kind, p.key, pattern.canonical()}
		next, ok := b.byWay[w]
		if !ok {
			next = uint32(len(b.nodes))
			b.nodes = append(b.nodes, growing{node: node{part: p, stated: s}, parent: at, rank: pattern.rank()})
			b.byWay[w] = next
		}
		at = next
	}
	return &b.nodes[at].node
}

// rank orders the patterns of one kind: of networks the longest prefix comes first,
// of wildcards the one with most literal characters, else file order decides.
func (p *pattern) rank() int {
	switch p.kind {
	case network:
		return -p.prefix.Bits()
	case wildcard:
		return -p.literals()
	}
	return 0
}

// finish returns the tree. The builder is of no use after it.
func (b *builder) finish() *tree {
	order := make([]uint32, len(b.nodes)) // the root, and then the ways on from a node together
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order[1:], b.compare)
	now := make([]uint32, len(b.nodes)) // where a node is in the tree
	t := &tree{nodes: make([]node, len(b.nodes))}
	for i, was := range order {
		t.nodes[i], now[was] = b.nodes[was].node, uint32(i)
	}
	b.byWay = nil
	for begin := 1; begin < len(order); {
		first := &b.nodes[order[begin]]
		end := begin + 1
		for end < len(order) && b.nodes[order[end]].parent == first.parent && b.nodes[order[end]].part.key == first.part.key {
			end++
		}
		t.addLevel(&t.nodes[now[first.parent]], begin, end)
		begin = end
	}
	t.levels = slices.Clip(t.levels)
	for i := range t.levels {
		t.levels[i].table = newTable(t.nodesOf(&t.levels[i]))
	}
	return t
}

// compare orders nodes by their parents, and those of one parent by key and then by
// which is taken first.
func (b *builder) compare(x, y uint32) int {
	p, q := &b.nodes[x], &b.nodes[y]
	if c := cmp.Compare(p.parent, q.parent); c != 0 {
		return c
	}
	if p.part.shape == q.part.shape && p.part.kind == exactValue {
		return cmp.Compare(x, y)
	}
	return cmp.Or(
		strings.Compare(p.part.key, q.part.key),
		cmp.Compare(p.part.kind, q.part.kind),
		cmp.Compare(p.rank, q.rank),
		cmp.Compare(x, y),
	)
}

// addLevel makes a level of these nodes. Levels of one parent are added together.
func (t *tree) addLevel(parent *node, begin, end int) {
	if parent.levels == 0 {
		parent.levels = uint32(len(t.levels) + 1)
	}
	t.levels = append(t.levels, level{first: uint32(begin), count: uint32(end - begin)})
	t.levels[parent.levels-1].siblings++
}
