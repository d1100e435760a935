package ruletest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEachFaultOfATestFileIsNamedAtItsPlace(t *testing.T) {
	const rules = "rules: [{endpoint: /x, limit: 5, window: 60s}]\n"
	for _, c := range []struct{ remark, file, want string }{
		{"empty", "", "t.yaml:1:1: the file has no tests"},
		{"only a comment", "# nothing\n", "t.yaml:1:1: the file has no tests"},
		{"no tests", rules, "t.yaml:1:1: the file has no tests"},
		{"a list of none", rules + "tests: []\n", "t.yaml:1:1: the file has no tests"},
		{"not a mapping", "[1]\n", "t.yaml:1:1: a test file is a mapping, not a list"},
		{"not YAML", "rules: [\n", "t.yaml:1:1: not YAML: "},
		{"two documents", rules + "steps: [{send: a=b}]\n---\n{}\n", "t.yaml:3:1: a test file is one YAML document"},
		{"an unknown field", rules + "step: []\n", `t.yaml:2:1: unknown field "step" of a test file; did you mean "steps"?`},
		{"a field twice", rules + "name: a\nname: b\nsteps: [{send: a=b}]\n", `t.yaml:3:1: "name" stands twice in this mapping, first on line 2`},
		{"tests and steps", rules + "tests: []\nsteps: []\n", "t.yaml:3:8: a file has tests, each with steps, or the steps of one test, not both"},
		{"no rules", "steps: [{send: a=b}]\n", "t.yaml:1:1: there are no rules to test"},
		{"a test without a name", rules + "tests:\n  - steps: [{send: a=b}]\n", "t.yaml:3:5: the test has no name"},
		{"a test without steps", rules + "tests:\n  - name: a\n", "t.yaml:3:5: the test has no steps"},
		{"one name twice", rules + "tests:\n  - {name: a, steps: [{send: a=b}]}\n  - {name: a, steps: [{send: a=b}]}\n", `t.yaml:4:3: two tests have the name "a", the first on line 3`},
		{"rules as a list", "rules:\n  - endpoint: /x\n    limit: -5\n    window: 60s\nsteps: [{send: a=b}]\n", "t.yaml:3:12: limit is a whole number"},
		{"rules as a mapping", "rules:\n  domain: d\n  descriptors: [{key: a, rate_limt: {}}]\nsteps: [{send: a=b}]\n", `t.yaml:3:26: unknown field "rate_limt"`},
		{"rules as a text", "rules: |\n  rules:\n    - endpoint: /x\n      limit: -5\n      window: 60s\nsteps: [{send: a=b}]\n", "t.yaml:4:14: limit is a whole number"},
		{"a text of two documents", "rules: |\n  domain: a\n  ---\n  domin: b\nsteps: [{send: a=b}]\n", "t.yaml:4:1: unknown field"},
		{"two rules for one path", "rules: [{endpoint: /x, limit: 5, window: 60s}, {endpoint: /x, limit: 5, window: 60s}]\nsteps: [{send: a=b}]\n", "t.yaml:1:48: the path endpoint=/x has a rule already"},
		{"rules twice", rules + "rules_files: [t.yaml]\nsteps: [{send: a=b}]\n", "t.yaml:2:14: rules and rules_files exclude each other"},
		{"a rule file that is not there", "rules_files: none.yaml\nsteps: [{send: a=b}]\n", "t.yaml:1:14: rules_files: reading rules: "},
		{"a pattern that nothing fits", "rules_files: ['n*.yaml']\nsteps: [{send: a=b}]\n", "t.yaml:1:15: no rule file fits n*.yaml"},
		{"a flag that is none", "flags: --bad\n" + rules + "steps: [{send: a=b}]\n", "t.yaml:1:8: flags: --bad is no flag"},
		{"a start without a zone", "start: 2026-01-05 12:00\n" + rules + "steps: [{send: a=b}]\n", `t.yaml:1:8: start: "2026-01-05 12:00" is no time with a zone`},
		{"a step that does nothing", rules + "steps: [{at: 1s}]\n", "t.yaml:2:9: the step does nothing"},
		{"two things in one step", rules + "steps: [{send: a=b, reload: []}]\n", "t.yaml:2:29: a step sends requests or changes the rules, not both"},
		{"no key=value", rules + "steps: [{send: a b}]\n", `t.yaml:2:16: send: "a" is not key=value`},
		{"a word that means nothing", rules + "steps: [{send: a=b c}]\n", `t.yaml:2:16: send: what is "c" after the entries?`},
		{"a unit that is none", rules + "steps: [{send: a=b limit=3/FORTNIGHT}]\n", "t.yaml:2:16: send: limit=3/FORTNIGHT: it is N/UNIT"},
		{"a time that is none", rules + "steps: [{at: noon, send: a=b}]\n", `t.yaml:2:14: at: "noon" is no time with a zone`},
		{"a span backwards", rules + "steps: [{send: a=b, want: {passed: [3, 2]}}]\n", "t.yaml:2:36: passed is a whole number, or a list of the least and the most, in this order"},
		{"codes that are none", rules + "steps: [{send: a=b, want: {codes: OK}}]\n", "t.yaml:2:35: codes has a letter for each request"},
		{"codes of another number", rules + "steps: [{send: a=b, times: 3, want: {codes: AA}}]\n", "t.yaml:2:9: codes has a letter for each request: 2, and 3 are sent"},
		{"what only requests have", rules + "steps: [{settle: 1s, want: {passed: 3}}]\n", "t.yaml:2:9: the step sends nothing"},
		{"what only an answer has", rules + "steps: [{reload: [], want: {code: OK}}]\n", "t.yaml:2:9: the step sends nothing"},
		{"an endless alias", rules + "steps: &a [*a]\n", "t.yaml:2:8: a step is a mapping, not a list"},
		{"aliases that repeat", rules + "x1: &a [b,b,b,b]\nsteps: [{send: [*a, *a]}]\n", `t.yaml:2:1: unknown field "x1" of a test file`},
		{"a merge", rules + "steps: [{<<: {send: a=b}}]\n", "t.yaml:2:10: << is not read here"},
	} {
		path := write(t, c.file)
		_, err := Read(path, configure)
		if err == nil || !strings.Contains("\n"+strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", ""), "\n"+c.want) {
			t.Errorf("%s: %v, want %s", c.remark, err, c.want)
		}
	}
}

