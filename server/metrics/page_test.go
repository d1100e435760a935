package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"weir/internal/golden"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md anew")

const metricsPage = "../../docs/metrics.md"

// TestTheMetricsPageIsUpToDate holds the table of docs/metrics.md against the catalog.
// After a change: go test ./server/metrics -run MetricsPage -update
func TestTheMetricsPageIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin of the table", "<!-- end of the table -->"
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no %q and %q", metricsPage, begin, end)
	}
	golden.Check(t, metricsPage, before+begin+": go test ./server/metrics -run MetricsPage -update -->\n\n"+tableText()+"\n"+end+after, *update)
}

func tableText() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, d := range Catalog() {
		labels := ""
		if len(d.Labels) > 0 {
			labels = "`" + strings.Join(d.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.Name, d.Type, labels, strings.ReplaceAll(d.Help, "|", `\|`))
	}
	return b.String()
}
