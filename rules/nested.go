package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// descriptors reads the spelling of envoyproxy/ratelimit: each descriptor is a
// level of the path, and holds those below it.
func (r *reader) descriptors(f field, domain string, above []step) []draft {
	if r.tooDeep(f.value, len(above)) {
		return nil
	}
	var drafts []draft
	for _, item := range r.list(f) {
		drafts = append(drafts, r.descriptor(item, domain, above)...)
	}
	return drafts
}

func (r *reader) descriptor(n *yaml.Node, domain string, above []step) []draft {
	fs := r.mapping(n, "a descriptor", nestedFields)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	own, sound := r.descriptorStep(fs)
	faults := len(r.faults)
	rule := r.rule(fs)
	r.checkLease(rule, len(r.faults) > faults)
	own.share, own.own, own.toMetric = rule.share, rule.mask, rule.valueToMetric
	path := append(slices.Clip(above), own)
	if sound {
		masked := path // a mask concerns all values of its rule, and this one in the rules below
		if !rule.acts() {
			masked = path[len(above):]
		}
		r.checkVariables(fs, rule.share, path[len(above):], masked)
		r.checkQueue(rule, path)
	}
	node := draft{domain: domain, path: path, at: placeOf(n)}
	if !rule.disabled && (rule.acts() || len(r.faults) > faults) {
		node.rule = rule
	}
	var below []draft
	if f, ok := fs.get("descriptors"); ok && !isNull(f.value) {
		below = r.descriptors(f, domain, path)
	}
	if !sound || rule.disabled && len(below) == 0 {
		return nil
	}
	return append([]draft{node}, below...)
}

func (r *reader) descriptorStep(fs *fields) (step, bool) {
	f, ok := fs.get("key")
	if !ok {
		r.missing(fs, "a descriptor needs a key")
		return step{}, false
	}
	key, ok := r.text(f)
	if !ok {
		return step{}, false
	}
	value, hasValue := fs.get("value")
	if !hasValue {
		value = field{key: f.value, value: &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}}
	}
	return r.step(key, field{key: f.value, value: value.value})
}
