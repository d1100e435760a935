package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// module writes a module with a target that is fine and one that finds something.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n",
		"a_test.go": `package sample

import "testing"

func FuzzBad(f *testing.F) {
	f.Add([]byte("b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 3 {
			t.Fatal("longer than three bytes")
		}
	})
}

func FuzzGood(f *testing.F) {
	f.Add([]byte("g"))
	f.Fuzz(func(t *testing.T, b []byte) {})
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAFindingFailsAndTheRestRunsAllTheSame(t *testing.T) {
	t.Setenv("GOFLAGS", "-mod=mod")
	c := config{dir: module(t), times: "5000x", parallel: 1, memory: "200MiB", packages: []string{"./..."}}
	var out strings.Builder
	if err := c.run(t.Context(), &out); !errors.Is(err, errFound) {
		t.Fatalf("%v, want that there are findings:\n%s", err, &out)
	}
	for _, want := range []string{
		"2 targets, 5000x each", "== 2 of 2: sample.FuzzGood",
		`(?m)^sample\.FuzzBad .* testdata/fuzz/FuzzBad/\w+$`, `(?m)^sample\.FuzzGood +\d+ .* none$`, `(?m)^2 targets .* 1$`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("nothing like %s in\n%s", want, &out)
		}
	}
	c.targets = regexp.MustCompile("Good$")
	out.Reset()
	if err := c.run(t.Context(), &out); err != nil || strings.Contains(out.String(), "FuzzBad") {
		t.Errorf("%v, of the good target alone:\n%s", err, &out)
	}
	c.targets = regexp.MustCompile("Neither")
	if err := c.run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "no fuzz target") {
		t.Errorf("%v, where no target matches", err)
	}
}

func TestTheBudgetIsShared(t *testing.T) {
	for _, row := range []struct {
		each, total time.Duration
		targets     int
		want        string
	}{
		{30 * time.Second, 0, 20, "30s"},
		{30 * time.Second, 2 * time.Hour, 25, "4m48s"},
		{30 * time.Second, 10 * time.Second, 25, "1s"}, // less is nothing
	} {
		c := config{each: row.each, total: row.total}
		if got := c.share(row.targets); got != row.want {
			t.Errorf("%+v: %s each", row, got)
		}
	}
}

func TestProgressIsRead(t *testing.T) {
	var out strings.Builder
	p := &progress{w: &out, t: &target{}}
	for _, part := range []string{
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/192 completed\nfuzz: elapsed: 3s, execs: 325",
		"017 (108336/sec), new interesting: 11 (total: 202)\n", "--- FAIL: FuzzX (0.01s)\n", "    Failing input written to testdata/fuzz/FuzzX/ab12\n",
	} {
		if _, err := p.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if p.t.executions != 325017 || p.t.new != 11 || p.t.finding != "testdata/fuzz/FuzzX/ab12" {
		t.Errorf("read as %+v", p.t)
	}
	if p.timeUp {
		t.Error("a finding is taken for the end of the time")
	}
	late := &progress{w: &out, t: &target{}}
	if _, err := late.Write([]byte("--- FAIL: FuzzX (30.01s)\n    context deadline exceeded\nFAIL\n")); err != nil || !late.timeUp || late.t.finding != "" {
		t.Errorf("the end of the time is taken for a finding: %+v, %v", late.t, err)
	}
	if !strings.Contains(out.String(), "--- FAIL") {
		t.Errorf("the failure is not shown:\n%s", &out)
	}
}
