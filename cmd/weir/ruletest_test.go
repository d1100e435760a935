package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestTheExamplesOfTestsPass(t *testing.T) {
	weir(t, "test", "../../examples/tests").want(t, exitDone, "\n13 passed\n")
	weir(t, "test", "../../examples/tests/*.yaml", "--run", "23|25", "--verbose").want(t, exitDone,
		"\n2 passed\n", "at 2026-11-01T00:00:00-04:00 (0s): send endpoint=/export,customer=c1", "retry after 25h0m0s")
}

func TestTestTellsByItsExitCodeAndWhere(t *testing.T) {
	const file = "rules: [{name: x, endpoint: /x, limit: 1, window: 1h}]\nsteps: [{send: endpoint=/x, want: {codes: AA}}]\n"
	failing, faulty, redis := rulesFile(t, file), rulesFile(t, "rules: []\nstep: []\n"), rulesFile(t, "rules: []\nsteps: [{do: stop-redis}]\n")
	fine := rulesFile(t, strings.Replace(file, "codes: AA", "codes: AD", 1))
	for _, c := range []struct {
		remark string
		args   []string
		code   int
		texts  []string
	}{
		{"all well", []string{fine}, exitDone, []string{"ok    " + fine, "1 passed"}},
		{"one fails", []string{fine, failing}, exitFailed, []string{failing + ":2: at ", "codes: AD, want AA", "is refused by rule x (" + failing + ":1:9)", "1 passed, 1 failed", "1 test failed"}},
		{"a file with faults", []string{faulty, fine}, exitFailed, []string{faulty + `:2:1: unknown field "step"`, "1 passed, 1 with faults", "1 file could not be played"}},
		{"nothing that can be played", []string{redis}, exitFailed, []string{"not played: " + redis + ":2: do: stop-redis needs a Redis", "no test was played"}},
		{"beside what can", []string{redis, fine}, exitDone, []string{"1 passed, 1 not played"}},
		{"no such file", []string{fine, "none.yaml"}, exitFailed, []string{"none.yaml: no such file or directory", "1 passed"}},
		{"no such test", []string{fine, "--run", "nothing"}, exitFailed, []string{"no test has a name that fits --run nothing"}},
		{"no file", nil, exitWrongUse, []string{"want a test file"}},
		{"a pattern that is none", []string{fine, "--run", "("}, exitWrongUse, []string{"--run: error parsing regexp"}},
		{"a report that cannot be written", []string{fine, "--junit", filepath.Join(t.TempDir(), "none", "r.xml")}, exitFailed, []string{"--junit: open "}},
	} {
		t.Log(c.remark)
		weir(t, append([]string{"test"}, c.args...)...).want(t, c.code, c.texts...)
	}
}

func TestTestTakesTheFlagsOfServeThatDecide(t *testing.T) {
	t.Setenv("SHADOW_MODE", "true") // of envoyproxy/ratelimit: a test is the same everywhere
	const two = "rules: [{match: {a: '*'}, limit: 3, window: 1h}, {match: {b: '*'}, limit: 1, window: 1h}]\n"
	for _, c := range []struct{ flags, steps, fault string }{
		{"[]", "[{send: [a=1, b=1], want: {codes: ADD}}, {send: a=1, want: {codes: AAD}}]", ""},
		{"--charge each", "[{send: [a=1, b=1], want: {codes: ADD}}, {send: a=1, want: {codes: D}}]", ""},
		{"[--count-denied]", "[{send: a=1 hits=4, want: {codes: D}}, {send: a=1 hits=0, want: {codes: D}}]", ""},
		{"[--compat envoyproxy]", "[{send: [a=1, b=1], want: {codes: ADD, headers: {X-Ratelimit-Limit: '-'}}}, {send: a=1, want: {codes: D}}]", ""},
		{"--shadow", "[{send: [a=1, b=1], want: {codes: AAA}}]", ""},
		{"--headers ietf", `[{send: b=1, want: {codes: AD, headers: {RateLimit: "*", X-Ratelimit-Limit: "-"}}}]`, ""},
		{"['--denied-body', 'text:not now']", "[{send: b=1, want: {codes: AD, body: not now}}]", ""},
		{"--upstream-headers", `[{send: b=1, want: {upstream: {x-weir-remaining: 0}}}]`, ""},
		{"--memory-max-counters 1 --on-store-failure deny", "[{send: a=1, want: {codes: A}}, {send: a=2, want: {codes: D, retry_after: none}}]", ""},
		{"--store-timeout 5ms --deny-cache 0", "[{send: b=1, want: {codes: AD}}]", ""},
		{"--store redis://127.0.0.1:6379 --max-held 3", "[]", "--max-held, --store: a test is not played with it; flags that it is played with are --charge, "},
		{"--charge both", "[]", "allowed: all-or-nothing, each"},
		{"--no-such-flag", "[]", "unknown flag: --no-such-flag; they are those of weir serve"},
		{"each", "[]", `"each" is no flag`},
		{"--memory-max-counters 0", "[]", "it is 1 at least"},
		{"--header-names limit=a b", "[]", "is no flag"},
	} {
		r := weir(t, "test", rulesFile(t, "flags: "+c.flags+"\n"+two+"steps: "+c.steps+"\n"))
		if c.fault != "" {
			r.want(t, exitFailed, ":1:8: flags: ", c.fault)
		} else {
			r.want(t, exitDone, "1 passed")
		}
		if t.Failed() {
			t.Fatal(c.flags)
		}
	}
}

func TestTestWritesAReportForCI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.xml")
	weir(t, "test", "--junit", path, "../../examples/tests/plans.yaml").want(t, exitDone)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `<testsuites name="weir test" tests="4" failures="0" errors="0" skipped="0"`) {
		t.Errorf("%s", text)
	}
}

// The hooks for pre-commit call what there is, in a repository as they expect it.
func TestThePreCommitHooksRun(t *testing.T) {
	src, err := os.ReadFile("../../.pre-commit-hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []struct {
		ID, Entry, Files string
		Args             []string
	}
	if err := yaml.Unmarshal(src, &hooks); err != nil || len(hooks) != 2 {
		t.Fatalf("%v, %v", hooks, err)
	}
	dir := t.TempDir()
	for _, name := range []string{"rules", "tests"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeIn(t, filepath.Join(dir, "rules"), "a.yaml", "rules: [{endpoint: /x, limit: 1, window: 1h}]\n")
	writeIn(t, filepath.Join(dir, "tests"), "a.yaml", "rules_files: ../rules\nsteps: [{send: endpoint=/x, want: {codes: AD}}]\n")
	t.Chdir(dir)
	for _, h := range hooks {
		args := append(strings.Fields(h.Entry), h.Args...)
		if args[0] != "weir" || !regexp.MustCompile(h.Files).MatchString("rules/a.yaml") {
			t.Errorf("%+v", h)
		}
		weir(t, args[1:]...).want(t, exitDone)
	}
}
