package rules

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkPlan plans one descriptor among 100,000 rules of each kind.
func BenchmarkPlan(b *testing.B) {
	for _, row := range []struct {
		name  string
		value func(i int) string
		send  string
	}{
		{"exact", func(i int) string { return fmt.Sprintf("/api/v1/resource/%d", i) }, "endpoint=/api/v1/resource/77777"},
		{"wildcard", func(i int) string { return fmt.Sprintf("/api/%d/*", i) }, "endpoint=/api/77777/x/y"},
		{"cidr", func(i int) string { return fmt.Sprintf("cidr:%d.%d.%d.0/24", 1+i>>16, i>>8&255, i&255) }, "endpoint=2.3.4.5"},
	} {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range 100_000 {
			fmt.Fprintf(&text, "- {match: {endpoint: %q}, limit: 5, window: 60s}\n", row.value(i))
		}
		set := compile(b, text.String())
		b.Run(row.name, func(b *testing.B) {
			req := Request{Domain: "default", Descriptors: []Descriptor{descriptor(row.send)}}
			var p Plan
			set.Plan(&req, &p)
			if len(p.Hits) != 1 {
				b.Fatal("no hit")
			}
			b.ReportAllocs()
			for b.Loop() {
				set.Plan(&req, &p)
			}
		})
	}
}

// BenchmarkLoad parses and compiles 10,000 rules.
func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "- {endpoint: /api/%d, limit: 5, window: 60s}\n", i)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		compile(b, text.String()).Warnings()
	}
}
