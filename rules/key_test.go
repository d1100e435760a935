package rules

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"weir/internal/golden"
)

// keyOf is the key of the only hit of one descriptor.
func keyOf(t testing.TB, set *Set, domain string, d Descriptor) string {
	t.Helper()
	p := planOf(set, Request{Domain: domain, Descriptors: []Descriptor{d}})
	if len(p.Hits) != 1 {
		t.Fatalf("%v has %d hits", d.Entries, len(p.Hits))
	}
	return hex.EncodeToString(p.Hits[0].Key)
}

// Counters in use lose what was used when these change: then keyFormat has to
// change too, and the release notes have to say so.
func TestGoldenKeys(t *testing.T) {
	set := compile(t, `
domain: shop
rules:
  - {match: {endpoint: /a}, limit: 5, window: 60s}
  - {match: {user: "*"}, limit: 5, window: 60s, algorithm: token_bucket}
  - {match: {remote_address: "*"}, limit: 5, window: day, timezone: Asia/Tokyo}
  - {match: {file: "img/*"}, limit: 5, window: month, share_threshold: true}
`)
	var got bytes.Buffer
	for _, send := range []string{"endpoint=/a", "user=", "user=ann", "remote_address=2001:db8::1", "remote_address=::ffff:192.0.2.1", "remote_address=x", "file=img/1"} {
		fmt.Fprintf(&got, "%s %s\n", send, keyOf(t, set, "shop", descriptor(send)))
	}
	fmt.Fprintf(&got, "override %s\n", keyOf(t, set, "shop", Descriptor{Entries: entries("user=ann, x=y"), Override: override(t, 5, "hour")}))
	golden.Check(t, "testdata/keys.want", got.String(), *update)
}

func TestWhatTellsCountersApart(t *testing.T) {
	const base = "limit: 5, window: 1h"
	rule := func(domain, match, fields string) string {
		return fmt.Sprintf("domain: %s\nrules: [{match: %s, %s}]", domain, match, fields)
	}
	key := func(text, domain, send string) string { return keyOf(t, compile(t, text), domain, descriptor(send)) }
	first := key(rule("d", "{k: '*'}", base), "d", "k=v")
	for remark, same := range map[string]string{
		"the limit":            key(rule("d", "{k: '*'}", "limit: 6, window: 1h"), "d", "k=v"),
		"the window's text":    key(rule("d", "{k: '*'}", "limit: 5, window: hour"), "d", "k=v"),
		"the name":             key(rule("d", "{k: '*'}", base+", name: n"), "d", "k=v"),
		"the mode":             key(rule("d", "{k: '*'}", base+", shadow_mode: true, count_denied: true"), "d", "k=v"),
		"a lease":              key(rule("d", "{k: '*'}", base+", accuracy: {lease: 100}"), "d", "k=v"),
		"the bare key":         key(rule("d", "{k: }", base), "d", "k=v"),
		"the spelling":         key("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}]", "d", "k=v"),
		"rules before it":      key("domain: d\nrules: [{endpoint: /x, unlimited: true}, {match: {k: '*'}, "+base+"}]", "d", "k=v"),
		"a mask not concerned": key(rule("d", "{k: '*'}", base+", mask: {ipv4: 8}"), "d", "k=v"),
	} {
		if same != first {
			t.Errorf("%s changes the key", remark)
		}
	}
	seen := map[string]string{first: "first"}
	for remark, other := range map[string]string{
		"the value":     key(rule("d", "{k: '*'}", base), "d", "k=w"),
		"the domain":    key(rule("e", "{k: '*'}", base), "e", "k=v"),
		"the key":       key(rule("d", "{l: '*'}", base), "d", "l=v"),
		"the pattern":   key(rule("d", "{k: 'v*'}", base), "d", "k=v"),
		"an exact path": key(rule("d", "{k: v}", base), "d", "k=v"),
		"a longer path": key(rule("d", "{k: '*', l: '*'}", base), "d", "k=v, l=v"),
		"the window":    key(rule("d", "{k: '*'}", "limit: 5, window: 2h"), "d", "k=v"),
		"the calendar":  key(rule("d", "{k: '*'}", "limit: 5, window: month"), "d", "k=v"),
		"30 days":       key(rule("d", "{k: '*'}", "limit: 5, window: 720h"), "d", "k=v"),
		"the zone":      key(rule("d", "{k: '*'}", "limit: 5, window: month, timezone: Asia/Tokyo"), "d", "k=v"),
		"the algorithm": key(rule("d", "{k: '*'}", base+", algorithm: sliding_window_counter"), "d", "k=v"),
		"sharing":       key(rule("d", "{k: '*'}", base+", share_threshold: true"), "d", "k=v"),
	} {
		if seen[other] != "" {
			t.Errorf("%s does not change the key: as %s", remark, seen[other])
		}
		seen[other] = remark
	}
}