// TestAliasesDoNotMakeAFileEndless holds what a small file can cost.
func TestAliasesDoNotMakeAFileEndless(t *testing.T) {
	file := "rules: []\nsteps:\n  - &s {send: [a=b" + strings.Repeat(",a=b", 2000) + "]}\n" + strings.Repeat("  - *s\n", 2000)
	if _, err := Read(write(t, file), configure); err == nil || !strings.Contains(err.Error(), "aliases repeat too much") {
		t.Error(err)
	}
}

func TestTimesAreReadWithTheirZones(t *testing.T) {
	utc := func(month time.Month, day, hour, minute int) time.Time {
		return time.Date(2026, month, day, hour, minute, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		remark, text string
		want         time.Time
		fault        string
	}{
		{"with an offset", "2026-01-05T12:00:00+09:00", utc(1, 5, 3, 0), ""},
		{"in UTC", "2026-01-05T12:00:00Z", utc(1, 5, 12, 0), ""},
		{"by a zone's name", "2026-01-05 12:00 Asia/Tokyo", utc(1, 5, 3, 0), ""},
		{"with a T", "2026-01-05T12:00 Asia/Tokyo", utc(1, 5, 3, 0), ""},
		{"a day alone is its midnight", "2026-01-05 UTC", utc(1, 5, 0, 0), ""},
		{"in winter", "2026-03-08 01:59 America/New_York", utc(3, 8, 6, 59), ""},
		{"in summer", "2026-03-08 03:00 America/New_York", utc(3, 8, 7, 0), ""},
		{"that never comes", "2026-03-08 02:30 America/New_York", time.Time{}, "never show"},
		{"that comes twice", "2026-11-01 01:30 America/New_York", time.Time{}, "2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00"},
		{"twice, by half an hour", "2026-04-05 01:45 Australia/Lord_Howe", time.Time{}, "twice"},
		{"just before", "2026-11-01 00:59 America/New_York", utc(11, 1, 4, 59), ""},
		{"just after", "2026-11-01 02:00 America/New_York", utc(11, 1, 7, 0), ""},
		{"of no zone", "2026-01-05 12:00", time.Time{}, "no time with a zone"},
		{"of a zone that is none", "2026-01-05 12:00 Nowhere", time.Time{}, "no time zone"},
		{"of the machine's zone, which differs", "2026-01-05 12:00 Local", time.Time{}, "no time zone"},
		{"long ago", "1066-10-14T09:00:00Z", time.Time{}, "out of the years"},
	} {
		got, err := parseTime(c.text)
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%s: %s: %v, want an error with %q", c.remark, c.text, err, c.fault)
		case c.fault == "" && (err != nil || !got.Equal(c.want)):
			t.Errorf("%s: %s: %v, %v, want %v", c.remark, c.text, got, err, c.want)
		}
	}
}

