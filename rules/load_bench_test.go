package rules

import (
	"fmt"
	"strings"
	"testing"
)

// documents are n documents of 20 rules each.
func documents(n int) map[string][]byte {
	files := map[string][]byte{}
	for i := range n {
		var text strings.Builder
		text.WriteString("domain: bench\nrules:\n")
		for j := range 20 {
			fmt.Fprintf(&text, "  - {match: {key: '%d'}, limit: 1000, window: 1h}\n", i*20+j)
		}
		files[fmt.Sprintf("d%03d.yaml", i)] = []byte(text.String())
	}
	return files
}

// BenchmarkReload is what a reload of 10,000 rules in 500 documents costs, by step.
func BenchmarkReload(b *testing.B) {
	files := documents(500)
	snap := ParseSnapshot(files)
	set, err := Compile(snap.Documents...)
	if err != nil {
		b.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"parse", func() { ParseSnapshot(files) }},
		{"compile", func() { _, _ = Compile(snap.Documents...) }},
		{"warnings", func() { set.Warnings() }},
	} {
		b.Run(step.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step.do()
			}
		})
	}
}
