package study

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/golden"
)

var (
	update = flag.Bool("update", false, "play the whole study, and write results.json and the pages anew: make study")
	fill   = flag.Bool("fill", false, "measure memory anew, and write the pages without playing the study")
)

const (
	docs        = "../../docs/"
	resultsFile = "results.json"
)

var pages = []string{"accuracy.md", "choosing.md"}

// TestThePagesAreWhatTheStudyFinds holds docs/accuracy.md, its charts and
// docs/choosing.md against results.json.
func TestThePagesAreWhatTheStudyFinds(t *testing.T) {
	if *update {
		r := Run(Blocks, func(block int) { t.Logf("block %d of %d", block+1, Blocks) })
		writeResults(t, &r)
	}
	r := readResults(t)
	if *update || *fill {
		r.Memory = measureMemory(t, true)
		writeResults(t, r)
	}
	for _, page := range pages {
		text, err := Fill(read(t, docs+page), r)
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		golden.Check(t, docs+page, text, *update || *fill)
	}
	for name, chart := range r.Charts() {
		golden.Check(t, docs+name, chart, *update || *fill)
	}
}

// TestASampleIsFoundAgain is the short form of the study: each algorithm still decides
// as it did when the pages were written.
func TestASampleIsFoundAgain(t *testing.T) {
	want, got := readResults(t), sample()
	if want.Blocks != Blocks {
		t.Errorf("%s has %d blocks, and the study %d; run make study", resultsFile, want.Blocks, Blocks)
	}
	if !slices.Equal(got.Shapes, want.Sample.Shapes) {
		t.Errorf("traffic: got\n%+v\nand %s has\n%+v\nif it is meant so, run make study", got.Shapes, resultsFile, want.Sample.Shapes)
	}
	if !slices.Equal(got.Room, want.Sample.Room) {
		t.Errorf("room: got\n%+v\nand %s has\n%+v\nif it is meant so, run make study", got.Room, resultsFile, want.Sample.Room)
	}
	if worst := worstCases(); !reflect.DeepEqual(worst, want.Worst) {
		t.Errorf("worst cases: got\n%+v\nand %s has\n%+v\nif it is meant so, run make study", worst, resultsFile, want.Worst)
	}
}

func TestBlocksAddUp(t *testing.T) {
	all, once := readResults(t).Sample, readResults(t).Sample
	all.add(once)
	for i := range all.Shapes {
		a, o := &all.Shapes[i], &once.Shapes[i]
		if a.Requests != 2*o.Requests || a.Outcomes[slidingCounter].Passed != 2*o.Outcomes[slidingCounter].Passed || a.Outcomes[slidingCounter].Most != o.Outcomes[slidingCounter].Most || a.Arrivals.Difference != 2*o.Arrivals.Difference {
			t.Errorf("%s: %+v and the same are %+v", o.Name, o, a)
		}
	}
	for i := range all.Room {
		if a, o := &all.Room[i], &once.Room[i]; a.Requests != 2*o.Requests || a.Refused[roomToken] != 2*o.Refused[roomToken] || a.Wrong != 2*o.Wrong {
			t.Errorf("%+v and the same are %+v", o, a)
		}
	}
}

func TestMarkersThatAreWrongAreNamed(t *testing.T) {
	r := readResults(t)
	for _, c := range []struct{ remark, page, want string }{
		{"no end", "a\n<!-- study worst -->\nb\n", "has no <!-- end -->"},
		{"the end of another one", "<!-- study worst -->\n<!-- study room -->\n<!-- end -->\n", "has no <!-- end -->"},
		{"an unknown name", "<!-- study best -->\n<!-- end -->\n", `"best"`},
	} {
		if _, err := Fill(c.page, r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.remark, err, c.want)
		}
	}
	page := "before\n<!-- study worst -->\nold\n<!-- end -->\nafter\n"
	once, err := Fill(page, r)
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := Fill(once, r); err != nil || twice != once {
		t.Errorf("filled twice it is another page (%v)", err)
	}
	if !strings.HasPrefix(once, "before\n") || !strings.HasSuffix(once, "\nafter\n") || strings.Contains(once, "old") {
		t.Errorf("got\n%s", once)
	}
}

func TestEachPartOfTheStudyStandsOnAPage(t *testing.T) {
	var all strings.Builder
	for _, page := range pages {
		all.WriteString(read(t, docs+page))
	}
	r := readResults(t)
	for name := range r.Parts() {
		if !strings.Contains(all.String(), strings.Replace(beginMark, "NAME", name, 1)) {
			t.Errorf("the part %q stands nowhere", name)
		}
	}
	for name := range r.Charts() {
		if !strings.Contains(all.String(), "]("+name+")") {
			t.Errorf("the chart %s stands nowhere", name)
		}
	}
}

func TestSharesSayTwoDigitsAndNothingWhereThereIsNone(t *testing.T) {
	for _, c := range []struct {
		n, of int64
		want  string
	}{
		{0, 100, "0"},
		{1, 0, "0"},
		{3, 100_000, "0.0030 %"},
		{1, 3, "33.3 %"},
		{1, 1, "100 %"},
		{2, 1, "200 %"},
		{999, 1000, "99.9 %"},
		{31, 1000, "3.1 %"},
	} {
		if got := percent(c.n, c.of); got != c.want {
			t.Errorf("percent(%d, %d) = %q, want %q", c.n, c.of, got, c.want)
		}
	}
}

func readResults(t *testing.T) *Results {
	t.Helper()
	var r Results
	d := json.NewDecoder(strings.NewReader(read(t, resultsFile)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%s: %v; renew it by make study", resultsFile, err)
	}
	return &r
}

func writeResults(t *testing.T, r *Results) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	if err := json.Indent(&lines, text, "", " "); err != nil {
		t.Fatal(err)
	}
	lines.WriteByte('\n')
	if err := os.WriteFile(resultsFile, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
