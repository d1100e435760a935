package rules

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// made is a rule that a test made up.
type made struct {
	path     []Entry // of which a value is a pattern
	fields   map[string]any
	disabled bool
}

// FuzzSpellings holds that rules mean the same in both spellings, and that a
// descriptor finds its rule as docs/rules.md says, entry by entry and with no way
// back.
func FuzzSpellings(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, "ab")
	}
	f.Add(uint64(1), "10.1.2.3")
	f.Add(uint64(2), "::ffff:10.0.0.1%eth0")
	f.Add(uint64(3), "\xff\x00")
	f.Fuzz(func(t *testing.T, seed uint64, value string) {
		if len(value) > 20 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 2))
		list := madeRules(t, r)
		flat, nested := compile(t, flatText(t, list)), compile(t, nestedText(t, r, list))
		// Nested, rules stand in another order: what comes of that is looked at below.
		changes := slices.DeleteFunc(Diff(flat, nested), func(c Change) bool { return c.Path == "" })
		if len(changes) > 0 {
			t.Fatalf("the spellings differ:\n%v\n%s\n%s", changes, flatText(t, list), nestedText(t, r, list))
		}
		for range 10 {
			req := Request{Domain: DefaultDomain, Hits: r.Uint64N(3)}
			for range 1 + r.IntN(4) {
				req.Descriptors = append(req.Descriptors, madeDescriptor(t, r, list, value))
			}
			checkPlan(t, list, &req, flat)
			checkPlan(t, list, &req, nested)
			a, b := planOf(flat, req), planOf(nested, req)
			for i := range a.Hits {
				if string(a.Hits[i].Key) != string(b.Hits[i].Key) || a.Hits[i].Limit != b.Hits[i].Limit {
					t.Fatalf("of %+v hit %d is %+v and %+v", req, i, a.Hits[i], b.Hits[i])
				}
			}
			if x, y := flat.Explain(req.Domain, req.Descriptors[0].Entries), nested.Explain(req.Domain, req.Descriptors[0].Entries); (x.Rule == nil) != (y.Rule == nil) || x.Rule != nil && x.Rule.Path != y.Rule.Path {
				t.Fatalf("of %+v is explained\n%v\nand\n%v", req.Descriptors[0], x, y)
			}
		}
	})
}

var madeValues = []string{"*", "a", "ab", "b", "a*", "*b", "a*b", "*a*", "é*", "~a+", "~[ab]*", "~.b", "cidr:10.0.0.0/8", "cidr:10.1.0.0/16", "cidr:::/0", "10.1.2.3", "1*", " ", "#", "null", "1e3"}

// madeRules makes up some rules, none with a path of another.
func madeRules(t *testing.T, r *rand.Rand) []made {
	t.Helper()
	var list []made
	var paths []string
	for n := range r.IntN(14) {
		m := made{disabled: r.IntN(10) == 0}
		for range 1 + r.IntN(3) {
			m.path = append(m.path, Entry{[]string{"k", "l"}[r.IntN(2)], madeValues[r.IntN(len(madeValues))]})
		}
		if path := fmt.Sprint(m.path); !slices.Contains(paths, path) {
			paths = append(paths, path)
			m.fields = madeFields(r, n)
			list = append(list, m)
		}
	}
	return list
}

