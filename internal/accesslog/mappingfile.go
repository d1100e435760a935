package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"weir/rules"
)

// maxMapping is how long a mapping may be, in bytes.
const maxMapping = 1 << 20

// ReadMapping reads a mapping file. What is wrong with it is rules.Faults, all at once.
func ReadMapping(name string) (*Mapping, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the mapping: %w", err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxMapping+1))
	if err != nil {
		return nil, fmt.Errorf("reading the mapping: %w", err)
	}
	if len(src) > maxMapping {
		return nil, fmt.Errorf("the mapping %s is larger than %d MiB", name, maxMapping>>20)
	}
	return ParseMapping(name, src)
}

// ParseMapping reads the text of a mapping.
func ParseMapping(name string, src []byte) (*Mapping, error) {
	r := &mappingReader{Mapping: newMapping(name)}
	root, err := parseYAML(src)
	if err != nil {
		return nil, rules.Faults{r.Mapping.fault(syntaxPlace(err), "not YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))}
	}
	if root == nil {
		return nil, rules.Faults{r.Mapping.fault(place{1, 1}, "the mapping is empty; it needs descriptors at least")}
	}
	r.root(root)
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b rules.Fault) int { return cmpPlace(a, b) })
		return nil, r.faults
	}
	return r.Mapping, nil
}

func cmpPlace(a, b rules.Fault) int {
	if a.Line != b.Line {
		return a.Line - b.Line
	}
	return a.Col - b.Col
}

// parseYAML turns a panic of the library, of which it had some, into an error. It
// returns nil if there is nothing in the text.
func parseYAML(src []byte) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: not understood: %v", p)
		}
	}()
	var document, another yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, err
	}
	if err := decoder.Decode(&another); err == nil {
		return nil, fmt.Errorf("yaml: line %d: a second document; a mapping is one", another.Line)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	return document.Content[0], nil
}

var yamlLine = regexp.MustCompile(`^yaml: (line (\d+): )?`)

func syntaxPlace(err error) place {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		if line, err := strconv.Atoi(m[2]); err == nil {
			return place{line, 1}
		}
	}
	return place{1, 1}
}

// mappingReader reads YAML nodes. It goes on after a fault, so that one run finds all.
type mappingReader struct {
	*Mapping
	faults rules.Faults
}

func placeOf(n *yaml.Node) place { return place{max(n.Line, 1), max(n.Column, 1)} }

func (r *mappingReader) fault(n *yaml.Node, format string, args ...any) {
	if len(r.faults) < 100 {
		r.faults = append(r.faults, r.Mapping.fault(placeOf(n), format, args...))
	}
}

func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// each calls take for each pair of a mapping, whose names are known and stand once.
func (r *mappingReader) each(n *yaml.Node, what string, known []string, take func(name string, key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is a mapping", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		switch name := key.Value; {
		case key.Kind != yaml.ScalarNode:
			r.fault(key, "a field's name is a text")
		case known != nil && !slices.Contains(known, name):
			r.fault(key, "unknown field %s; %s has %s", brief([]byte(name)), what, strings.Join(known, ", "))
		case seen[name]:
			r.fault(key, "%s stands twice", brief([]byte(name)))
		default:
			seen[name] = true
			take(name, key, value)
		}
	}
}

// text is a scalar as it is written.
func (r *mappingReader) text(n *yaml.Node, name string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.fault(n, "%s is a text", name)
		return ""
	}
	return n.Value
}

// words is a text or a list of them.
func (r *mappingReader) words(n *yaml.Node, name string) (nodes []*yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	if len(n.Content) == 0 {
		r.fault(n, "%s is empty", name)
	}
	for _, item := range n.Content {
		nodes = append(nodes, deref(item))
	}
	return nodes
}

func (r *mappingReader) root(n *yaml.Node) {
	described := false
	r.each(n, "the mapping", []string{"domain", "time", "hits", "when", "unless", "descriptors"}, func(name string, _, value *yaml.Node) {
		switch name {
		case "domain":
			if r.Domain = r.text(value, name); r.Domain == "" {
				r.fault(value, "domain is empty; leave it out for %q", rules.DefaultDomain)
			}
		case "time":
			if text := r.text(value, name); text != "" {
				r.fields[timeField].name, r.fields[timeField].at = text, placeOf(value)
			}
		case "hits":
			r.hits = r.named(value, name)
		case "when":
			r.conditions.when = r.readConditions(value, name)
		case "unless":
			r.conditions.unless = r.readConditions(value, name)
		case "descriptors":
			described = true
			r.readDescriptors(value)
		}
	})
	if n.Kind == yaml.MappingNode && !described {
		r.fault(n, "the mapping needs descriptors, such as descriptors: [[remote_address]]")
	}
}

