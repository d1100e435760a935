package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/bench/load"
)

func results() *Results {
	rounds := func(scale float64) (out []load.Result) {
		for _, noise := range []float64{1, 2, 1} { // the second round is a slow one
			d := time.Duration(scale * noise * float64(time.Millisecond))
			out = append(out, load.Result{
				Requests: int64(10_000 / (scale * noise)), Seconds: 1,
				P50: d, P90: 2 * d, P99: 3 * d, P999: 4 * d,
				ServerCPU: 50 * scale * noise, RedisCPU: 10 * scale * noise,
			})
		}
		return out
	}
	return &Results{
		Machine: Machine{Date: "2026-01-02 03:04", CPU: "Some & CPU", Cores: 4, Kernel: "Linux 6", Go: "go1.26", Redis: "7", Commit: "abc"},
		Scenarios: []Scenario{{
			ID: "stores", Title: "One limit <each>", Against: []string{"envoyproxy"},
			Rows: []Row{
				{Label: "envoyproxy", Rounds: rounds(1), CPUKnown: true, HasRedis: true, Counted: &load.Counted{Looked: 200, Right: 200}, ServerRSS: 40e6, RedisRSS: 9e6},
				{Label: "weir-redis", Rounds: rounds(.25), CPUKnown: true, HasRedis: true, Counted: &load.Counted{Looked: 200, Right: 199}, Note: "a remark."},
				{Label: "elsewhere", Rounds: rounds(.5), Unchecked: "drains"},
			},
			Skipped: []string{"leases: this weir knows none"},
		}},
		Scripts: []Script{{"fixed_window", 1, 5.25}, {"fixed_window", 3, 9}, {"token_bucket", 1, 6}},
	}
}

func TestTableHasMediansAndPairwiseRatios(t *testing.T) {
	table := results().Scenarios[0].Table()
	for _, want := range []string{
		"| envoyproxy |", "10,000", "1.0 ms", "50.0 + 10.0", "40 + 9",
		"0.25 (0.25–0.25)", "4.00 (4.00–4.00)",
		"200 of 200", "199 of 200", "drains",
		"weir-redis: a remark.", "Not run: leases: this weir knows none",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	pipes := -1
	for line := range strings.Lines(table) {
		if n := strings.Count(line, "|"); n > 0 && pipes >= 0 && n != pipes {
			t.Errorf("a line has %d cells, the head %d: %s", n-1, pipes-1, line)
		} else if n > 0 {
			pipes = n
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{thousands(0), "0"}, {thousands(999), "999"}, {thousands(1000), "1,000"}, {thousands(1234567), "1,234,567"},
		{milliseconds(0), "0.00 ms"}, {milliseconds(42_000), "0.04 ms"}, {milliseconds(250_000), "0.25 ms"}, {milliseconds(2_340_000), "2.3 ms"},
		{milliseconds(23_400_000), "23 ms"}, {milliseconds(234e6), "234 ms"},
		{megabytes(0), "–"}, {megabytes(12_600_000), "13"},
	} {
		if x.got != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
}

func TestPageKeepsWhatIsNotBetweenMarkers(t *testing.T) {
	const page = "# Title\n<!-- bench machine -->old<!-- end -->\ntext\n<!-- bench stores -->\nold\n<!-- end -->\n<!-- bench zipf -->\nnot measured this time\n<!-- end -->\nlast"
	r := results()
	got, err := r.fill(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Title\n", "\ntext\n", "\nlast", "Some & CPU, 4 cores", "| weir-redis", "not measured this time"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("the old part is still there:\n%s", got)
	}
	if again, err := r.fill(got); again != got || err != nil {
		t.Errorf("a second time it becomes\n%s\n%v", again, err)
	}
}

func TestPageWithBrokenMarkersIsNotWritten(t *testing.T) {
	for remark, page := range map[string]string{
		"no end":            "a\n<!-- bench stores -->\nb",
		"an end too few":    "<!-- bench stores -->\n<!-- bench machine -->\n<!-- end -->",
		"an unknown name":   "<!-- bench storage -->\n<!-- end -->",
		"a marker not shut": "<!-- bench stores\n<!-- end -->",
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := results().WritePage(path); err == nil {
			t.Errorf("%s passes", remark)
		}
		if after, _ := os.ReadFile(path); string(after) != page {
			t.Errorf("%s: the page is now\n%s", remark, after)
		}
	}
}

// What the page in docs has, must be what the matrix measures.
func TestPerformancePageHasAllParts(t *testing.T) {
	src, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := results().fill(string(src)); err != nil {
		t.Error(err)
	}
	for _, name := range append([]string{"machine", "scripts", "parts", "model"}, ScenarioIDs...) {
		if strings.Count(string(src), "<!-- bench "+name+" -->") != 1 {
			t.Errorf("docs/performance.md has no place for %s, or several", name)
		}
	}
}

func TestScriptsAreATableOfAlgorithmAndHits(t *testing.T) {
	want := "| algorithm    | 1 hit, µs | 3 hits, µs |\n|--------------|----------:|-----------:|\n| fixed_window |       5.2 |        9.0 |\n| token_bucket |       6.0 |          – |\n"
	if got := results().scripts(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestResultsSurviveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if err := results().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil || !reflect.DeepEqual(got, results()) {
		t.Errorf("%v\n%+v", err, got)
	}
	if _, err := ReadFile(path + "x"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestChartIsXMLWithABarForEachRow(t *testing.T) {
	chart := results().chart()
	d := xml.NewDecoder(strings.NewReader(chart))
	classes := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, chart)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					classes[e.Name.Local+" "+a.Value]++
				}
			}
		}
	}
	if classes["rect server"] != 3 || classes["rect redis"] != 3 { // two rows with CPU, and the legend
		t.Errorf("%v\n%s", classes, chart)
	}
	if !strings.Contains(chart, "prefers-color-scheme: dark") {
		t.Error("no colours for a dark page")
	}
	for _, x := range []struct{ most, want float64 }{{0, 1}, {100, 20}, {42, 10}, {9, 2}, {61, 20}, {5, 1}} {
		if got := gridStep(x.most); got != x.want {
			t.Errorf("gridStep(%v) = %v, want %v", x.most, got, x.want)
		}
	}
}