func TestDescriptorsAreReadInBothForms(t *testing.T) {
	for _, c := range []struct{ remark, short, long string }{
		{"entries in order", "b=1,a=2", "{entries: {b: 1, a: 2}}"},
		{"a value with what parts others", "a=x%20y%2Cz", "{entries: {a: 'x y,z'}}"},
		{"a percent", "a=100%25", "{entries: {a: 100%}}"},
		{"hits", "a=1 hits=0", "{entries: {a: 1}, hits: 0}"},
		{"a refund", "a=1 hits=2 refund", "{entries: {a: 1}, hits: 2, refund: true}"},
		{"a limit", "a=1 limit=3/5xMINUTE", "{entries: {a: 1}, limit: 3/5xminute}"},
		{"no entries", "-", "{entries: {}}"},
	} {
		read := func(descriptor string) []byte {
			f, err := Read(write(t, "rules: []\nsteps: [{send: ["+descriptor+"]}]\n"), configure)
			if err != nil {
				t.Fatalf("%s: %v", c.remark, err)
			}
			return f.Tests[0].steps[0].send.asked.encode()
		}
		if short, long := read("'"+c.short+"'"), read(c.long); !slices.Equal(short, long) {
			t.Errorf("%s: %q, and %q", c.remark, short, long)
		}
	}
}

func TestRuleFilesAreReadFromTheFolderOfTheTest(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"rules/a.yaml":  "rules: [{endpoint: /a, limit: 1, window: 1h}]\n",
		"rules/b.yaml":  "rules: [{endpoint: /b, limit: 1, window: 1h}]\n",
		"tests/t.yaml":  "rules_files: ../rules\nsteps: [{send: [endpoint=/a, endpoint=/b], want: {codes: AD, limits: [{limit: 1}, {limit: 1}]}}, {reload_files: [../rules/a.yaml]}, {send: endpoint=/b, want: {rule: '-'}}]\n",
		"tests/g.yml":   "rules_files: ['../rules/*.yaml']\nsteps: [{send: endpoint=/b, want: {codes: AD}}]\n",
		"tests/.h.yaml": "hidden\n",
		"tests/note.md": "not a test\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inTests := func(name string) string { return filepath.Join(dir, "tests", name) }
	for _, c := range []struct {
		remark string
		names  []string
		want   []string
		fault  string
	}{
		{"a folder", []string{filepath.Join(dir, "tests")}, []string{inTests("g.yml"), inTests("t.yaml")}, ""},
		{"a file, and again by a pattern", []string{inTests("t.yaml"), inTests("*.yaml")}, []string{inTests("t.yaml"), inTests(".h.yaml")}, ""},
		{"a file that is not there", []string{"none.yaml"}, nil, "none.yaml: no such file or directory"},
		{"a pattern that nothing fits", []string{inTests("z*")}, nil, "no file fits the pattern"},
		{"a folder without any", []string{t.TempDir()}, nil, "has no test files"},
	} {
		got, err := Find(c.names)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) || c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%s: %v, %v, want %v, %s", c.remark, got, err, c.want, c.fault)
		}
	}
	for _, name := range []string{"t.yaml", "g.yml"} {
		r := Run(t.Context(), inTests(name), Options{Configure: configure})
		var n Counts
		if n.Add(&r); n != (Counts{Passed: 1}) {
			var out strings.Builder
			r.Write(&out, false)
			t.Error(out.String())
		}
	}
}
