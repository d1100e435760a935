package rules

import (
	"slices"
	"testing"

	"weir/limiter"
)

// What rules have in common is kept once. None may get what is another's.
func TestRulesThatAreNearlyAlikeStayApart(t *testing.T) {
	const text = `
rules:
  - {match: {a: "1"}, limit: 5, window: 1m}
  - {match: {a: "2"}, limit: 5, window: 1m, shadow_mode: true}
  - {match: {a: "3"}, limit: 5, window: 1m}
  - {match: {a: "4"}, limit: 5, window: 1m, count_denied: false}
  - {match: {a: "5"}, limit: 5, window: 1m, name: five}
  - {match: {a: "6"}, limits: [{limit: 5, window: 1m}, {limit: 5, window: 1m}, {limit: 6, window: 1h}]}
  - {match: {a: "7"}, limit: 5, window: 1m, metadata: {a: 1}}
  - {match: {a: "8"}, limit: 5, window: 1m, metadata: {a: 2}}
  - {match: {remote_address: "*"}, limit: 5, window: 1m}
  - {match: {b: "*", c: "*"}, limit: 5, window: 1m}
  - {match: {b: "*", d: "x y", e: ""}, limit: 5, window: 1m, share_threshold: true}
  - {match: {q: "1"}, limit: 5, window: 1m, algorithm: leaky_bucket}
  - {match: {q: "2"}, limit: 5, window: 1m, algorithm: leaky_bucket, over_limit: queue}
  - {match: {q: "3"}, limit: 5, window: 1m, algorithm: leaky_bucket, over_limit: queue}
  - {match: {l: "1"}, limit: 5, window: 1m, accuracy: {lease: 2}}
  - {match: {l: "2"}, limit: 5, window: 1m, accuracy: {lease: 3}}
  - {match: {free: "1"}, unlimited: true}
  - {match: {free: "2"}, exempt: true}
---
domain: other
rules: [{match: {a: "1"}, limit: 5, window: 1m}]
`
	doc, err := Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := CompileWith(Options{CountDenied: true}, doc)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(set.Rules(""))
	byPath := map[string]*Rule{}
	ids := map[counterID]string{}
	for _, r := range all {
		byPath[r.Domain+" "+r.Path] = r
		for _, id := range r.counters() {
			if other := ids[id]; other != "" {
				t.Errorf("%s has the counters of %s", r.Path, other)
			}
			ids[id] = r.Domain + " " + r.Path
		}
	}
	rule := func(path string) *Rule {
		t.Helper()
		if byPath["default "+path] == nil {
			t.Fatalf("no rule %s among %d", path, len(all))
		}
		return byPath["default "+path]
	}
	for _, path := range []string{"a=1", "a=3", "a=5", "a=7", "remote_address=*", "b=*, c=*"} {
		if r := rule(path); r.Shadow || r.Quota || r.Exempt || r.Unlimited || r.Overflow != nil || len(r.Limits) != 1 || !r.Limits[0].CountDenied || r.Limits[0].Requests != 5 {
			t.Errorf("%s: %+v %+v", path, r.particulars, r.does)
		}
	}
	one, other := rule("a=1"), byPath["other a=1"]
	if !rule("a=2").Shadow || rule("a=4").Limits[0].CountDenied || rule("a=5").Name != "five" || one.Name != "" {
		t.Error("a mode, a name or count_denied went to another")
	}
	if rule("a=7").Metadata["a"] == rule("a=8").Metadata["a"] || one.Metadata != nil {
		t.Error("metadata went to another")
	}
	if six := rule("a=6"); len(six.Limits) != 3 || six.Limits[2].Requests != 6 {
		t.Errorf("several limits: %+v", six.Limits)
	}
	if other.Domain != "other" || one.Domain != DefaultDomain {
		t.Errorf("domains %q and %q", other.Domain, one.Domain)
	}
	if v := rule("remote_address=*").variables; len(v) != 1 || v[0].mask != addressDefaults {
		t.Errorf("remote_address varies by %+v", v)
	}
	if v := rule("b=*, c=*").variables; len(v) != 2 || v[0].mask.set() || v[1].entry != 1 {
		t.Errorf("b and c vary by %+v", v)
	}
	shared := rule(`b=*, d="x y", e=*`)
	if len(shared.variables) != 0 || shared.path[1].text != "x y" {
		t.Errorf("shared: %+v, %+v", shared.variables, shared.path)
	}
	two, three := rule("q=2"), rule("q=3")
	if two.Overflow == nil || slices.Equal(two.Overflow, three.Overflow) || rule("q=1").Overflow != nil {
		t.Error("a queue went to another")
	}
	if !rule("q=1").Limits[0].CountDenied || two.Limits[0].CountDenied {
		t.Error("count_denied does not know of the queue")
	}
	if !rule("free=1").Unlimited || !rule("free=2").Exempt || rule("free=1").Exempt {
		t.Error("freedoms went to another")
	}
	if one.Limits[0].Lease != 0 || rule("l=1").Limits[0].Lease != 2 || rule("l=2").Limits[0].Lease != 3 {
		t.Error("a lease went to another")
	}
	if one.does != rule("a=3").does || &one.Limits[0] != &rule("a=3").Limits[0] {
		t.Error("what is alike is not kept once")
	}
	if l := one.Limits[0]; l.Algorithm != limiter.FixedWindow {
		t.Errorf("%+v", l)
	}
}
