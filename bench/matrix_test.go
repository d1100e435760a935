package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bench/load"
	"weir/bench/proc"
	"weir/bench/report"
)

func buildWeir(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/weir")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	return path
}

// The whole way, with the memory store and for some hundred milliseconds.
func TestMatrixMeasuresAndWrites(t *testing.T) {
	weir, dir := buildWeir(t), t.TempDir()
	page, json, svg := filepath.Join(dir, "page.md"), filepath.Join(dir, "r.json"), filepath.Join(dir, "c.svg")
	ports, err := proc.ParsePorts("14700-14799")
	if err != nil {
		t.Fatal(err)
	}
	programs := Programs{Weir: weir, Redis: "redis-server"}
	if err := programs.write(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	f := newFleet(programs, dir, ports, 2)
	t.Cleanup(func() { _ = f.Close() })
	l := load.Load{Domain: "bench", Entry: "fixed_window", Values: 50, Descriptors: 3, InFlight: 8}
	refused := load.Load{Domain: "bench", Entry: "refused", Values: 1, Descriptors: 1, InFlight: 8}
	s := scenario{id: "stores", title: "Test", against: []string{"passes"}, rows: []row{
		{server: "weir-memory", label: "passes", load: l},
		{server: "weir-memory", label: "refused", load: refused},
	}}
	done, err := runScenario(t.Context(), f, s, options{rounds: 2, length: 100 * time.Millisecond, inFlight: 8, conns: 2}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if err := uncounted(done); err != nil {
		t.Error(err)
	}
	passes, over := done.Rows[0], done.Rows[1]
	if c := passes.Counted; len(passes.Rounds) != 2 || c == nil || c.Looked != 50 || c.Right != 50 || passes.Rounds[1].Over != 0 || passes.Rounds[1].Requests < 20 {
		t.Errorf("%+v %+v", passes, c)
	}
	if r := over.Rounds[1]; r.Over != r.Requests || over.Counted.Right != 1 {
		t.Errorf("a limit of 5 let pass %d of %d, %+v", r.Requests-r.Over, r.Requests, over.Counted)
	}
	if proc.Measurable && (passes.ServerRSS < 1<<20 || passes.RedisRSS != 0) {
		t.Errorf("memory: %+v", passes)
	}
	results := &report.Results{Scenarios: []report.Scenario{*done}}
	if err := os.WriteFile(page, []byte("<!-- bench stores --><!-- end -->"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(results, json, page, svg, t.Output()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| passes") {
		t.Errorf("the page is %s, %v", text, err)
	}
}

// The compiler is told of what decides, and of what carries it.
func TestAProfileIsOfWeirUnderLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "default.pgo")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"profile", "-weir", buildWeir(t), "-d", "1s", "-ports", "14900-14999", "-o", path}, &out, t.Output()); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	top, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-cum", "-nodefraction=0", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"weir/limiter.(*Memory).Decide", "weir/limiter/redis.(*Store).Decide", "transport.(*http2Server).operateHeaders"} {
		if !bytes.Contains(top, []byte(want)) {
			t.Errorf("%s is not in the profile", want)
		}
	}
	if strings.Contains(string(top), string(filepath.Separator)+"weir\n") {
		t.Errorf("the profile has the program's path in it: %.200s", top)
	}
}

// What was started ends when the run is interrupted, and the run says so.
func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	weir := buildWeir(t)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := &watched{on: "round 0", do: cancel}
	var out bytes.Buffer
	code := run(ctx, []string{"matrix", "-weir", weir, "-no-envoyproxy", "-only", "refused", "-d", "100ms", "-rounds", "1000", "-ports", "14800-14899"}, &out, progress)
	if code != 1 {
		t.Fatalf("exit code %d: %s", code, progress.text.String())
	}
	for port := 14800; port < 14805; port++ {
		if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = conn.Close()
			t.Errorf("something still listens on %d", port)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// watched does something once a text has been written.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	on   string
	do   func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text.Write(b); strings.Contains(w.text.String(), w.on) {
		w.do()
	}
	return len(b), nil
}

func TestRowsThatFlatterWeirAreRefused(t *testing.T) {
	rounds := []load.Result{{Requests: 500}, {Requests: 500}}
	for _, x := range []struct {
		remark string
		row    report.Row
		fails  bool
	}{
		{"all counted", report.Row{Server: "weir-redis", Rounds: rounds, Counted: &load.Counted{Looked: 200, Right: 200}}, false},
		{"a few were decided without Redis", report.Row{Server: "weir-redis", Rounds: rounds, Standby: 10, Counted: &load.Counted{Looked: 200, Right: 192, Missing: 8}}, false},
		{"more are missing than that", report.Row{Server: "weir-redis", Rounds: rounds, Standby: 7, Counted: &load.Counted{Looked: 200, Right: 192, Missing: 8}}, true},
		{"many were", report.Row{Server: "weir-redis", Rounds: rounds, Standby: 11, Counted: &load.Counted{Looked: 200, Right: 200}}, true},
		{"a peer is only reported", report.Row{Server: "gubernator", Rounds: rounds, Counted: &load.Counted{Looked: 200}}, false},
	} {
		if err := uncounted(&report.Scenario{Rows: []report.Row{x.row}}); (err != nil) != x.fails {
			t.Errorf("%s: %v", x.remark, err)
		}
	}
}
