package main

import (
	"bytes"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"weir/bench/load"
	"weir/bench/report"
)

func TestWrongUseExitsWith2(t *testing.T) {
	for _, args := range []string{
		"", "no-such-command", "matrix extra", "matrix -no-such-flag", "matrix -only stores,nothing", "matrix -rounds -1",
		"matrix -d 1ns", "matrix -c 0", "matrix -conns 0", "matrix -ports 9-5", "drive", "drive -target x", "drive -target a=b/0",
		"drive -target a=b -against c", "drive -target a=b -zipf 0.5", "drive -target a=b -descriptors 0", "drive -target a=b -rounds 0",
		"micro -count 0", "micro -packages ,", "report extra", "profile extra", "profile -d 10ms", "profile -ports 9-5",
		"soak extra", "soak -d 1s", "soak -rate 0", "soak -ports 9-5", "soak -d 30s -redis-restarts 9",
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &out); code != 2 || out.Len() == 0 {
			t.Errorf("bench %s: exit code %d, says %q", args, code, out.String())
		}
	}
}

func TestHelpExitsWith0(t *testing.T) {
	for _, command := range []string{"matrix", "drive", "report", "micro", "profile", "soak"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{command, "-h"}, io.Discard, &out); code != 0 || !strings.Contains(out.String(), "-") {
			t.Errorf("bench %s -h: exit code %d, says %q", command, code, out.String())
		}
	}
}

func TestTargetsAreRead(t *testing.T) {
	for _, x := range []struct {
		s    string
		want target
		bad  bool
	}{
		{"weir=127.0.0.1:8081", target{name: "weir", addr: "127.0.0.1:8081"}, false},
		{"weir=[::1]:8081/12", target{"weir", "[::1]:8081", load.Processes{Server: []int{12}}}, false},
		{"weir=h:1/12+13+14", target{"weir", "h:1", load.Processes{Server: []int{12}, Redis: []int{13, 14}}}, false},
		{"weir", target{}, true},
		{"=h:1", target{}, true},
		{"weir=", target{}, true},
		{"weir=h:1/x", target{}, true},
		{"weir=h:1/12+", target{}, true},
		{"weir=h:1/-5", target{}, true},
	} {
		got, err := parseTarget(x.s)
		if !reflect.DeepEqual(got, x.want) || (err != nil) != x.bad {
			t.Errorf("%q: %+v, %v", x.s, got, err)
		}
	}
}

func TestQuickIsOnlyADefault(t *testing.T) {
	for _, x := range []struct {
		args   string
		rounds int
		length time.Duration
	}{
		{"", 5, 3 * time.Second},
		{"-quick", 2, 600 * time.Millisecond},
		{"-quick -rounds 7", 7, 600 * time.Millisecond},
		{"-d 1s", 5, time.Second},
	} {
		m, err := parseMatrix(strings.Fields(x.args), io.Discard)
		if err != nil || m.rounds != x.rounds || m.length != x.length {
			t.Errorf("%q: %+v, %v", x.args, m, err)
		}
	}
}

func TestTheMatrixIsWhatThePageShows(t *testing.T) {
	all := Programs{Weir: "w", Envoyproxy: "e", Limitador: "l", Gubernator: "g", leases: true}
	var ids []string
	counters := map[string]string{} // that a scenario has, by server
	for _, s := range matrix(all, 64) {
		ids = append(ids, s.id)
		labels := map[string]bool{}
		for _, r := range s.rows {
			if err := r.load.Check(); err != nil {
				t.Errorf("%s, %s: %v", s.id, r.name(), err)
			}
			if labels[r.name()] {
				t.Errorf("%s has two rows %q", s.id, r.name())
			}
			labels[r.name()] = true
			// A look at counters that another scenario's requests were counted in shows nothing.
			key := r.server + " " + r.load.Entry + " " + r.load.Prefix
			if other, ok := counters[key]; ok {
				t.Errorf("%s and %s share the counters %s", other, s.id, key)
			}
			counters[key] = s.id
		}
		for _, a := range s.against {
			if !labels[a] {
				t.Errorf("%s is compared with %s, which it does not have", s.id, a)
			}
		}
	}
	if !reflect.DeepEqual(ids, report.ScenarioIDs) {
		t.Errorf("the page shows %v, the matrix has %v", report.ScenarioIDs, ids)
	}
	m := &matrixFlags{programs: Programs{}, options: options{inFlight: 1, rounds: 5, length: 3 * time.Second}}
	for _, s := range m.scenarios() {
		for _, r := range s.rows {
			if !strings.HasPrefix(r.server, "weir-") {
				t.Errorf("%s drives %s, which was left out", s.id, r.server)
			}
		}
	}
}

func TestScriptTimesAreRead(t *testing.T) {
	got, err := parseScripts(`goos: linux
BenchmarkScript/fixed_window/hits=1-2         	   20000	     61234 ns/op	         5.340 redis-µs/op
BenchmarkScript/sliding_window_log/hits=3-2   	   20000	     61234 ns/op	        19 redis-µs/op	 120 B/op
BenchmarkScript/fixed_window/hits=1           	   20000	     61234 ns/op	 7.5 redis-µs/op
PASS
`)
	want := []report.Script{{Algorithm: "fixed_window", Hits: 1, Micros: 5.34}, {Algorithm: "sliding_window_log", Hits: 3, Micros: 19}, {Algorithm: "fixed_window", Hits: 1, Micros: 7.5}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseScripts("PASS\n"); err == nil {
		t.Error("nothing is enough")
	}
}

func TestReportWritesThePageAgain(t *testing.T) {
	dir := t.TempDir()
	r := &report.Results{Scenarios: []report.Scenario{{ID: "stores", Rows: []report.Row{{Label: "weir-memory", Rounds: []load.Result{{Requests: 12345, Seconds: 1}}}}}}}
	if err := r.WriteFile(filepath.Join(dir, "r.json")); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"report", "-json", filepath.Join(dir, "r.json"), "-svg", filepath.Join(dir, "c.svg")}, &out, &errs); code != 0 || !strings.Contains(out.String(), "12,345") {
		t.Errorf("exit code %d: %s%s", code, &out, &errs)
	}
	if code := run(t.Context(), []string{"report", "-json", filepath.Join(dir, "none.json")}, io.Discard, &errs); code != 1 {
		t.Errorf("exit code %d for results that are not there", code)
	}
}

func TestDecisionsWithoutRedisAreAddedUp(t *testing.T) {
	got, err := failedDecisions(`# TYPE weir_decisions_total counter
weir_decisions_total{domain="bench",outcome="ok",rule="a"} 1000
weir_decisions_total{domain="bench",outcome="failed_local",rule="a"} 12
weir_decisions_total{domain="bench",outcome="failed_open",rule="b"} 1e+03
weir_other_total{outcome="failed_local"} 7
`)
	if got != 1012 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if _, err := failedDecisions(`weir_decisions_total{outcome="failed_local"} many` + "\n"); err == nil {
		t.Error("it reads what is no number")
	}
}
