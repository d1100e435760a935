package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/simulate"
	"weir/internal/testenv"
)

const exampleFolder = "../../examples/simulate/"

// example runs the example, with more flags.
func simulateExample(t *testing.T, flags ...string) result {
	t.Helper()
	return weir(t, append([]string{"simulate", exampleFolder + "access.log", "--mapping", exampleFolder + "mapping.yaml", "--rules", exampleFolder + "rules.yaml"}, flags...)...)
}

func TestSimulateTellsWhoWouldBeRefused(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "report.html")
	simulateExample(t, "--rules", exampleFolder+"gentler.yaml", "--html", page).want(t, exitDone,
		"6 of 122 requests would be refused (4.92%)", "10 lines are no requests", "remote_address=198.51.100.7  3", "3 more met a refusal in shadow")
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), "Side by side") || !strings.Contains(string(html), "<svg") {
		t.Errorf("the page: %v", err)
	}
	var report simulate.Report
	if err := json.Unmarshal([]byte(simulateExample(t, "--json", "-").stdout), &report); err != nil || report.Sets[0].Refused != 6 {
		t.Errorf("JSON: %v, %+v", err, report.Sets)
	}
}

// The first run needs only a log and rules; or only a log.
func TestSimulateNeedsLittle(t *testing.T) {
	t.Parallel()
	rules := rulesFile(t, `rules: [{match: {endpoint: /api/login, remote_address: "*"}, limit: 5, window: 1m}, {match: {tenant: "*"}, limit: 5, window: 1m}]`)
	weir(t, "simulate", exampleFolder+"access.log", "--rules", rules).want(t, exitDone,
		"asked of domain default: endpoint (path), remote_address; tenant", "3 of 132 requests", "no line has a field for the key tenant")
	r := weir(t, "simulate", exampleFolder+"access.log", "--at-most", "5%")
	r.want(t, exitDone, "Rules to begin with:", "{limit: 12, window: 1m, algorithm: sliding_window_counter}")
	_, suggested, _ := strings.Cut(r.stdout, "Rules to begin with:\n\n")
	weir(t, "check", rulesFile(t, suggested)).want(t, exitDone, "no faults")
}

// What a line has that commands a terminal comes to no terminal, file or page.
func TestSimulatePrintsNoControlCharacters(t *testing.T) {
	t.Parallel()
	const line = `{"time":1769860800,"ip":"\u001b[31mred\u009b\u202e</script>"}` + "\n"
	log := testenv.WriteFile(t, "a.log", line+line+"{\x1b]0;title\x07\n")
	rules := rulesFile(t, `rules: [{match: {ip: "*"}, limit: 1, window: 1m}]`)
	dir := t.TempDir()
	r := weir(t, "simulate", log, "--rules", rules, "--html", dir+"/a.html", "--json", dir+"/a.json")
	r.want(t, exitDone, "1 of 2 requests", "1 lines could not be read", "a.log:3: not a JSON object")
	outputs := map[string]string{"stdout": r.stdout, "stderr": r.stderr}
	for _, name := range []string{"a.html", "a.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		outputs[name] = string(b)
	}
	for name, text := range outputs {
		if i := strings.IndexAny(text, "\x1b\x07\u009b\u202e"); i >= 0 {
			t.Errorf("%s has %q", name, text[i:min(len(text), i+20)])
		}
	}
	if !json.Valid([]byte(outputs["a.json"])) {
		t.Errorf("not JSON:\n%s", outputs["a.json"])
	}
}

func TestSimulateSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	write := func(name, text string) string { return testenv.WriteFile(t, name, text) }
	log := exampleFolder + "access.log"
	good := rulesFile(t, `rules: [{match: {remote_address: "*"}, limit: 5, window: 1m}]`)
	bad := write("bad.yaml", "rules: [{match: {a: b}, limt: 5}]")
	two := write("two.yaml", "domain: a\nrules: [{match: {a: b}, limit: 5, window: 1s}]\n---\ndomain: b\nrules: [{match: {a: b}, limit: 5, window: 1s}]\n")
	for _, x := range []struct {
		remark string
		args   []string
		code   int
		text   string
	}{
		{"no log", nil, exitWrongUse, "want a log"},
		{"a log twice", []string{log, log}, exitWrongUse, "given twice"},
		{"rules twice", []string{log, "--rules", good, "--rules", good}, exitWrongUse, "given twice"},
		{"no such log", []string{"/no/such.log", "--rules", good}, exitFailed, "/no/such.log"},
		{"a folder", []string{t.TempDir(), "--rules", good}, exitFailed, "is a folder"},
		{"no such rules", []string{log, "--rules", "/no/such.yaml"}, exitFailed, "/no/such.yaml"},
		{"rules elsewhere", []string{log, "--rules", "consul://127.0.0.1:1/x"}, exitFailed, "weir rules pull"},
		{"a fault in the rules", []string{"/no/such.log", "--rules", bad}, exitFailed, "bad.yaml:1:25: unknown field"},
		{"a fault in the mapping", []string{"/no/such.log", "--rules", good, "--mapping", write("m.yaml", "descriptor: []")}, exitFailed, "m.yaml:1:1: unknown field"},
		{"a field that the log does not have", []string{log, "--rules", good, "--mapping", write("f.yaml", "descriptors: [[tenant]]")}, exitFailed, "f.yaml:1:16: unknown field"},
		{"several domains", []string{log, "--rules", two}, exitWrongUse, "several domains (a, b)"},
		{"a domain without rules", []string{log, "--rules", two, "--domain", "c"}, exitDone, `has no rules of the domain "c"`},
		{"no share", []string{log, "--at-most", "200%"}, exitWrongUse, "from 0% to 100%"},
		{"no zone", []string{log, "--timezone", "Mars/Olympus"}, exitWrongUse, "IANA"},
		{"no format", []string{log, "--format", "xml"}, exitWrongUse, "allowed: combined"},
		{"another format", []string{log, "--format", "json"}, exitFailed, "no line is a request"},
		{"an empty log", []string{write("empty.log", ""), "--rules", good}, exitFailed, "the log is empty"},
		{"no log at all", []string{write("text.log", "hello\n"), "--rules", good}, exitFailed, "--format"},
		{"a report that cannot be written", []string{log, "--rules", good, "--json", "/no/such/folder/x"}, exitFailed, "writing the report"},
	} {
		t.Run(x.remark, func(t *testing.T) { weir(t, append([]string{"simulate"}, x.args...)...).want(t, x.code, x.text) })
	}
}
