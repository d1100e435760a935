package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"

	"weir/rules"
)

// reader turns YAML nodes into tests. It goes on after a fault, so that one run
// finds them all.
type reader struct {
	path   string
	src    []byte
	faults rules.Faults
	left   int // nodes that may still be looked at: aliases can make a small file endless
	deep   int // how deep the node is that is looked at
}

// Bounds that keep aliases from making a file endless.
const (
	mostNodes = 1_000_000
	mostDeep  = 32
)

func (r *reader) fault(n *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, rules.Fault{File: r.path, Line: max(n.Line, 1), Col: max(n.Column, 1), Msg: fmt.Sprintf(format, args...)})
}

// enter follows an alias, and counts. The caller leaves.
func (r *reader) enter(n *yaml.Node) (*yaml.Node, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	r.left -= 1 + len(n.Content)
	r.deep++
	if r.left < 0 || r.deep > mostDeep {
		if r.left > -mostNodes { // say so once
			r.fault(n, "aliases repeat too much, or an alias contains itself")
			r.left = -2 * mostNodes
		}
		return n, false
	}
	return n, true
}

func (r *reader) leave() { r.deep-- }

// fields are the fields that a mapping may have, and what reads each.
type fields map[string]func(*yaml.Node)

// mapping reads a mapping, which messages call what.
func (r *reader) mapping(n *yaml.Node, what string, known fields) {
	n, ok := r.enter(n)
	defer r.leave()
	if !ok {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is a mapping, not %s", what, kindOf(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		read := known[name]
		switch line, twice := first[name]; {
		case key.Kind != yaml.ScalarNode:
			r.fault(key, "a field's name is a text, not %s", kindOf(key))
		case twice:
			r.fault(key, "%q stands twice in this mapping, first on line %d", name, line)
		case key.ShortTag() == "!!merge":
			r.fault(key, "<< is not read here; name the fields, or give an alias (*name) for a whole value")
		case read == nil:
			r.fault(key, "unknown field %q of %s%s", name, what, suggestion(name, slices.Sorted(maps.Keys(known))))
		default:
			first[name] = key.Line
			read(value)
		}
	}
}

// list reads the items of a list; what is no list is a list of one, if single.
func (r *reader) list(n *yaml.Node, what string, single bool, each func(*yaml.Node)) {
	n, ok := r.enter(n)
	defer r.leave()
	switch {
	case !ok:
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			each(item)
		}
	case single:
		each(n)
	default:
		r.fault(n, "%s is a list, not %s", what, kindOf(n))
	}
}

// scalar returns the text of a scalar as it is written.
func (r *reader) scalar(n *yaml.Node, what string) (text string, ok bool) {
	n, ok = r.enter(n)
	defer r.leave()
	if !ok {
		return "", false
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.fault(n, "%s is a text, not %s", what, kindOf(n))
		return "", false
	}
	return n.Value, true
}

func (r *reader) text(to *string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) { *to, _ = r.scalar(n, what) }
}

func (r *reader) optionalText(to **string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if text, ok := r.scalar(n, what); ok {
			*to = &text
		}
	}
}

// choice reads one of a few words; of those that differ only in case, any.
func (r *reader) choice(to *string, what string, words ...string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		for _, word := range words {
			if strings.EqualFold(word, text) {
				*to = word
				return
			}
		}
		r.fault(n, "%s: unknown %q%s", what, text, suggestion(text, words))
	}
}

func (r *reader) texts(to *[]string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		r.list(n, what, true, func(item *yaml.Node) {
			if text, ok := r.scalar(item, "each of "+what); ok {
				*to = append(*to, text)
			}
		})
	}
}

// wordMap reads a mapping of any names to texts.
func (r *reader) wordMap(to *map[string]string, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		*to = map[string]string{}
		known := fields{}
		if target, _ := r.enter(n); target.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(target.Content); i += 2 {
				name := target.Content[i].Value
				known[name] = func(value *yaml.Node) { (*to)[name], _ = r.scalar(value, name) }
			}
		}
		r.leave()
		r.mapping(n, what, known)
	}
}

