package rules

import (
	"math"

	"go.yaml.in/yaml/v3"
)

// metadata reads what a rule carries for whoever reads the answer: plain values
// that JSON can hold. Deeper than maxMetadata no Envoy could read the answer, and
// would take a refusal for no answer.
func (r *reader) metadata(f field) map[string]any {
	if isNull(f.value) {
		return nil
	}
	if f.value.Kind != yaml.MappingNode {
		r.fault(f.value, "metadata is a mapping, not %s", kindOf(f.value))
		return nil
	}
	values, _ := r.plain(f.value, 0).(map[string]any)
	return values
}

func (r *reader) plain(n *yaml.Node, depth int) any {
	if r.deeper(n, depth, maxMetadata) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		values := map[string]any{}
		for _, f := range r.mapping(n, "metadata", nil).list {
			values[f.name] = r.plain(f.value, depth+1)
		}
		return values
	case yaml.SequenceNode:
		values := []any{}
		for _, item := range r.list(field{name: "metadata", value: n}) {
			values = append(values, r.plain(item, depth+1))
		}
		return values
	}
	if !r.spendText(n) {
		return nil
	}
	return r.plainScalar(n)
}

func (r *reader) plainScalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool", "!!int", "!!float":
		var value any
		if err := n.Decode(&value); err != nil {
			r.fault(n, "metadata: %q is not what its tag says", n.Value)
			return nil
		}
		if number, ok := value.(float64); ok && (math.IsNaN(number) || math.IsInf(number, 0)) {
			r.fault(n, "metadata: %s has no place in JSON", n.Value)
			return nil
		}
		return value
	}
	return n.Value // times and binary as written
}
