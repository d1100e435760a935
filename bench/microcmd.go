package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"weir/bench/proc"
)

// microFlags are the flags of `bench micro`.
type microFlags struct {
	root, base, pattern, benchtime, out string
	packages                            []string
	count                               int
}

func parseMicro(args []string, stderr io.Writer) (*microFlags, error) {
	var m microFlags
	f := flag.NewFlagSet("bench micro", flag.ContinueOnError)
	packages := f.String("packages", "limiter,limiter/redis,rules,server", "packages, with commas between them")
	f.StringVar(&m.root, "root", ".", "folder of Weir's repository")
	f.StringVar(&m.base, "base", "", "revision to compare with, such as main (default: none)")
	f.StringVar(&m.pattern, "bench", ".", "regular expression of benchmarks")
	f.StringVar(&m.benchtime, "benchtime", "0.3s", "of each, as go test takes it")
	f.IntVar(&m.count, "count", 6, "times that each runs; benchstat wants six at least")
	f.StringVar(&m.out, "out", "", "folder for base.txt and new.txt (default: ROOT/bin/micro)")
	if err := parse(f, args, stderr); err != nil {
		return nil, err
	}
	m.packages = strings.Split(*packages, ",")
	if m.count < 1 {
		return nil, fmt.Errorf("%w: -count %d: want 1 at least", errUsage, m.count)
	}
	if slices.Contains(m.packages, "") {
		return nil, fmt.Errorf("%w: -packages %q has an empty name", errUsage, *packages)
	}
	if m.out == "" {
		m.out = filepath.Join(m.root, "bin", "micro")
	}
	return &m, nil
}

// runMicro runs the benchmarks, those of the base and of this tree in turn, so
// that what else the machine does meets both.
func runMicro(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	m, err := parseMicro(args, stderr)
	if err != nil {
		return err
	}
	if m.root, err = filepath.Abs(m.root); err != nil {
		return fmt.Errorf("path of the repository: %w", err)
	}
	if m.out, err = filepath.Abs(m.out); err != nil {
		return fmt.Errorf("path of the results: %w", err)
	}
	temp, err := os.MkdirTemp("", "weir-micro-")
	if err != nil {
		return fmt.Errorf("a folder for the base: %w", err)
	}
	defer os.RemoveAll(temp)
	trees := []tree{{name: "new", dir: m.root}}
	if m.base != "" {
		base := filepath.Join(temp, "tree")
		if err := git(ctx, m.root, "worktree", "add", "--detach", "--quiet", base, m.base); err != nil {
			return err
		}
		// The context may have ended, and the worktree goes all the same.
		defer func() {
			err = errors.Join(err, git(context.WithoutCancel(ctx), m.root, "worktree", "remove", "--force", base))
		}()
		trees = []tree{{name: "base", dir: base}, trees[0]}
	}
	for i := range trees {
		fmt.Fprintf(stderr, "building the benchmarks of %s\n", trees[i].dir)
		if err := trees[i].build(ctx, filepath.Join(temp, trees[i].name), m.packages); err != nil {
			return err
		}
	}
	for n := range m.count {
		for i := range trees {
			fmt.Fprintf(stderr, "round %d of %d: %s\n", n+1, m.count, trees[i].name)
			if err := trees[i].run(ctx, m); err != nil {
				return err
			}
		}
	}
	return m.compare(ctx, trees, stdout)
}

// tree is a revision, and its benchmarks.
type tree struct {
	name, dir string
	binaries  map[string]string // by package
	output    bytes.Buffer
}

// build compiles the tests of the packages that it has.
func (t *tree) build(ctx context.Context, to string, packages []string) error {
	t.binaries = map[string]string{}
	for _, p := range packages {
		if _, err := os.Stat(filepath.Join(t.dir, p)); t.name == "base" && errors.Is(err, os.ErrNotExist) {
			continue // it is new
		}
		binary := filepath.Join(to, strings.ReplaceAll(p, "/", "-")+".test")
		cmd := proc.Command(ctx, "go", "test", "-c", "-o", binary, "./"+p)
		cmd.Dir = t.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the benchmarks of %s in %s: %w\n%s", p, t.name, err, out)
		}
		if _, err := os.Stat(binary); err == nil { // there is none where there are no tests
			t.binaries[p] = binary
		}
	}
	return nil
}

// run runs all benchmarks once.
func (t *tree) run(ctx context.Context, m *microFlags) error {
	for _, p := range m.packages {
		if t.binaries[p] == "" {
			continue
		}
		cmd := proc.Command(ctx, t.binaries[p], "-test.run=^$", "-test.bench="+m.pattern, "-test.benchtime="+m.benchtime, "-test.benchmem", "-test.timeout=1h")
		cmd.Dir = filepath.Join(t.dir, p)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("benchmarks of %s in %s: %w\n%s", p, t.name, err, out)
		}
		t.output.Write(out)
	}
	return nil
}

// compare keeps what was printed, and has benchstat read it.
func (m *microFlags) compare(ctx context.Context, trees []tree, stdout io.Writer) error {
	if err := os.MkdirAll(m.out, 0o750); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	args := []string{"tool", "benchstat"}
	for i := range trees {
		path := filepath.Join(m.out, trees[i].name+".txt")
		if err := os.WriteFile(path, trees[i].output.Bytes(), 0o600); err != nil {
			return fmt.Errorf("results: %w", err)
		}
		args = append(args, trees[i].name+"="+path)
	}
	cmd := proc.Command(ctx, "go", args...)
	cmd.Dir = filepath.Join(m.root, "bench") // whose go.mod pins it
	cmd.Stdout, cmd.Stderr = stdout, stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("benchstat: %w", err)
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...) //nolint:gosec // a revision, named by who asks
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
