package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/golden"
)

var update = flag.Bool("update", false, "write docs/conformance.md anew")

// TestThePageIsUpToDate holds docs/conformance.md against the rows. After a
// change of them: go test ./internal/conformance -run ThePage -update
func TestThePageIsUpToDate(t *testing.T) {
	t.Parallel()
	golden.Check(t, "../../docs/conformance.md", pageText(), *update)
}

// TestARowSaysWhatItsStepsShow holds words against answers: where an answer
// differs the row says so, and where none does it claims no difference.
func TestARowSaysWhatItsStepsShow(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	seen := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if seen[r.domain()] {
			t.Errorf("%s: there are two", r.what)
		}
		seen[r.domain()] = true
		if (r.proof == "") == (len(r.steps) == 0) {
			t.Errorf("%s: it has steps or a proof", r.what)
		}
		if r.proof != "" && !strings.Contains(tests, "func "+r.proof+"(") {
			t.Errorf("%s: there is no %s", r.what, r.proof)
		}
		if (r.ours != "" || r.compat != "") && r.why == "" && !strings.HasPrefix(r.ours, "the same") && !strings.HasPrefix(r.ours, "a fault") {
			t.Errorf("%s: differs without a reason", r.what)
		}
		ours, compat := false, false
		for _, x := range r.steps {
			ours = ours || x.ours != "" && x.ours != x.theirs
			compat = compat || x.compat != "" && x.compat != x.theirs
		}
		if ours && r.ours == "" || compat && r.compat == "" {
			t.Errorf("%s: answers differ, and the row does not say so", r.what)
		}
	}
}

// testNames is the text of the tests that proofs are among.
func testNames(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, pattern := range []string{"*_test.go", "../../cmd/weir/compat_test.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
	}
	return text.String()
}

func pageText() string {
	var b strings.Builder
	b.WriteString(`# Beside envoyproxy/ratelimit

<!-- Generated from the rows of internal/conformance: go test ./internal/conformance -run ThePage -update -->

Weir reads the rule files of [envoyproxy/ratelimit](https://github.com/envoyproxy/ratelimit) as they are and answers the same
calls. This page says where the two do the same and where they do not, and why. Each line is run on both, with counters in
memory and in Redis, by the tests in ` + "`internal/conformance`" + `; theirs is the commit of 22 January 2026. How to change over is on
[a page of its own](migration.md).

*Weir* is ` + "`weir serve`" + ` without further flags; *compat* is ` + "`weir serve --compat envoyproxy`" + `, which charges as
theirs does and reads its environment. "Same" is: as envoyproxy/ratelimit.
`)
	topic := ""
	for i := range rows {
		r := &rows[i]
		if r.topic != topic {
			topic = r.topic
			fmt.Fprintf(&b, "\n## %s\n\n| | envoyproxy/ratelimit | Weir | compat | why, and the switch |\n|---|---|---|---|---|\n", topic)
		}
		cells := []string{"**" + r.what + "**", r.theirs, orSame(r.ours), orSame(r.compat), r.why}
		for i := range cells {
			cells[i] = cell(cells[i])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

func orSame(text string) string {
	if text == "" {
		return "same"
	}
	return text
}

// cell keeps a * that stands for itself from being read as emphasis, which pairs
// with another.
func cell(text string) string {
	text = strings.ReplaceAll(text, "|", `\|`)
	return strings.NewReplacer("with *", `with \*`, "A * ", `A \* `).Replace(text)
}
