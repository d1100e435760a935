package rules

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkPlanShapes plans requests of several shapes against a hundred rules
// of each kind: what a rule set of usual size costs.
func BenchmarkPlanShapes(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 100 {
		fmt.Fprintf(&text, "- {match: {endpoint: /api/%d, user: \"*\"}, limit: 5, window: 60s}\n", i)
		fmt.Fprintf(&text, "- {match: {tenant: \"*\", plan: p%d, method: GET}, limit: 5, window: 60s}\n", i)
		fmt.Fprintf(&text, "- {match: {path: \"~/v%d/[a-z]+/[0-9]+\"}, limit: 5, window: 60s}\n", i)
		fmt.Fprintf(&text, "- {match: {two: \"%d\"}, limits: [{limit: 5, window: 1s}, {limit: 50, window: 1m}]}\n", i)
	}
	set := compile(b, text.String())
	for _, row := range []struct {
		name string
		send []string
		hits int
	}{
		{"none", []string{"other=1"}, 0},
		{"each_value", []string{"endpoint=/api/77, user=alice"}, 1},
		{"three_entries", []string{"tenant=acme, plan=p77, method=GET"}, 1},
		{"last_regex", []string{"path=/v99/items/12345"}, 1},
		{"two_limits", []string{"two=77"}, 2},
		{"three_descriptors", []string{"endpoint=/api/77, user=alice", "tenant=acme, plan=p77, method=GET", "other=1"}, 2},
	} {
		b.Run(row.name, func(b *testing.B) {
			req := Request{Domain: "default"}
			for _, d := range row.send {
				req.Descriptors = append(req.Descriptors, descriptor(d))
			}
			var p Plan
			set.Plan(&req, &p)
			if len(p.Hits) != row.hits {
				b.Fatalf("%d hits, want %d", len(p.Hits), row.hits)
			}
			b.ReportAllocs()
			for b.Loop() {
				set.Plan(&req, &p)
			}
		})
	}
}