func TestLimitsOfOneRuleNeverShareACounter(t *testing.T) {
	set := compile(t, "rules: [{match: {k: '*'}, limits: [{limit: 1, window: 1h}, {limit: 9, window: 1h}, {limit: 9, window: hour}, {limit: 1, window: 1s}]}]")
	p := planOf(set, Request{Domain: "default", Descriptors: []Descriptor{descriptor("k=v")}})
	seen := map[string]bool{}
	for _, h := range p.Hits {
		seen[string(h.Key)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d counters of 4", len(seen))
	}
}

func TestAddressesCountAsTheirNetwork(t *testing.T) {
	set := compile(t, `
rules:
  - {match: {remote_address: "*"}, limit: 1, window: 1h}
  - {match: {a: x, remote_address: "*"}, limit: 1, window: 1h, mask: {ipv4: 24}}
  - {match: {net: "*"}, limit: 1, window: 1h, mask: {ipv4: 24}}
  - {match: {range: "cidr:10.0.0.0/8"}, limit: 1, window: 1h, mask: {ipv4: 16}}
descriptors:
  - {key: b, value: x, descriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1}}]}
  - {key: addr, mask: {ipv6: 48}, descriptors: [{key: path, rate_limit: {unit: hour, requests_per_unit: 1}}]}
`)
	for _, row := range []struct {
		a, b string
		same bool
	}{
		{"remote_address=2001:db8:1:2::1", "remote_address=2001:db8:1:2:ffff::9", true},
		{"remote_address=2001:db8:1:2::1", "remote_address=2001:db8:1:3::1", false},
		{"remote_address=192.0.2.7", "remote_address=::ffff:192.0.2.7", true},
		{"remote_address=192.0.2.7", "remote_address=::ffff:c000:207", true},
		{"remote_address=192.0.2.7", "remote_address=192.0.2.8", false},
		{"remote_address=fe80::1%eth0", "remote_address=fe80::1%eth1", true},
		{"remote_address=192.0.2.7/32", "remote_address=192.0.2.7", false}, // a value may look like a network
		{"a=x, remote_address=192.0.2.7", "a=x, remote_address=192.0.2.8", true},
		{"a=x, remote_address=2001:db8::1", "a=x, remote_address=2001:db8::2", true}, // the default of the other family stays
		{"net=192.0.2.7", "net=192.0.2.99", true},
		{"net=192.0.2.7", "net=192.0.3.7", false},
		{"net=2001:db8::1", "net=2001:db8::2", false},
		{"net=not-an-address", "net=also-none", false},
		{"range=10.1.2.3", "range=10.1.9.9", true},
		{"range=10.1.2.3", "range=10.2.2.3", false},
		{"b=x, remote_address=2001:db8::1", "b=x, remote_address=2001:db8::2", false}, // nested: as written
		{"addr=2001:db8:0:1::1, path=/", "addr=2001:db8:0:2::1, path=/", true},
		{"addr=2001:db8:0:1::1, path=/", "addr=2001:db8:0:1::1, path=/b", false},
	} {
		a, b := keyOf(t, set, "default", descriptor(row.a)), keyOf(t, set, "default", descriptor(row.b))
		if (a == b) != row.same {
			t.Errorf("%s and %s share a counter: %v", row.a, row.b, a == b)
		}
	}
}

// FuzzKeysAreInjective looks for two lists of entries with one key.
func FuzzKeysAreInjective(f *testing.F) {
	set := compile(f, `rules: [{match: {"a": "*"}, limit: 1, window: 1h}, {match: {a: "*", b: "*"}, limit: 1, window: 1h}, {match: {a: "x*", b: "*", c: "*"}, limit: 1, window: 1h, mask: {ipv4: 8}}]`)
	f.Add("a_b", "c", "", "a", "b_c", "", uint8(3))
	f.Add("a", "b", "", "ba", "b", "", uint8(36)) // limits of their own
	f.Add("10.0.0.0/8", "", "", "10.1.1.1", "", "", uint8(1))
	f.Add("x10.0.0.1", "10.0.0.1", "10.0.0.0/8", "x10.0.0.1", "10.0.0.2", "10.0.0.0/8", uint8(0))
	f.Fuzz(func(t *testing.T, a1, b1, c1, a2, b2, c2 string, how uint8) {
		build := func(a, b, c string, depth, over uint8) Descriptor {
			all := []Entry{{"a", a}, {"b", b}, {"c", c}}
			d := Descriptor{Entries: all[:1+int(depth)%3]}
			if over%2 == 1 {
				d.Override = override(t, 1, "hour")
				d.Entries[0].Key = b // any key has an override
			}
			return d
		}
		first, second := build(a1, b1, c1, how, how>>2), build(a2, b2, c2, how>>3, how>>5)
		p := planOf(set, Request{Domain: "default", Descriptors: []Descriptor{first, second}})
		if len(p.Hits) < 2 || !bytes.Equal(p.Hits[0].Key, p.Hits[1].Key) {
			return
		}
		if (first.Override == nil) != (second.Override == nil) || len(first.Entries) != len(second.Entries) {
			t.Fatalf("%v and %v share a key", first, second)
		}
		for i := range first.Entries {
			x, y := first.Entries[i], second.Entries[i]
			masked := first.Override == nil && len(first.Entries) == 3 && sameNetwork(x.Value, y.Value)
			if x.Key != y.Key || x.Value != y.Value && !masked {
				t.Fatalf("%v and %v share a key", first, second)
			}
		}
	})
}

// sameNetwork tells whether both are addresses of one network of 8 bits of
// IPv4, or one address of IPv6.
func sameNetwork(a, b string) bool {
	x, isX := parseAddress(a)
	y, isY := parseAddress(b)
	m := mask{ipv4: 8, hasIPv4: true}
	return isX && isY && m.network(x) == m.network(y)
}
