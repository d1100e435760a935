package rules

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"weir/internal/golden"
)

const explained = `domain: shop
rules:
  - {match: {tier: gold}, limit: 4, window: 1h, name: gold}
  - {match: {tier: "g*"}, limit: 3, window: 1h}
  - {match: {tier: "*"}, limit: 2, window: 1h}
  - {match: {endpoint: /login, remote_address: "*"}, limits: [{limit: 1, window: 1s, algorithm: token_bucket, burst: 3}, {limit: 5, window: day, timezone: Asia/Tokyo, count_denied: true}]}
  - {match: {endpoint: /login}, exempt: true}
  - {match: {net: "cidr:10.0.0.0/8"}, unlimited: true}
  - {match: {net: "~1.*"}, limit: 1, window: 1s, algorithm: leaky_bucket, shadow_mode: true, replaces: [{name: gold}]}
  - {match: {client: 10.0.0.0/8}, limit: 5, window: 90m, name: ours}
  - {match: {client: all}, limits: [{limit: 5, window: 1m, algorithm: token_bucket}, {limit: 5, window: 24h}, {limit: 5, window: 100ms}, {limit: 5, window: 1h0m5s}], name: all clients}
descriptors:
  - key: tenant
    value: acme
    descriptors: [{key: route, value: /pay, rate_limit: {unit: hour, requests_per_unit: 1}}]
  - key: tenant
    descriptors: [{key: route, rate_limit: {unit: hour, requests_per_unit: 9}}]
  - {key: tenant, value: free}
  - key: path
    descriptors: [{key: method, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 9}}]}]
`

func TestExplanations(t *testing.T) {
	set := compile(t, explained)
	var got strings.Builder
	for _, row := range []struct{ domain, send string }{
		{"shop", "tier=gold"},
		{"shop", "tier=grey"},
		{"shop", "TIER=gold"},
		{"shop", "endpoint=/login, remote_address=10.0.0.1"},
		{"shop", "remote_address=10.0.0.1, endpoint=/login"},
		{"shop", "endpoint=/logim"},
		{"shop", "endpoint=/Login/, remote_address=::1"},
		{"shop", "net=10.0.0.1"},
		{"shop", "net=11"},
		{"shop", "tenant=acme, route=/other"},
		{"shop", "tenant=bob"},
		{"shop", "tenant=free"},
		{"shop", "path=/a, user=b"},
		{"shop", "path=/a, method=GET, host=c, user=b"},
		{"shop", "client=10.1.2.3"},
		{"shop", "client=11.1.2.3"},
		{"shop", "client=all"},
		{"shop", "nothing=at all"},
		{"shop", ""},
		{"shops", "tier=gold"},
	} {
		got.WriteString(set.Explain(row.domain, entries(row.send)).String())
	}
	golden.Check(t, "testdata/explain.want", got.String(), *update)
}

func TestAnExplanationNamesTheCountersOfTheRequest(t *testing.T) {
	set := compile(t, explained)
	d := descriptor("endpoint=/login, remote_address=10.0.0.1")
	x := set.Explain("shop", d.Entries)
	p := planOf(set, Request{Domain: "shop", Descriptors: []Descriptor{d}})
	if x.Rule == nil || len(x.Rule.Limits) != len(p.Hits) {
		t.Fatalf("%+v", x)
	}
	for i, l := range x.Rule.Limits {
		if string(l.Key) != string(p.Hits[i].Key) {
			t.Errorf("limit %d: key %x, want %x", i, l.Key, p.Hits[i].Key)
		}
	}
	if _, err := json.Marshal(x); err != nil {
		t.Error(err)
	}
}

func TestWarnings(t *testing.T) {
	src, err := os.ReadFile("testdata/warnings.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Parse("warnings.yaml", src)
	if err != nil {
		t.Fatal(err)
	}
	set, err := Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/warnings.want", Faults(set.Warnings()).Error()+"\n", *update)
}

// What is meant in the way that it is written has no warning.
func TestNoWarnings(t *testing.T) {
	for _, text := range []string{
		"", // nothing
		`rules: [{endpoint: /a, limit: 1, window: 1s}, {match: {endpoint: "*"}, limit: 2, window: 1s}]`,      // a limit of its own
		`descriptors: [{key: k, value: free}, {key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]`,     // free on purpose
		`rules: [{match: {a: x, b: "*"}, unlimited: true}, {match: {a: "*", b: "*"}, limit: 1, window: 1s}]`, // all covered
		`rules: [{match: {a: x, b: y}, unlimited: true}, {match: {a: x*, b: z}, unlimited: true}, {match: {a: q*, b: z}, unlimited: true}, {match: {a: x, b: "*"}, unlimited: true}]`,
		`rules: [{match: {a: "*", b: "cidr:10.0.0.0/8"}, exempt: true}, {match: {a: x, b: "cidr:10.0.0.0/8"}, limit: 1, window: 1s}]`,                                        // the same, for x otherwise
		`rules: [{match: {a: "*", b: "cidr:10.0.0.0/8"}, exempt: true}, {match: {a: x, b: "*"}, limit: 1, window: 1s}, {match: {a: x, b: "cidr:10.0.0.0/8"}, exempt: true}]`, // exempt there too
		`rules: [{match: {a: "*", b: "cidr:10.0.0.0/8"}, exempt: true}, {match: {a: x, b: "*"}, limit: 1, window: 1s}, {match: {a: x, b: "10.*"}, exempt: true}]`,            // likely so
		`rules: [{match: {a: "*", b: "cidr:10.0.0.0/8"}, limit: 5, window: 1s}, {match: {a: x, b: "*"}, limit: 1, window: 1s}]`,                                              // a limit of its own
		`rules: [{match: {a: "*"}, exempt: true}, {match: {a: x}, limit: 1, window: 1s}]`,                                                                                    // all but x
		`rules: [{match: {b: }, unlimited: true}, {match: {path: /10.0.0.0/8}, unlimited: true}]`,                                                                            // no value, a path
		`rules: [{match: {a: x}, name: n, unlimited: true}, {match: {b: "*"}, replaces: [{name: n}], unlimited: true}]`,
	} {
		if warnings := compile(t, text).Warnings(); len(warnings) > 0 {
			t.Errorf("%s\n%v", text, Faults(warnings))
		}
	}
}
