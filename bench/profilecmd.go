package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"weir/bench/load"
	"weir/bench/proc"
)

// profileFlags are the flags of `bench profile`.
type profileFlags struct {
	programs   Programs
	ports, out string
	length     time.Duration
	conns      int
}

// profiled are the loads whose profiles are put together: what most requests do,
// with both stores.
var profiled = []struct {
	server string
	load   load.Load
}{
	{"weir-redis", load.Load{Entry: "fixed_window", Values: 10_000, Descriptors: 1}},
	{"weir-memory", load.Load{Entry: "fixed_window", Values: 10_000, Descriptors: 1}},
	{"weir-redis", load.Load{Entry: "token_bucket", Values: 10_000, Descriptors: 3}},
}

// runProfile writes the CPU profile that the Go compiler reads
// (profile-guided optimisation).
func runProfile(ctx context.Context, args []string, _, stderr io.Writer) (err error) {
	var p profileFlags
	f := flag.NewFlagSet("bench profile", flag.ContinueOnError)
	f.StringVar(&p.programs.Weir, "weir", "bin/weir", "weir to look at")
	f.StringVar(&p.programs.Redis, "redis", "redis-server", "redis-server to run")
	f.StringVar(&p.ports, "ports", "15700-15790", "range from which free ports of 127.0.0.1 are taken")
	f.StringVar(&p.out, "o", "cmd/weir/default.pgo", "file for the profile")
	f.DurationVar(&p.length, "d", 15*time.Second, "length of each load")
	f.IntVar(&p.conns, "conns", 2, "gRPC connections to each server")
	if err := parse(f, args, stderr); err != nil {
		return err
	}
	if p.length < time.Second {
		return fmt.Errorf("%w: -d %v: want 1s at least", errUsage, p.length)
	}
	ports, err := proc.ParsePorts(p.ports)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return fmt.Errorf("a folder for the servers: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := p.programs.find(ctx, true, stderr); err != nil {
		return err
	}
	if err := p.programs.write(ctx, dir); err != nil {
		return err
	}
	fleet := newFleet(p.programs, dir, ports, p.conns)
	defer func() { err = errors.Join(err, fleet.Close()) }()
	var parts []string
	for i, x := range profiled {
		fmt.Fprintf(stderr, "[%d/%d] %s, %s, %d descriptors, %v\n", i+1, len(profiled), x.server, x.load.Entry, x.load.Descriptors, p.length)
		s, err := fleet.get(ctx, x.server)
		if err != nil {
			return fmt.Errorf("%s: %w", x.server, err)
		}
		part := filepath.Join(dir, fmt.Sprintf("%d.pprof", i))
		if err := s.profile(ctx, x.load, p.length, part); err != nil {
			return fmt.Errorf("%s: %w", x.server, err)
		}
		parts = append(parts, part)
	}
	return merge(parts, p.out)
}

// profile writes the server's CPU profile under a load.
func (s *server) profile(ctx context.Context, l load.Load, length time.Duration, path string) error {
	l.Domain, l.InFlight = "bench", 64
	target, err := load.NewTarget(l, s.asker(s.conns, l), load.Processes{})
	if err != nil {
		return err
	}
	driven := make(chan error, 1)
	go func() {
		_, err := target.Drive(ctx, length+time.Second)
		driven <- err
	}()
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", strings.TrimSuffix(s.metrics, "/metrics"), int(length.Seconds()))
	return errors.Join(download(ctx, url, path), <-driven)
}

func download(ctx context.Context, url, path string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the profile: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}

// merge puts profiles together, without the path of the program that was looked at.
func merge(parts []string, out string) error {
	var profiles []*profile.Profile
	for _, part := range parts {
		data, err := os.ReadFile(part)
		if err != nil {
			return fmt.Errorf("merge profiles: %w", err)
		}
		p, err := profile.ParseData(data)
		if err != nil {
			return fmt.Errorf("merge profiles: %s: %w", part, err)
		}
		profiles = append(profiles, p)
	}
	all, err := profile.Merge(profiles)
	if err != nil {
		return fmt.Errorf("merge profiles: %w", err)
	}
	for _, m := range all.Mapping {
		m.File = filepath.Base(m.File)
	}
	var b bytes.Buffer
	if err := all.Write(&b); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return os.WriteFile(out, b.Bytes(), 0o644) //nolint:gosec // for all to read
}
