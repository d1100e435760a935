package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"weir/bench/proc"
	"weir/bench/soak"
)

// runSoak runs Weir for a long time, and fails with what grew.
func runSoak(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := soak.Options{Progress: stdout}
	var ports string
	f := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	f.StringVar(&o.Weir, "weir", "bin/weir", "weir to look at")
	f.StringVar(&o.Redis, "redis", "redis-server", "redis-server to run")
	f.StringVar(&ports, "ports", "15700-15790", "range from which free ports of 127.0.0.1 are taken")
	f.DurationVar(&o.Length, "d", time.Hour, "how long")
	f.IntVar(&o.Rate, "rate", 3000, "requests a second over all three servers, open loop")
	f.IntVar(&o.InFlight, "c", 256, "requests in flight, at most")
	f.DurationVar(&o.RuleChanges, "rule-changes", 3*time.Second, "time between two changes of the rules")
	f.IntVar(&o.Restarts, "redis-restarts", 0, "how often Redis ends meanwhile, and starts again empty")
	f.StringVar(&o.Out, "o", filepath.Join("bin", "soak"), "folder for profiles, logs and samples, if something is found")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	var err error
	if o.Ports, err = proc.ParsePorts(ports); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	programs := Programs{Weir: o.Weir, Redis: o.Redis}
	if err := programs.find(ctx, true, stderr); err != nil {
		return err
	}
	o.Weir = programs.Weir
	found, err := soak.Run(ctx, o)
	for _, text := range found {
		fmt.Fprintln(stdout, "FOUND", text)
	}
	switch {
	case err != nil:
		return err
	case len(found) > 0:
		return fmt.Errorf("%d findings; profiles, logs and samples are in %s", len(found), o.Out)
	}
	fmt.Fprintln(stdout, "nothing grew, nothing drifted, nothing became slower")
	return nil
}
