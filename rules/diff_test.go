package rules

import (
	"strings"
	"testing"
)

func compiled(t *testing.T, text string) *Set {
	t.Helper()
	doc, err := Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestDiffTellsWhatChangesForRequests(t *testing.T) {
	const five = "rules: [{endpoint: /a, limit: 5, window: 60s}]"
	for _, c := range []struct {
		remark, from, to string
		want             string // lines, without places
	}{
		{"nothing", five, five, ""},
		{"the same in the other spelling, with a comment", five,
			"# same\ndescriptors: [{key: endpoint, value: /a, rate_limit: {unit: minute, requests_per_unit: 5}}]", ""},
		{"a limit is raised and keeps its counts", five, "rules: [{endpoint: /a, limit: 7, window: 60s}]",
			"~ domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n    + limit 7 per 1m, fixed_window\n"},
		{"leases, which keep its counts", five, "rules: [{endpoint: /a, limit: 5, window: 60s, accuracy: {lease: 2}}]",
			"~ domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n    + limit 5 per 1m, fixed_window, lease 2\n"},
		{"another window counts anew", five, "rules: [{endpoint: /a, limit: 5, window: 30s}]",
			"~ domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n    + limit 5 per 30s, fixed_window (counts anew)\n"},
		{"a second limit", five, "rules: [{endpoint: /a, limits: [{limit: 5, window: 60s}, {limit: 9, window: day}]}]",
			"~ domain default: endpoint=/a\n    + limit 9 per 24h, fixed_window (counts anew)\n"},
		{"one of two equal limits", "rules: [{endpoint: /a, limits: [{limit: 5, window: 60s}, {limit: 5, window: 60s}]}]", five,
			"~ domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n"},
		{"a rule goes, another comes", five, "domain: d\nrules: [{endpoint: /b, unlimited: true}]",
			"+ domain d: endpoint=/b\n    + unlimited\n- domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n"},
		{"all that is no limit", five,
			"rules: [{endpoint: /a, limit: 5, window: 60s, name: n, shadow_mode: true, on_store_failure: deny, metadata: {a: 1}}]",
			"~ domain default: endpoint=/a\n    + name n\n    + shadow_mode\n    + on_store_failure deny\n    + metadata {\"a\":1}\n"},
		{"a mask", `rules: [{match: {remote_address: "*"}, limit: 5, window: 60s}]`,
			`rules: [{match: {remote_address: "*"}, limit: 5, window: 60s, mask: {ipv4: 24}}]`,
			"~ domain default: remote_address=*\n    - mask of remote_address: {ipv4: 32, ipv6: 64}\n    + mask of remote_address: {ipv4: 24, ipv6: 64}\n"},
		{"a rule that is switched off", five, "rules: [{endpoint: /a, limit: 5, window: 60s, enabled: false}]",
			"- domain default: endpoint=/a\n    - limit 5 per 1m, fixed_window\n"},
		{"patterns in another order", "rules: [{endpoint: /a*, exempt: true}, {endpoint: /*a, unlimited: true}]",
			"rules: [{endpoint: /*a, unlimited: true}, {endpoint: /a*, exempt: true}]",
			"~ domain default: the order of patterns, which decides where several fit\n"},
		{"a pattern more is no other order", "rules: [{endpoint: /a*, exempt: true}]",
			"rules: [{endpoint: /*a, exempt: true}, {endpoint: /a*, exempt: true}]",
			"+ domain default: endpoint=/*a\n    + exempt\n"},
	} {
		var got strings.Builder
		for _, change := range Diff(compiled(t, c.from), compiled(t, c.to)) {
			for line := range strings.Lines(change.String()) {
				line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), "  (")
				got.WriteString(line + "\n")
			}
		}
		if got.String() != c.want {
			t.Errorf("%s:\n%swant\n%s", c.remark, &got, c.want)
		}
	}
}
