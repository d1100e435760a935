package soak

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/bench/proc"
)

// The short form, with bounds that are wider, for nothing settles in so short a time.
func TestASoakFindsNothing(t *testing.T) {
	if !proc.Measurable {
		t.Skip("memory of processes is told only on Linux")
	}
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("%v: install it; the tests of Weir itself do so by go run ./internal/testenv/install", err)
	}
	weir := filepath.Join(t.TempDir(), "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", weir, "./cmd/weir")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	ports, err := proc.ParsePorts("14600-14699")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "found")
	found, err := Run(t.Context(), Options{
		Weir: weir, Redis: redis, Ports: ports, Length: 18 * time.Second, Rate: 600, InFlight: 64, RuleChanges: time.Second, Out: out, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range found {
		t.Error(text)
	}
	if _, err := os.Stat(out); err == nil && len(found) == 0 {
		t.Errorf("%s is left, and nothing was found", out)
	}
}

func TestSharesOfTheMixAddUp(t *testing.T) {
	sum := 0
	for _, k := range mix {
		sum += k.share
	}
	if sum != 100 {
		t.Errorf("%d of 100", sum)
	}
}

func TestWindowsAreHeldToTheirLimit(t *testing.T) {
	start := time.Unix(1_800_000_000, 0).Truncate(steadyWindow)
	for _, x := range []struct {
		remark                 string
		passed, asked, atEdges int
		void                   *span
		right, wrong           int
	}{
		{"exactly", steadyLimit, 3 * steadyLimit, 0, nil, 1, 0},
		{"one more", steadyLimit + 1, 3 * steadyLimit, 0, nil, 0, 1},
		{"one less", steadyLimit - 1, 3 * steadyLimit, 0, nil, 0, 1},
		{"one less, and one at the edge", steadyLimit - 1, 3 * steadyLimit, 1, nil, 1, 0},
		{"one less, but hardly asked", steadyLimit - 1, steadyLimit, 0, nil, 0, 0},
		{"one less, without the store", steadyLimit - 1, 3 * steadyLimit, 0, &span{from: start, to: start.Add(time.Second)}, 0, 0},
		{"one more, without the store: the policy refuses", steadyLimit + 1, 3 * steadyLimit, 0, &span{from: start, to: start.Add(time.Second)}, 0, 1},
		{"one more, of a store that forgot", steadyLimit + 1, 3 * steadyLimit, 0, &span{from: start, to: start.Add(time.Second), empty: true}, 0, 0},
	} {
		var w windows
		add := func(at time.Duration, n int, passed bool) {
			for range n {
				w.add("Redis", start.Add(at), start.Add(at+time.Millisecond), passed)
			}
		}
		add(-steadyWindow/2, 1, true) // the first and the last do not count
		add(steadyWindow+steadyWindow/2, 1, true)
		add(steadyWindow/2, x.passed, true)
		add(steadyWindow/2, x.asked-x.passed, false)
		add(0, x.atEdges, true)
		if x.void != nil {
			w.except(*x.void)
		}
		right, _, wrong := w.judge()
		wrong = wrong[:min(len(wrong), 1)]
		if right != x.right || len(wrong) != x.wrong {
			t.Errorf("%s: %d right, wrong: %q", x.remark, right, wrong)
		}
	}
}

// At the edges of each window one cannot be sure; over many of them one can.
func TestWhatIsMissingInEachOfManyWindowsIsFound(t *testing.T) {
	start := time.Unix(1_800_000_000, 0).Truncate(steadyWindow)
	for _, x := range []struct {
		each  int
		wrong bool
	}{{steadyLimit, false}, {steadyLimit - 1, true}, {steadyLimit + 1, true}} {
		var w windows
		for n := range 30 {
			for i := range 3 * steadyLimit {
				at := start.Add(time.Duration(n)*steadyWindow + time.Duration(i)*steadyWindow/(3*steadyLimit))
				w.add("memory", at, at.Add(time.Millisecond), i < x.each)
			}
		}
		if right, unjudged, wrong := w.judge(); unjudged != 0 || (len(wrong) > 0) != x.wrong || !x.wrong && right != 28 {
			t.Errorf("%d in each: %d right, wrong: %q", x.each, right, wrong)
		}
	}
}

func TestFaultsAreToldByKind(t *testing.T) {
	var f faults
	f.add("weir-1: 10 of 20")
	f.add("weir-1: 11 of 21")
	f.add("another")
	if got := strings.Join(f.list(), "; "); got != "1 times: another; 2 times: weir-1: 10 of 20" || f.count() != 3 {
		t.Errorf("%d, %s", f.count(), got)
	}
}

func TestMetricsAreRead(t *testing.T) {
	m := readMetrics(`# HELP go_goroutines Number
go_goroutines 42
process_resident_memory_bytes 1.5e+07
weir_decisions_total{domain="a b",outcome="failed_local",rule="x y"} 12
weir_decisions_total{domain="a",outcome="ok",rule="x"} 1
`)
	if m.series != 4 || m.standby != 12 || m.values["go_goroutines"] != 42 || m.values["process_resident_memory_bytes"] != 1.5e7 {
		t.Errorf("%+v", m)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	good := Options{Length: time.Minute, Rate: 100, InFlight: 10, RuleChanges: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for remark, change := range map[string]func(*Options){
		"length": func(o *Options) { o.Length = time.Second }, "rate": func(o *Options) { o.Rate = 0 }, "in flight": func(o *Options) { o.InFlight = 0 },
		"rule changes": func(o *Options) { o.RuleChanges = time.Millisecond }, "restarts": func(o *Options) { o.Restarts = 10 },
	} {
		o := good
		change(&o)
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: no error", remark)
		}
	}
}
