package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bench/load"
	"weir/bench/proc"
	"weir/bench/report"
)

// target is a server that runs already.
type target struct {
	name, addr string
	usage      load.Processes
}

// parseTarget reads NAME=HOST:PORT[/PID[+REDISPID…]].
func parseTarget(s string) (target, error) {
	name, rest, ok := strings.Cut(s, "=")
	addr, pids, _ := strings.Cut(rest, "/")
	if !ok || name == "" || addr == "" {
		return target{}, fmt.Errorf("target %q: want NAME=HOST:PORT[/PID[+REDISPID…]]", s)
	}
	t := target{name: name, addr: addr}
	for i, p := range strings.Split(pids, "+") {
		if pids == "" {
			break
		}
		pid, err := strconv.Atoi(p)
		if err != nil || pid < 1 {
			return target{}, fmt.Errorf("target %q: %q is no process id", s, p)
		}
		if i == 0 {
			t.usage.Server = []int{pid}
		} else {
			t.usage.Redis = append(t.usage.Redis, pid)
		}
	}
	return t, nil
}

// driveFlags are the flags of `bench drive`.
type driveFlags struct {
	options
	targets []target
	load    load.Load
	against string
	check   bool
	refill  time.Duration
	json    string
}

func parseDrive(args []string, stderr io.Writer) (*driveFlags, error) {
	var d driveFlags
	f := flag.NewFlagSet("bench drive", flag.ContinueOnError)
	f.Func("target", "`NAME=HOST:PORT[/PID[+REDISPID…]]` (repeat); with process ids CPU and memory are measured", func(s string) error {
		t, err := parseTarget(s)
		d.targets = append(d.targets, t)
		return err
	})
	f.IntVar(&d.rounds, "rounds", 5, "rounds; in each, every target is driven once, in turn")
	f.DurationVar(&d.length, "d", 3*time.Second, "length of one drive")
	f.IntVar(&d.load.InFlight, "c", 64, "requests in flight (closed loop), at most (open loop)")
	f.IntVar(&d.conns, "conns", 2, "gRPC connections to each target")
	f.IntVar(&d.load.Rate, "rate", 0, "requests a second, open loop; 0: closed loop")
	f.StringVar(&d.load.Domain, "domain", "bench", "domain of each request")
	f.StringVar(&d.load.Entry, "entry", "key", "key of each descriptor's entry")
	f.StringVar(&d.load.Prefix, "prefix", "", "begins each entry's value, before its number")
	f.IntVar(&d.load.Values, "keys", 10_000, "different values; 1: one hot key")
	f.Float64Var(&d.load.Zipf, "zipf", 0, "s of Zipf's law over the values (over 1); 0: all alike")
	f.IntVar(&d.load.Descriptors, "descriptors", 1, "descriptors in each request")
	f.StringVar(&d.against, "against", "", "target with which the others are compared (default: the first)")
	f.BoolVar(&d.check, "check", false, "afterwards look at 200 counters: what was admitted must have been counted")
	f.DurationVar(&d.refill, "refill", time.Hour, "with -check: in which the limit refills evenly (token and leaky bucket, sliding windows); 0: a fixed window")
	f.StringVar(&d.json, "json", "", "file for all results")
	if err := parse(f, args, stderr); err != nil {
		return nil, err
	}
	return &d, d.validate()
}

func (d *driveFlags) validate() error {
	if len(d.targets) == 0 {
		return fmt.Errorf("%w: no -target; give one at least, such as -target a=127.0.0.1:8081", errUsage)
	}
	if d.against == "" {
		d.against = d.targets[0].name
	}
	if !slices.ContainsFunc(d.targets, func(t target) bool { return t.name == d.against }) {
		return fmt.Errorf("%w: -against %q is none of the targets", errUsage, d.against)
	}
	if err := d.load.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if d.rounds < 1 || d.length <= 0 || d.conns < 1 {
		return fmt.Errorf("%w: -rounds, -d and -conns are at least 1", errUsage)
	}
	return nil
}

func runDrive(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	d, err := parseDrive(args, stderr)
	if err != nil {
		return err
	}
	f := newFleet(Programs{}, "", &proc.Ports{}, d.conns)
	defer func() { err = errors.Join(err, f.Close()) }()
	s := scenario{id: "drive", title: "drive", against: []string{d.against}}
	for _, t := range d.targets {
		conns, err := load.Dial(t.addr, d.conns)
		if err != nil {
			return err
		}
		f.servers[t.name] = &server{name: t.name, usage: t.usage, conns: conns, asker: load.NewRLS}
		r := row{server: t.name, load: d.load, meaning: load.Meaning{Refill: d.refill}}
		if !d.check {
			r.unchecked = "not looked at"
		}
		s.rows = append(s.rows, r)
	}
	done, err := runScenario(ctx, f, s, d.options, stderr)
	if err != nil {
		return err
	}
	fmt.Fprint(stdout, done.Table())
	results := &report.Results{Scenarios: []report.Scenario{*done}}
	return errors.Join(write(results, d.json, "", "", stderr), uncounted(done))
}