func madeFields(r *rand.Rand, n int) map[string]any {
	fields := map[string]any{}
	if r.IntN(2) == 0 {
		fields["name"] = fmt.Sprint("name ", n%3)
	}
	if r.IntN(4) == 0 {
		fields["replaces"] = []any{map[string]any{"name": fmt.Sprint("name ", (n+1)%3)}}
	}
	switch r.IntN(8) {
	case 0:
		fields["exempt"] = true
		return fields
	case 1:
		fields["unlimited"] = true
		return fields
	case 2:
		fields["shadow_mode"] = true
	case 3:
		fields["quota_mode"] = true
	case 4:
		fields["on_store_failure"] = "deny"
	case 5:
		fields["metadata"] = map[string]any{"a": []any{1, "b", nil}}
	}
	limit := func() map[string]any {
		l := map[string]any{"limit": r.IntN(9), "window": []string{"1s", "90m", "day", "hour"}[r.IntN(4)]}
		if r.IntN(3) == 0 {
			l["algorithm"] = []string{"token_bucket", "leaky_bucket", "sliding_window_log", "sliding_window_counter"}[r.IntN(4)]
			l["limit"] = 1 + r.IntN(9)
		}
		return l
	}
	if r.IntN(3) == 0 {
		fields["limits"] = []any{limit(), limit()}
		return fields
	}
	for name, value := range limit() {
		fields[name] = value
	}
	return fields
}

func toText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v) // which is YAML
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func flatText(t *testing.T, list []made) string {
	var all []any
	for _, m := range list {
		var match []any
		for _, e := range m.path {
			match = append(match, map[string]any{e.Key: e.Value})
		}
		rule := map[string]any{"match": match}
		for name, value := range m.fields {
			rule[name] = value
		}
		if m.disabled {
			rule["enabled"] = false
		}
		all = append(all, rule)
	}
	return toText(t, map[string]any{"rules": all})
}

// nestedText writes the rules that are not disabled.
func nestedText(t *testing.T, r *rand.Rand, list []made) string {
	type node = map[string]any
	root := node{}
	for _, m := range list {
		if m.disabled {
			continue
		}
		at := root
		for _, e := range m.path {
			below, _ := at["descriptors"].([]any)
			i := slices.IndexFunc(below, func(n any) bool {
				value, said := n.(node)["value"]
				return n.(node)["key"] == e.Key && (value == e.Value || !said && e.Value == "*")
			})
			if i < 0 {
				next := node{"key": e.Key, "value": e.Value}
				if e.Value == "*" && r.IntN(2) == 0 {
					delete(next, "value")
				}
				i, below = len(below), append(below, next)
				at["descriptors"] = below
			}
			at = below[i].(node)
		}
		fill(r, at, m.fields)
	}
	return toText(t, root)
}

// fill writes a rule into a descriptor, as envoyproxy/ratelimit's users do or not.
func fill(r *rand.Rand, descriptor, fields map[string]any) {
	rate := map[string]any{}
	theirs := r.IntN(2) == 0
	for name, value := range fields {
		switch {
		case theirs && name == "limit":
			rate["requests_per_unit"] = value
		case theirs && name == "window" && (value == "day" || value == "hour"):
			rate["unit"] = strings.ToUpper(value.(string))
		case theirs && slices.Contains([]string{"window", "unlimited", "name", "replaces", "algorithm"}, name):
			rate[name] = value
		default:
			descriptor[name] = value
		}
	}
	_, limited := rate["requests_per_unit"]
	if limited || rate["unlimited"] != nil {
		descriptor["rate_limit"] = rate
		return
	}
	for name, value := range rate {
		descriptor[name] = value
	}
}

// fits has a value that fits each pattern of madeValues.
var fits = strings.NewReplacer("é*", "éa", "~[ab]*", "aab", "~a+", "aa", "~.b", "xb", "cidr:10.0.0.0/8", "10.9.9.9", "cidr:10.1.0.0/16", "10.1.2.3", "cidr:::/0", "::1", "*", "a")

