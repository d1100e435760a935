package rules

import (
	"slices"
	"strings"
)

// tree is the rules of a domain by their paths. Its nodes and levels are in one
// array each and name each other by their numbers, which takes little memory and
// leaves the garbage collector little to do.
type tree struct {
	nodes  []node  // the root, and then the nodes of one level after another
	levels []level // those of one node together, by key
}

// node is a way on from another node, and what it leads to: a rule, ways on, or
// both.
type node struct {
	*part          // the values that take the way; nil of the root
	stated *stated // where it was first stated
	rule   uint32  // its number among those of the domain, plus 1; 0: the node only takes values
	levels uint32  // the number of the first, plus 1; 0: none
}

// level is the ways on from a node for one key, which is that of its nodes.
type level struct {
	first, count uint32 // its nodes, those that are taken first before others
	siblings     uint32 // of a node's first level: how many it has
	table        *table // nil: they are few, and tried one after another
}

// few is up to how many nodes a level has no table.
const few = 8

func (t *tree) root() *node { return &t.nodes[0] }

// levelsOf returns the ways on from a node, by key.
func (t *tree) levelsOf(n *node) []level {
	if n.levels == 0 {
		return nil
	}
	first := n.levels - 1
	return t.levels[first : first+t.levels[first].siblings]
}

// level returns the ways on for a key, or nil.
func (t *tree) level(n *node, key string) *level {
	levels := t.levelsOf(n)
	if len(levels) <= few {
		for i := range levels {
			if t.key(&levels[i]) == key {
				return &levels[i]
			}
		}
		return nil
	}
	i, found := slices.BinarySearchFunc(levels, key, func(l level, key string) int { return strings.Compare(t.key(&l), key) })
	if !found {
		return nil
	}
	return &levels[i]
}

func (t *tree) key(l *level) string { return t.nodes[l.first].key }

// nodesOf returns the nodes of a level, in the order in which they are tried.
func (t *tree) nodesOf(l *level) []node { return t.nodes[l.first : l.first+l.count] }

// find returns the node that the entries lead to, or nil. A way once taken is
// never left for another.
func (t *tree) find(entries []Entry) *node {
	n := t.root()
	for i := range entries {
		l := t.level(n, entries[i].Key)
		if l == nil {
			return nil
		}
		if n = t.take(l, entries[i].Value); n == nil {
			return nil
		}
	}
	return n
}

// take returns the node that the value leads to, or nil.
func (t *tree) take(l *level, value string) *node {
	nodes := t.nodesOf(l)
	if l.table != nil {
		return l.table.take(nodes, value)
	}
	for i := range nodes {
		if nodes[i].matches(value) {
			return &nodes[i]
		}
	}
	return nil
}
