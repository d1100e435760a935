package rules

import (
	"reflect"
	"testing"

	"weir/limiter"
)

func override(t testing.TB, requests uint32, unit string) *Override {
	t.Helper()
	o, err := NewOverride(requests, unit, 1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWhatARequestBringsToItsCounters(t *testing.T) {
	set := compile(t, `
domain: d
rules:
  - {match: {two: "*"}, limits: [{limit: 1, window: 1s}, {limit: 2, window: 1h}], shadow_mode: true, on_store_failure: deny}
  - {match: {quota: "*"}, limit: 3, window: 1h, quota_mode: true}
  - {match: {free: "*"}, unlimited: true}
`)
	req := Request{Domain: "d", Hits: 4, Descriptors: []Descriptor{
		descriptor("free=1"),
		descriptor("two=1"),
		descriptor("none=1"),
		{Entries: entries("quota=1"), HasHits: true},
		{Entries: entries("quota=1"), Hits: 1 << 40, HasHits: true, Refund: true},
		{Entries: entries("none=1"), Override: override(t, 5, "hour")},
		{Override: override(t, 5, "hour")},
	}}
	p := planOf(set, req)
	wantMatches := []struct {
		rule        string
		unlimited   bool
		first, hits int
	}{
		{"free=*", true, 0, 0},
		{"two=*", false, 0, 2},
		{"", false, 2, 0},
		{"quota=*", false, 2, 1},
		{"quota=*", false, 3, 1},
		{"", false, 4, 1},
		{"", false, 5, 0},
	}
	for i, want := range wantMatches {
		m := p.Matches[i]
		rule := ""
		if m.Rule != nil {
			rule = m.Rule.Path
		}
		if rule != want.rule || m.Unlimited != want.unlimited || m.First != want.first || m.Hits != want.hits {
			t.Errorf("descriptor %d: %q %+v, want %+v", i, rule, m, want)
		}
	}
	wantHits := []limiter.Hit{
		{Cost: 4, Shadow: true, OnFailure: limiter.FailDeny},
		{Cost: 4, Shadow: true, OnFailure: limiter.FailDeny},
		{Cost: 0, Quota: true},
		{Cost: limiter.MaxCost, Quota: true, Refund: true},
		{Cost: 4},
	}
	if len(p.Hits) != len(wantHits) || len(p.Rules) != len(wantHits) {
		t.Fatalf("%d hits, %d rules", len(p.Hits), len(p.Rules))
	}
	for i, want := range wantHits {
		got := p.Hits[i]
		got.Key, got.Limit = nil, limiter.Limit{}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("hit %d: %+v, want %+v", i, got, want)
		}
	}
	if p.Rules[4] != nil || p.Rules[0] == nil {
		t.Error("an override has a rule, or a rule's hit has none")
	}
}

func TestModesOfRules(t *testing.T) {
	set := compile(t, `
domain: d
rules:
  - {match: {internal: "*"}, exempt: true}
  - {match: {base: "*"}, name: base, limit: 1, window: 1s}
  - {match: {vip: "*"}, name: vip, replaces: [{name: base}], limit: 2, window: 1s}
  - {match: {vvip: "*"}, replaces: [{name: vip}], limit: 3, window: 1s}
`)
	hour := override(t, 9, "hour")
	for _, row := range []struct {
		remark      string
		descriptors []Descriptor
		exempt      bool
		limits      []uint64 // of the hits
	}{
		{"plain", []Descriptor{descriptor("base=1")}, false, []uint64{1}},
		{"replaced", []Descriptor{descriptor("base=1"), descriptor("vip=1")}, false, []uint64{2}},
		{"in any order", []Descriptor{descriptor("vip=1"), descriptor("base=1")}, false, []uint64{2}},
		{"the replaced one still replaces", []Descriptor{descriptor("base=1"), descriptor("vip=1"), descriptor("vvip=1")}, false, []uint64{3}},
		{"an override replaces nothing", []Descriptor{descriptor("base=1"), {Entries: entries("vip=1"), Override: hour}}, false, []uint64{1, 9}},
		{"an override is not replaced", []Descriptor{{Entries: entries("base=1"), Override: hour}, descriptor("vip=1")}, false, []uint64{9, 2}},
		{"exempt wins", []Descriptor{descriptor("base=1"), descriptor("internal=1")}, true, nil},
		{"also over its override", []Descriptor{{Entries: entries("internal=1"), Override: hour}, descriptor("base=1")}, true, nil},
	} {
		p := planOf(set, Request{Domain: "d", Descriptors: row.descriptors})
		var limits []uint64
		for _, h := range p.Hits {
			limits = append(limits, h.Limit.Requests)
		}
		if p.Exempt != row.exempt || !reflect.DeepEqual(limits, row.limits) || len(p.Matches) != len(row.descriptors) {
			t.Errorf("%s: exempt %v, limits %v", row.remark, p.Exempt, limits)
		}
	}
	p := planOf(set, Request{Domain: "elsewhere", Descriptors: []Descriptor{{Entries: entries("base=1"), Override: hour}}})
	if len(p.Hits) != 0 || len(p.Matches) != 1 {
		t.Errorf("a domain without rules: %+v", p)
	}
}

func TestAPlanIsFilledAnewAndAllocatesNothing(t *testing.T) {
	set := compile(t, `
rules:
  - {match: {a: "*", remote_address: "*"}, limits: [{limit: 1, window: 1s}, {limit: 2, window: 1h}]}
  - {match: {w: "x*"}, limit: 1, window: 1s}
  - {match: {n: "cidr:10.0.0.0/8"}, limit: 1, window: 1s, mask: {ipv4: 24}}
  - {match: {r: "~x+"}, limit: 1, window: 1s}
  - {match: {vip: "*"}, replaces: [{name: b}], limit: 2, window: 1s}
  - {match: {i: "*"}, exempt: true}
`)
	many := Request{Domain: "default", Descriptors: []Descriptor{
		descriptor("a=1, remote_address=2001:db8::1"), descriptor("w=xyz"), descriptor("n=10.1.2.3"), descriptor("n=no-address"),
		descriptor("r=xxx"), descriptor("vip=1"), {Entries: entries("o=1"), Override: override(t, 1, "hour")},
	}}
	exempt := Request{Domain: "default", Descriptors: []Descriptor{descriptor("i=1")}}
	var p Plan
	set.Plan(&many, &p)
	first := planOf(set, many)
	set.Plan(&exempt, &p)
	if !p.Exempt || len(p.Hits) != 0 {
		t.Fatalf("%+v", p)
	}
	set.Plan(&many, &p)
	if p.Exempt || !reflect.DeepEqual(p.Hits, first.Hits) || !reflect.DeepEqual(p.Matches, first.Matches) {
		t.Errorf("used again: %+v, anew: %+v", p, first)
	}
	if n := testing.AllocsPerRun(100, func() { set.Plan(&many, &p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