// named is the field that a text names.
func (r *mappingReader) named(n *yaml.Node, what string) int {
	name := r.text(n, what)
	if name == "" {
		if n.Kind == yaml.ScalarNode {
			r.fault(n, "%s names no field", what)
		}
		return 0
	}
	return r.field(name, name, placeOf(n))
}

func (r *mappingReader) readConditions(n *yaml.Node, what string) (out []condition) {
	r.each(n, what, nil, func(name string, key, value *yaml.Node) {
		c := condition{field: r.field(name, name, placeOf(key))}
		for _, word := range r.words(value, name) {
			p, err := rules.ParsePattern(r.text(word, name))
			if err != nil {
				r.fault(word, "%v", err)
			}
			c.patterns = append(c.patterns, p)
		}
		out = append(out, c)
	})
	return out
}

func (r *mappingReader) readDescriptors(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.fault(n, "descriptors is a list of descriptors, each a list of entries, such as [[remote_address]]")
		return
	}
	for _, item := range n.Content {
		var d descriptor
		switch item = deref(item); item.Kind {
		case yaml.SequenceNode:
			d.entries = r.readEntries(item)
		case yaml.MappingNode:
			had := false
			r.each(item, "a descriptor", []string{"entries", "when", "unless"}, func(name string, _, value *yaml.Node) {
				switch name {
				case "entries":
					had, d.entries = true, r.readEntries(value)
				case "when":
					d.conditions.when = r.readConditions(value, name)
				case "unless":
					d.conditions.unless = r.readConditions(value, name)
				}
			})
			if !had {
				r.fault(item, "a descriptor needs entries")
			}
		default:
			r.fault(item, "a descriptor is a list of entries, or a mapping with entries")
		}
		r.descriptors = append(r.descriptors, d)
	}
}

func (r *mappingReader) readEntries(n *yaml.Node) (out []entry) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.fault(n, "entries is a list, such as [remote_address] or [{key: endpoint, field: path}]")
		return nil
	}
	for _, item := range n.Content {
		switch item = deref(item); item.Kind {
		case yaml.ScalarNode:
			out = append(out, entry{key: item.Value, field: r.named(item, "an entry")})
		default:
			out = append(out, r.readEntry(item))
		}
	}
	return out
}

var entryFields = []string{"key", "field", "value", "default", "templates", "regexp", "replace"}

// readEntry reads an entry that says more than its key.
func (r *mappingReader) readEntry(n *yaml.Node) entry {
	e := entry{field: -1}
	nodes := map[string]*yaml.Node{}
	r.each(n, "an entry", entryFields, func(name string, _, value *yaml.Node) { nodes[name] = value })
	if n.Kind != yaml.MappingNode {
		return e
	}
	if key := nodes["key"]; key == nil {
		r.fault(n, "an entry needs a key")
		return e
	} else if e.key = r.text(key, "key"); e.key == "" {
		r.fault(key, "the key is empty")
	}
	if value := nodes["value"]; value != nil {
		e.fixed = r.text(value, "value")
		for _, name := range []string{"field", "default", "templates", "regexp", "replace"} {
			if other := nodes[name]; other != nil {
				r.fault(other, "%s beside value, which is always the same", name)
			}
		}
		return e
	}
	if f := nodes["field"]; f != nil {
		e.field = r.named(f, "field")
	} else if e.key != "" {
		e.field = r.field(e.key, e.key, placeOf(nodes["key"]))
	}
	if d := nodes["default"]; d != nil {
		e.fixed, e.hasFallback = r.text(d, "default"), true
	}
	r.readCuts(&e, nodes)
	return e
}

// readCuts reads what takes from a value that which tells each request apart.
func (r *mappingReader) readCuts(e *entry, nodes map[string]*yaml.Node) {
	if list := nodes["templates"]; list != nil {
		for _, word := range r.words(list, "templates") {
			t, err := newTemplate(r.text(word, "a template"))
			if err != nil {
				r.fault(word, "%v", err)
			}
			e.templates = append(e.templates, t)
		}
	}
	expression, replace := nodes["regexp"], nodes["replace"]
	switch {
	case expression == nil && replace != nil:
		r.fault(replace, "replace without regexp, whose matches it replaces")
	case expression != nil && replace == nil:
		r.fault(expression, "regexp without replace, which says what its matches become, such as /{id}")
	case expression != nil:
		re, err := regexp.Compile(r.text(expression, "regexp"))
		if err != nil {
			r.fault(expression, "%v", err)
		}
		e.re, e.replace = re, r.text(replace, "replace")
	}
}