// madeDescriptor has entries of one of the rules, most of the time.
func madeDescriptor(t *testing.T, r *rand.Rand, list []made, value string) Descriptor {
	t.Helper()
	d := Descriptor{HasHits: r.IntN(4) == 0, Hits: r.Uint64N(3), Refund: r.IntN(8) == 0}
	if r.IntN(8) == 0 {
		d.Override = override(t, 3, "hour")
	}
	if len(list) > 0 && r.IntN(3) > 0 {
		for _, e := range list[r.IntN(len(list))].path {
			d.Entries = append(d.Entries, Entry{e.Key, fits.Replace(e.Value)})
		}
		return d
	}
	for range r.IntN(4) {
		v := []string{value, "a", "ab", "aab", "b", "xb", "éa", "10.1.2.3", "10.9.9.9", "::1", "", "*"}[r.IntN(12)]
		d.Entries = append(d.Entries, Entry{[]string{"k", "l"}[r.IntN(2)], v})
	}
	return d
}

// naiveRule is the rule that the entries find; nil: none.
func naiveRule(list []made, entries []Entry) *made {
	way := make([]Entry, 0, len(entries))
	for i, e := range entries {
		var values []string
		for _, m := range list {
			if !m.disabled && len(m.path) > i && slices.Equal(m.path[:i], way) && m.path[i].Key == e.Key {
				values = append(values, m.path[i].Value)
			}
		}
		found := naive(values, e.Value)
		if found == "none" {
			return nil
		}
		way = append(way, Entry{e.Key, found})
	}
	for i := range list {
		if len(way) > 0 && !list[i].disabled && slices.Equal(list[i].path, way) {
			return &list[i]
		}
	}
	return nil
}

// checkPlan holds a set's plan against what docs/rules.md says of the rules.
func checkPlan(t *testing.T, list []made, req *Request, set *Set) {
	t.Helper()
	found := make([]*made, len(req.Descriptors))
	exempt := false
	replaced := map[string]bool{}
	for i, d := range req.Descriptors {
		found[i] = naiveRule(list, d.Entries)
		if found[i] == nil {
			continue
		}
		if found[i].fields["exempt"] == true {
			exempt = true
		} else if d.Override == nil {
			names, _ := found[i].fields["replaces"].([]any)
			for _, n := range names {
				replaced[n.(map[string]any)["name"].(string)] = true
			}
		}
	}
	p := planOf(set, *req)
	if p.Exempt != exempt {
		t.Fatalf("%+v is exempt: %t, want %t, of %s", req, p.Exempt, exempt, toText(t, list))
	}
	if exempt {
		if len(p.Hits) > 0 {
			t.Fatalf("%+v is exempt and charged", req)
		}
		return
	}
	for i, d := range req.Descriptors {
		want, rule := 0, found[i]
		switch {
		case len(set.domains) == 0: // where a domain has no rules there are no limits at all
		case d.Override != nil:
			want = min(1, len(d.Entries))
		case rule == nil:
		default:
			name, _ := rule.fields["name"].(string)
			if name != "" && replaced[name] {
				break
			}
			switch limits, several := rule.fields["limits"].([]any); {
			case several:
				want = len(limits)
			case rule.fields["limit"] != nil:
				want = 1
			}
			if m := p.Matches[i]; m.Rule == nil || m.Rule.Shadow != (rule.fields["shadow_mode"] == true) || m.Unlimited != (rule.fields["unlimited"] == true) || len(m.Rule.path) != len(rule.path) || !sameMade(m.Rule.path, rule.path) {
				t.Fatalf("descriptor %d of %+v finds %+v, want %+v", i, req, m.Rule, rule)
			}
		}
		m := p.Matches[i]
		if m.Hits != want {
			t.Fatalf("descriptor %d of %+v has %d hits, want %d of %+v", i, req, m.Hits, want, rule)
		}
		cost := max(1, req.Hits)
		if d.HasHits {
			cost = d.Hits
		}
		for _, h := range p.Hits[m.First : m.First+m.Hits] {
			if h.Cost != cost || h.Refund != d.Refund {
				t.Fatalf("descriptor %d of %+v brings %+v", i, req, h)
			}
		}
	}
}

func sameMade(path []part, want []Entry) bool {
	for i := range path {
		if path[i].key != want[i].Key || path[i].text != want[i].Value {
			return false
		}
	}
	return true
}