func (r *reader) truth(to *bool, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if text, ok := r.scalar(n, what); ok {
			if text != "true" && text != "false" {
				r.fault(n, "%s is true or false, not %q", what, text)
			}
			*to = text == "true"
		}
	}
}

func (r *reader) optionalTruth(to **bool, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		*to = new(bool)
		r.truth(*to, what)(n)
	}
}

// whole reads a whole number from least to most.
func (r *reader) whole(n *yaml.Node, what string, least, most uint64) (number uint64, ok bool) {
	text, ok := r.scalar(n, what)
	if !ok {
		return 0, false
	}
	number, ok = digits(text)
	if !ok || number < least || number > most {
		r.fault(n, "%s is a whole number from %d to %d, not %q", what, least, most, text)
		return 0, false
	}
	return number, true
}

func (r *reader) optionalWhole(to **uint64, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if number, ok := r.whole(n, what, 0, 1<<64-1); ok {
			*to = &number
		}
	}
}

func (r *reader) duration(to *time.Duration, what string, least time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if text, ok := r.scalar(n, what); ok {
			d, err := time.ParseDuration(text)
			if err != nil || d < least {
				r.fault(n, "%s is a duration from %v on, such as 250ms, 90s or 1h30m, not %q", what, least, text)
				return
			}
			*to = d
		}
	}
}

// durations reads a duration, or a list of the shortest and the longest.
func (r *reader) durations(to **span[time.Duration], what string) func(*yaml.Node) {
	return func(n *yaml.Node) { *to = spanOf(r, n, what, "a duration, such as 1m30s", parseDuration) }
}

func (r *reader) numbers(to **span[int], what string) func(*yaml.Node) {
	return func(n *yaml.Node) { *to = spanOf(r, n, what, "a whole number", parseCount) }
}

func spanOf[T int | time.Duration](r *reader, n *yaml.Node, what, kind string, parse func(string) (T, bool)) *span[T] {
	var values []T
	var texts []string
	r.texts(&texts, what)(n)
	for _, text := range texts {
		v, ok := parse(text)
		if !ok {
			r.fault(n, "%s is %s, or a list of the least and the most, not %q", what, kind, text)
			return nil
		}
		values = append(values, v)
	}
	switch {
	case len(values) == 1:
		return &span[T]{values[0], values[0]}
	case len(values) == 2 && cmp.Compare(values[0], values[1]) <= 0:
		return &span[T]{values[0], values[1]}
	case len(values) > 0 || len(texts) == 0 && n.Kind == yaml.SequenceNode:
		r.fault(n, "%s is %s, or a list of the least and the most, in this order", what, kind)
	}
	return nil
}

// waiting reads a time to wait, or none.
func (r *reader) waiting(to **wait, what string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && (n.Value == "none" || n.Value == "-") {
			*to = &wait{never: true}
			return
		}
		if s := spanOf(r, n, what, `a duration, such as 1m30s ("none": waiting cannot help)`, parseDuration); s != nil {
			*to = &wait{span: *s}
		}
	}
}

// kindOf names a node for people.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%.80q", n.Value)
}

// suggestion names the known word that is nearest, or else all. Of two that are as near
// it is the one that begins alike.
func suggestion(word string, known []string) string {
	nearest, least := "", 2*(len(word)/3+2)
	for _, k := range known {
		if len(word) > 64 || word == "" {
			break // no slip makes a name so long
		}
		d := 2 * levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(k))
		if !strings.HasPrefix(k, word[:1]) {
			d++
		}
		if d < least {
			nearest, least = k, d
		}
	}
	if nearest != "" {
		return fmt.Sprintf("; did you mean %q?", nearest)
	}
	return "; known are " + strings.Join(known, ", ")
}
