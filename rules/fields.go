package rules

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// field is one pair of a mapping. Both nodes stand in the file, also where an
// alias or a merge brought them here.
type field struct {
	name       string
	key, value *yaml.Node
	merge      bool // the pair is a merge key (<<) and what it merges
}

// fields is a mapping's pairs, in order, names being unique.
type fields struct {
	list    []field
	at      *yaml.Node // the mapping
	partial bool       // a field was left out, as unknown
}

func (fs *fields) get(name string) (field, bool) {
	for _, f := range fs.list {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (fs *fields) has(name string) bool {
	_, ok := fs.get(name)
	return ok
}

// firstOf returns the first pair with one of the names.
func (fs *fields) firstOf(names []string) (field, bool) {
	for _, f := range fs.list {
		if slices.Contains(names, f.name) {
			return f, true
		}
	}
	return field{}, false
}

// mapping reads the pairs of a node, which messages call what. A name that is
// not known is a fault; with no known names, any is fine.
func (r *reader) mapping(n *yaml.Node, what string, known []string) *fields {
	fs := &fields{at: n}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is a mapping, not %s", what, kindOf(n))
		return fs
	}
	for _, f := range r.pairs(n, 0) {
		if known != nil && !slices.Contains(known, f.name) {
			r.fault(f.key, "unknown field %s%s", brief(f.name), misplaced(f.name, what, known))
			fs.partial = true
			continue
		}
		fs.list = append(fs.list, f)
	}
	return fs
}

// misplaced tells where a field belongs that is not known in what, or which one may be
// meant.
func misplaced(name, what string, known []string) string {
	switch {
	case name == "lease":
		return "; leases are a rule's accuracy: {lease: N}"
	case slices.Contains(commonFields, name):
		return fmt.Sprintf("; it belongs to the rule itself, not to %s", what)
	}
	return suggestion(name, known)
}

// pairs reads a mapping with its merges (<<). A name stated here wins over a
// merged one, an earlier merge over a later.
func (r *reader) pairs(n *yaml.Node, depth int) []field {
	if !r.spend(n) || r.tooDeep(n, depth) {
		return nil
	}
	stated := r.stated(n)
	seen := make(map[string]bool, len(stated))
	for _, f := range stated {
		seen[f.name] = !f.merge
	}
	var list []field
	for _, f := range stated {
		if !f.merge {
			list = append(list, f)
			continue
		}
		for _, merged := range r.merged(f, depth) {
			if !seen[merged.name] {
				seen[merged.name] = true
				list = append(list, merged)
			}
		}
	}
	return list
}

// stated reads the pairs that a mapping itself states.
func (r *reader) stated(n *yaml.Node) []field {
	list := make([]field, 0, len(n.Content)/2)
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			r.fault(key, "a field's name is a text, not %s", kindOf(key))
			continue
		}
		if earlier, twice := first[key.Value]; twice {
			r.fault(key, "%s stands twice in this mapping, first on line %d", brief(key.Value), earlier.Line)
			continue
		}
		first[key.Value] = key
		list = append(list, field{name: key.Value, key: key, value: value, merge: key.ShortTag() == "!!merge"})
	}
	return list
}

// merged reads what a merge key brings: a mapping, or a list of mappings.
func (r *reader) merged(f field, depth int) []field {
	sources := []*yaml.Node{f.value}
	if f.value.Kind == yaml.SequenceNode {
		sources = r.list(f)
	}
	var list []field
	for _, source := range sources {
		if source.Kind != yaml.MappingNode {
			r.fault(source, "<< merges mappings, not %s", kindOf(source))
			continue
		}
		list = append(list, r.pairs(source, depth+1)...)
	}
	return list
}
