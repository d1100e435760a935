package faults_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/golden"
)

var update = flag.Bool("update", false, "write docs/faults.md anew")

// TestThePageIsUpToDate holds docs/faults.md against the rows. After a change of
// them: go test ./internal/faults -run ThePage -update
func TestThePageIsUpToDate(t *testing.T) {
	t.Parallel()
	golden.Check(t, "../../docs/faults.md", pageText(), *update)
}

var reportForm = regexp.MustCompile(`^([A-Za-z0-9-]+/[A-Za-z0-9._-]+)#([1-9][0-9]*)$`)

func TestEachRowNamesItsReportsAndItsProof(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range faults {
		f := &faults[i]
		for _, report := range strings.Fields(f.reports) {
			if !reportForm.MatchString(report) {
				t.Errorf("%s: it is no owner/repository#number", report)
			}
			if seen[report] {
				t.Errorf("%s: it is named twice", report)
			}
			seen[report] = true
		}
		if f.topic == "" || f.reports == "" || f.wrong == "" || f.weir == "" {
			t.Errorf("%s: something is left out", f.reports)
		}
		if (f.test == "") == (len(f.steps) == 0) {
			t.Errorf("%s: it has steps or a test", f.reports)
		}
		if f.test != "" && !isTest(t, f.test) {
			t.Errorf("%s: there is no %s", f.reports, f.test)
		}
		for _, x := range f.steps {
			if (x.ask == "") != (x.want == "") || x.ask == "" && x.load == "" {
				t.Errorf("%s: a step that asks, and wants, nothing", f.reports)
			}
		}
	}
}

// isTest tells whether there is a test of this name: here, or in the package
// that is named before it.
func isTest(t *testing.T, test string) bool {
	t.Helper()
	folder, name, elsewhere := strings.Cut(test, " ")
	if !elsewhere {
		folder, name = "internal/faults", test
	}
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}

func pageText() string {
	var b strings.Builder
	reports := 0
	for i := range faults {
		reports += len(strings.Fields(faults[i].reports))
	}
	fmt.Fprintf(&b, `# What other limiters got wrong

<!-- Generated from the rows of internal/faults: go test ./internal/faults -run ThePage -update -->

%d public reports of rate limiters that decided wrong, or of what was missing in them, and what Weir does instead. Each line
is played against Weir over gRPC, with counters in memory and in Redis where both can have the fault, by the tests in
`+"`internal/faults`"+` or the one that it names. A report says nothing of what became of it: most are mended by now.
`, reports)
	topic := ""
	for i := range faults {
		f := &faults[i]
		if f.topic != topic {
			topic = f.topic
			fmt.Fprintf(&b, "\n## %s\n\n| reports | what went wrong there | Weir |\n|---|---|---|\n", topic)
		}
		weir := f.weir
		if folder, name, elsewhere := strings.Cut(f.test, " "); elsewhere {
			weir += fmt.Sprintf(" (`%s`, `%s`)", folder, name)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", links(f.reports), cell(f.wrong), cell(weir))
	}
	return b.String()
}

// links are the reports, each with its address.
func links(reports string) string {
	var links []string
	for _, report := range strings.Fields(reports) {
		m := reportForm.FindStringSubmatch(report)
		links = append(links, fmt.Sprintf("[%s](https://github.com/%s/issues/%s)", report, m[1], m[2]))
	}
	return strings.Join(links, ", ")
}

// cell keeps what stands for itself from being read as a table's or as markup.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
