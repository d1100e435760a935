package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/bench/proc"
	"weir/bench/report"
)

// matrixFlags are the flags of `bench matrix`.
type matrixFlags struct {
	options
	quick, noPeer                bool
	programs                     Programs
	root, ports, json, page, svg string
	scripts                      bool
	onlyList                     string
}

func parseMatrix(args []string, stderr io.Writer) (*matrixFlags, error) {
	var m matrixFlags
	f := flag.NewFlagSet("bench matrix", flag.ContinueOnError)
	f.BoolVar(&m.quick, "quick", false, "two rounds of 600ms: to see that it runs, not to quote")
	f.IntVar(&m.rounds, "rounds", 0, "rounds; in each, every row is driven once, in turn (default 5)")
	f.DurationVar(&m.length, "d", 0, "length of one drive (default 3s)")
	f.IntVar(&m.inFlight, "c", 64, "requests in flight")
	f.IntVar(&m.conns, "conns", 2, "gRPC connections to each server")
	f.StringVar(&m.onlyList, "only", "", "scenarios, with commas between them: "+strings.Join(report.ScenarioIDs, ",")+" (default all)")
	f.StringVar(&m.root, "root", ".", "folder of Weir's repository")
	f.StringVar(&m.programs.Weir, "weir", "", "weir to measure (default ROOT/bin/weir)")
	f.StringVar(&m.programs.Redis, "redis", "redis-server", "redis-server to run")
	f.StringVar(&m.programs.Envoyproxy, "envoyproxy", "", "envoyproxy/ratelimit's service_cmd (default: installed into the user's cache folder by go install)")
	f.BoolVar(&m.noPeer, "no-envoyproxy", false, "leave envoyproxy/ratelimit out")
	f.StringVar(&m.programs.Limitador, "limitador", "", "limitador-server, to be measured too")
	f.StringVar(&m.programs.Gubernator, "gubernator", "", "gubernator, to be measured too")
	f.StringVar(&m.ports, "ports", "15700-15790", "range from which free ports of 127.0.0.1 are taken")
	f.BoolVar(&m.scripts, "scripts", true, "measure the Lua scripts too (BenchmarkScript)")
	f.StringVar(&m.json, "json", "", "file for all results")
	f.StringVar(&m.page, "page", "", "page whose tables are renewed")
	f.StringVar(&m.svg, "svg", "", "file for the chart")
	if err := parse(f, args, stderr); err != nil {
		return nil, err
	}
	if m.onlyList != "" {
		m.only = strings.Split(m.onlyList, ",")
	}
	return &m, m.check()
}

// check sets defaults and says what makes no sense.
func (m *matrixFlags) check() error {
	rounds, length := 5, 3*time.Second
	if m.quick {
		rounds, length = 2, 600*time.Millisecond
	}
	if m.rounds == 0 {
		m.rounds = rounds
	}
	if m.length == 0 {
		m.length = length
	}
	if m.programs.Weir == "" {
		m.programs.Weir = filepath.Join(m.root, "bin", "weir")
	}
	for _, id := range m.only {
		if !slices.Contains(report.ScenarioIDs, id) {
			return fmt.Errorf("%w: -only %q: there are %s", errUsage, id, strings.Join(report.ScenarioIDs, ", "))
		}
	}
	switch {
	case m.rounds < 1 || m.rounds > 1000:
		return fmt.Errorf("%w: -rounds %d: want 1 to 1000", errUsage, m.rounds)
	case m.length < 10*time.Millisecond || m.length > time.Hour:
		return fmt.Errorf("%w: -d %v: want 10ms to 1h", errUsage, m.length)
	case m.inFlight < 1 || m.inFlight > 100_000:
		return fmt.Errorf("%w: -c %d: want 1 to 100000", errUsage, m.inFlight)
	case m.conns < 1 || m.conns > 1000:
		return fmt.Errorf("%w: -conns %d: want 1 to 1000", errUsage, m.conns)
	}
	return nil
}

