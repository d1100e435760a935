package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"weir/limiter"
)

// addressDefaults is the mask of remote_address: "*" in a flat rule: one client
// owns a whole IPv6 /64.
var addressDefaults = mask{ipv4: 32, ipv6: 64, hasIPv4: true, hasIPv6: true}

// flatRules reads the spelling for people: each rule with its whole path.
func (r *reader) flatRules(f field, domain string) []draft {
	var drafts []draft
	for _, item := range r.list(f) {
		if d, ok := r.flatRule(item, domain); ok {
			drafts = append(drafts, d)
		}
	}
	return drafts
}

func (r *reader) flatRule(n *yaml.Node, domain string) (draft, bool) {
	fs := r.mapping(n, "a rule", flatFields)
	if n.Kind != yaml.MappingNode {
		return draft{}, false
	}
	path, sound := r.match(fs)
	faults := len(r.faults)
	rule := r.rule(fs)
	if !rule.acts() && len(r.faults) == faults {
		r.missing(fs, "a rule needs a limit: limit and window, limits, unlimited: true or exempt: true")
	}
	for i := range path {
		if path[i].key == "remote_address" && path[i].value.kind == anyValue {
			path[i].defaults = addressDefaults
		}
		path[i].share = rule.share && path[i].value.kind != exactValue
		path[i].toMetric = rule.valueToMetric
	}
	r.checkLease(rule, len(r.faults) > faults)
	if sound {
		r.checkVariables(fs, rule.share, path, path)
		r.checkQueue(rule, path)
	}
	return draft{domain: domain, path: path, rule: rule, at: placeOf(n)}, sound && !rule.disabled
}

// checkVariables finds fields that need a value that varies where none does.
func (r *reader) checkVariables(fs *fields, share bool, shared, masked []step) {
	if f, ok := fs.get("share_threshold"); ok && share && !varies(shared) {
		r.fault(f.key, "share_threshold needs a value that varies, such as %q; here it is exact", "img/*")
	}
	if f, ok := fs.get("mask"); ok && !varies(masked) {
		r.warn(f.key, "mask does nothing: here all values are exact")
	}
}

// checkQueue finds rules that cannot put what is over their limit into a queue: a
// queue empties at one rate, that of a leaky bucket.
func (r *reader) checkQueue(d *ruleDraft, path []step) {
	if !d.queue {
		return
	}
	faults := len(r.faults)
	for _, l := range d.limits {
		switch {
		case l.Algorithm != limiter.LeakyBucket:
			r.faultAt(d.overLimitAt, "over_limit: queue belongs to leaky_bucket, not to %v, which would let twice its rate through: once at once and once from the queue", l.Algorithm)
		case l.countDenied != nil && *l.countDenied:
			r.faultAt(d.overLimitAt, "over_limit: queue beside count_denied: what waits in a queue is charged when it departs")
		}
	}
	switch {
	case len(r.faults) > faults:
	case d.unlimited || d.exempt:
		r.faultAt(d.overLimitAt, "over_limit: queue beside %s: nothing is ever over the limit", freedom(d))
	case len(d.limits) > 1:
		r.faultAt(d.overLimitAt, "over_limit: queue needs one limit, here are %d; a queue empties at one rate", len(d.limits))
	case d.quota:
		r.faultAt(d.overLimitAt, "over_limit: queue beside quota_mode: whether to wait cannot depend on other rules")
	case slices.ContainsFunc(path, func(s step) bool { return s.value.kind != exactValue && !s.share }):
		r.faultAt(d.overLimitAt, "over_limit: queue needs one counter, and this rule has one for each value; write a rule for each, or share_threshold: true")
	}
}

func varies(path []step) bool {
	for i := range path {
		if path[i].value.kind != exactValue {
			return true
		}
	}
	return false
}

// match reads the path of a flat rule.
func (r *reader) match(fs *fields) (path []step, sound bool) {
	endpoint, hasEndpoint := fs.get("endpoint")
	match, hasMatch := fs.get("match")
	switch {
	case hasEndpoint && hasMatch:
		r.fault(endpoint.key, "endpoint beside match: put it into match")
		return nil, false
	case hasEndpoint:
		s, ok := r.step("endpoint", endpoint)
		return []step{s}, ok
	case !hasMatch:
		r.missing(fs, "a rule needs match or endpoint")
		return nil, false
	}
	pairs := r.matchPairs(match)
	sound = len(pairs) > 0
	for _, pair := range pairs {
		s, ok := r.step(pair.name, pair)
		path, sound = append(path, s), sound && ok
	}
	if len(pairs) > maxDepth {
		r.fault(match.value, "match has %d entries; %d are the most", len(pairs), maxDepth)
		return nil, false
	}
	return path, sound
}

// matchPairs reads match: a mapping, or a list of one-pair mappings or of
// {key, value}, in which a key can stand more than once.
func (r *reader) matchPairs(match field) []field {
	faults := len(r.faults)
	var pairs []field
	switch match.value.Kind {
	case yaml.MappingNode:
		pairs = r.mapping(match.value, "match", nil).list
	case yaml.SequenceNode:
		for _, item := range r.list(match) {
			if pair, ok := r.matchItem(item); ok {
				pairs = append(pairs, pair)
			}
		}
	default:
		r.fault(match.value, "match is a mapping such as {endpoint: /api}, or a list, not %s", kindOf(match.value))
	}
	if len(r.faults) > faults {
		return nil
	}
	if len(pairs) == 0 {
		r.fault(match.value, "match is empty")
	}
	return pairs
}

func (r *reader) matchItem(n *yaml.Node) (field, bool) {
	fs := r.mapping(n, "an item of match", nil)
	if len(fs.list) == 1 {
		return fs.list[0], true
	}
	key, hasKey := fs.get("key")
	value, hasValue := fs.get("value")
	if len(fs.list) != 2 || !hasKey || !hasValue {
		if n.Kind == yaml.MappingNode {
			r.fault(n, "an item of match is one pair such as {endpoint: /api}, or {key: endpoint, value: /api}")
		}
		return field{}, false
	}
	name, ok := r.text(key)
	return field{name: name, key: key.value, value: value.value}, ok
}

// step reads one level of a path: the pattern is the text of the field, and any
// value if there is none.
func (r *reader) step(key string, f field) (step, bool) {
	if key == "" {
		r.fault(f.key, "an entry's key is empty")
		return step{}, false
	}
	text := ""
	if !isNull(f.value) {
		written, ok := r.text(field{name: "the value of " + key, key: f.key, value: f.value})
		if !ok {
			return step{}, false
		}
		text = written
	}
	value, err := parsePattern(text)
	if err != nil {
		r.fault(f.value, "%v", err)
		return step{}, false
	}
	if r.regexps -= value.size(); r.regexps < 0 {
		r.fault(f.value, "the regular expressions of this file are too large together, at %s; counted repeats, as {1,500}, make them so", brief(text))
		r.stopped = true
		return step{}, false
	}
	if text == "" && !isNull(f.value) {
		r.warn(f.value, `an empty value means any value; write "*" for that`)
	}
	if written := value.asRange(); written != "" {
		r.warn(f.value, "%s is taken as a text; for the address range write %s", brief(text), written)
	}
	return step{key: key, value: value}, true
}
