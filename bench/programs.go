package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"weir/bench/proc"
	"weir/bench/report"
)

// peerVersion of envoyproxy/ratelimit: it has had no release since 2019, each
// commit is one.
const (
	peerModule  = "github.com/envoyproxy/ratelimit/src/service_cmd"
	peerVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// find finds the programs, and installs the peer if it must.
func (p *Programs) find(ctx context.Context, noPeer bool, progress io.Writer) error {
	for _, x := range []struct{ path, how string }{{p.Weir, "make build"}, {p.Redis, "install Redis, or name one by -redis"}, {p.Limitador, "name one by -limitador"}, {p.Gubernator, "name one by -gubernator"}, {p.Envoyproxy, "leave -envoyproxy out, and it is installed"}} {
		if x.path == "" {
			continue
		}
		if _, err := exec.LookPath(x.path); err != nil {
			return fmt.Errorf("%w: %s", err, x.how)
		}
	}
	weir, err := filepath.Abs(p.Weir) // servers run in a folder of their own
	if err != nil {
		return fmt.Errorf("path of weir: %w", err)
	}
	p.Weir = weir
	if noPeer || p.Envoyproxy != "" {
		return nil
	}
	p.Envoyproxy, err = installPeer(ctx, progress)
	return err
}

// installPeer installs envoyproxy/ratelimit into the user's cache folder, once.
func installPeer(ctx context.Context, progress io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to install envoyproxy/ratelimit: %w", err)
	}
	dir := filepath.Join(cache, "weir-bench", "ratelimit-"+peerVersion)
	path := filepath.Join(dir, "service_cmd")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(progress, "installing envoyproxy/ratelimit %s into %s, once: it may take minutes…\n", peerVersion, dir)
	cmd := proc.Command(ctx, "go", "install", peerModule+"@"+peerVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install envoyproxy/ratelimit (or leave it out by -no-envoyproxy): %w\n%s", err, out)
	}
	return path, nil
}

// describe says what ran, and on what.
func (m *matrixFlags) describe(ctx context.Context, r *report.Results, begin time.Time) error {
	cpu, kernel := proc.Machine()
	r.Machine = report.Machine{
		Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), CPU: cpu, Kernel: kernel, Cores: runtime.NumCPU(), Go: runtime.Version(),
		Minutes: int(time.Since(begin).Round(time.Minute).Minutes()), Commit: "unknown",
	}
	if m.programs.Envoyproxy != "" {
		r.Machine.Peer = peerVersion
	}
	out := func(name string, args ...string) (string, error) {
		b, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // programs that just ran, and git
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	redis, err1 := out(m.programs.Redis, "--version")
	if v := regexp.MustCompile(`v=(\S+)`).FindStringSubmatch(redis); v != nil {
		redis = v[1]
	}
	weir, err2 := out(m.programs.Weir, "version")
	r.Machine.Redis, r.Machine.Weir = redis, strings.TrimPrefix(firstLine(weir), "weir ")
	if commit, err := out("git", "-C", m.root, "rev-parse", "--short=12", "HEAD"); err == nil { // an archive has none
		r.Machine.Commit = commit
		// What a run writes does not make the tree another one.
		changed, err := out("git", "-C", m.root, "status", "--porcelain", "--", ":!docs", ":!bench/results.json")
		if err == nil && changed != "" {
			r.Machine.Commit += " with changes"
		}
	}
	return errors.Join(err1, err2)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// scripts runs limiter/redis's BenchmarkScript, in which Redis itself accounts
// for its time.
func scripts(ctx context.Context, root string, quick bool) ([]report.Script, error) {
	benchtime := "20000x"
	if quick {
		benchtime = "2000x"
	}
	cmd := proc.Command(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkScript$", "-benchtime", benchtime, "./limiter/redis")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench BenchmarkScript: %w\n%s", err, out)
	}
	return parseScripts(string(out))
}

var scriptLine = regexp.MustCompile(`(?m)^BenchmarkScript/(\w+)/hits=(\d+)(?:-\d+)?\s.*?([\d.]+) redis-µs/op`)

func parseScripts(out string) (list []report.Script, err error) {
	for _, x := range scriptLine.FindAllStringSubmatch(out, -1) {
		hits, err1 := strconv.Atoi(x[2])
		micros, err2 := strconv.ParseFloat(x[3], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("BenchmarkScript's line %q: %w", x[0], err)
		}
		list = append(list, report.Script{Algorithm: x[1], Hits: hits, Micros: micros})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("BenchmarkScript told nothing of Redis:\n%s", out)
	}
	return list, nil
}