func runMatrix(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	m, err := parseMatrix(args, stderr)
	if err != nil {
		return err
	}
	ports, err := proc.ParsePorts(m.ports)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	begin := time.Now()
	results, err := m.measure(ctx, ports, stdout, stderr)
	if err != nil {
		return err
	}
	if err := m.describe(ctx, results, begin); err != nil {
		return err
	}
	return write(results, m.json, m.page, m.svg, stderr)
}

// measure starts the servers, drives them, and ends them, also when it fails.
func (m *matrixFlags) measure(ctx context.Context, ports *proc.Ports, stdout, stderr io.Writer) (results *report.Results, err error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, fmt.Errorf("a folder for the servers: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := m.programs.find(ctx, m.noPeer, stderr); err != nil {
		return nil, err
	}
	if err := m.programs.write(ctx, dir); err != nil {
		return nil, err
	}
	if !proc.Measurable {
		fmt.Fprintln(stderr, "CPU and memory of servers are read from /proc, which only Linux has: they are left out.")
	}
	results = &report.Results{Settings: report.Settings{Rounds: m.rounds, Seconds: m.length.Seconds(), InFlight: m.inFlight, Conns: m.conns}}
	scenarios := m.scenarios()
	fmt.Fprintf(stderr, "%d scenarios, about %v\n", len(scenarios), (m.takes(scenarios) + 20*time.Second).Round(10*time.Second))

	f := newFleet(m.programs, dir, ports, m.conns)
	defer func() { err = errors.Join(err, f.Close()) }()
	for i, s := range scenarios {
		fmt.Fprintf(stderr, "[%d/%d] %s, %v\n", i+1, len(scenarios), s.title, m.takes(scenarios[i:i+1]).Round(time.Second))
		done, err := runScenario(ctx, f, s, m.options, stderr)
		if err != nil {
			return nil, err
		}
		if s.id == "hot" && !m.programs.leases {
			done.Skipped = append(done.Skipped, "a leased hot key: "+m.programs.noLeases)
		}
		results.Scenarios = append(results.Scenarios, *done)
		fmt.Fprintf(stdout, "\n## %s\n\n%s\n", s.title, done.Table())
		if err := uncounted(done); err != nil {
			return nil, fmt.Errorf("nothing is written, for these figures cannot be believed:\n%w", err)
		}
	}
	if m.scripts {
		fmt.Fprintln(stderr, "Redis's own time in each script (BenchmarkScript), 30s")
		if results.Scripts, err = scripts(ctx, m.root, m.quick); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// scenarios are those asked for, without the peer if it is left out.
func (m *matrixFlags) scenarios() (out []scenario) {
	for _, s := range matrix(m.programs, m.inFlight) {
		if len(m.only) > 0 && !slices.Contains(m.only, s.id) {
			continue
		}
		if m.programs.Envoyproxy == "" {
			s.rows = slices.DeleteFunc(s.rows, func(r row) bool { return strings.HasPrefix(r.server, "envoyproxy") })
		}
		out = append(out, s)
	}
	return out
}

func runReport(_ context.Context, args []string, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench report", flag.ContinueOnError)
	json := f.String("json", "bench/results.json", "results of a run")
	page := f.String("page", "", "page whose tables are renewed")
	svg := f.String("svg", "", "file for the chart")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	results, err := report.ReadFile(*json)
	if err != nil {
		return err
	}
	for i := range results.Scenarios {
		s := &results.Scenarios[i]
		fmt.Fprintf(stdout, "\n## %s\n\n%s\n", s.Title, s.Table())
	}
	return write(results, "", *page, *svg, stderr)
}

// write writes what has a name.
func write(r *report.Results, json, page, svg string, progress io.Writer) error {
	for _, x := range []struct {
		path string
		how  func(string) error
	}{{json, r.WriteFile}, {page, r.WritePage}, {svg, r.WriteChart}} {
		if x.path == "" {
			continue
		}
		if err := x.how(x.path); err != nil {
			return err
		}
		fmt.Fprintf(progress, "wrote %s\n", x.path)
	}
	return nil
}
