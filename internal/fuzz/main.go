// Command fuzz runs all fuzz targets of some packages, one after another, and tells
// at the end what each has found; `make fuzz`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// config is what the flags say.
type config struct {
	dir      string        // of the module; "": where the program is started
	each     time.Duration // for each target
	total    time.Duration // for all together, instead of each; 0: not said
	times    string        // how often instead of how long, as -fuzztime takes it; "": each
	targets  *regexp.Regexp
	parallel int
	memory   string
	packages []string
}

func main() {
	var c config
	targets := flag.String("targets", "", "only targets that match this regular expression, as package.FuzzName (default: all)")
	flag.DurationVar(&c.each, "time", 30*time.Second, "how long each target runs")
	flag.DurationVar(&c.total, "total", 0, "how long all targets run together, in place of -time")
	flag.IntVar(&c.parallel, "parallel", 2, "processes that run a target at once")
	flag.StringVar(&c.memory, "memory", "1GiB", "GOMEMLIMIT of each of these")
	flag.Parse()
	if c.packages = flag.Args(); len(c.packages) == 0 {
		c.packages = []string{"./..."}
	}
	var err error
	if c.targets, err = regexp.Compile(*targets); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz: -targets (FUZZ of make fuzz):", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// target is one fuzz target, and what came of it.
type target struct {
	pkg, name string

	ran        bool
	took       time.Duration
	ranFor     time.Duration // without what it took to build it
	cpu        time.Duration // of all its processes, the compiler's too
	executions uint64
	new        uint64 // inputs that reach what none before did
	finding    string // "": none
}

func (t *target) String() string { return t.pkg + "." + t.name }

var errFound = errors.New("there are findings; their inputs are in testdata/fuzz of their packages, where make test runs them from now on")

// run runs the targets, also those after one with a finding. It fails if there are
// findings.
func (c *config) run(ctx context.Context, w io.Writer) error {
	fmt.Fprintln(w, "building the tests, to list their targets (PACKAGES=./rules builds fewer)")
	targets, err := c.list(ctx)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target matches %q in %s", c.targets, strings.Join(c.packages, " "))
	}
	each := c.share(len(targets))
	fmt.Fprintf(w, "%d targets, %s each: %v in all, and some seconds more for each to be built and to begin\n", len(targets), each, c.together(len(targets)))
	for i := range targets {
		if ctx.Err() != nil {
			break
		}
		t := &targets[i]
		fmt.Fprintf(w, "== %d of %d: %v\n", i+1, len(targets), t)
		c.fuzz(ctx, w, t, each)
	}
	return c.report(w, targets)
}

// share is what -fuzztime is of each target.
func (c *config) share(targets int) string {
	switch {
	case c.times != "":
		return c.times
	case c.total > 0:
		return max(time.Second, (c.total / time.Duration(targets)).Truncate(time.Second)).String()
	}
	return c.each.String()
}

func (c *config) together(targets int) time.Duration {
	each, err := time.ParseDuration(c.share(targets))
	if err != nil {
		return 0
	}
	return each * time.Duration(targets)
}

// list finds the targets.
func (c *config) list(ctx context.Context) ([]target, error) {
	cmd := c.command(ctx, append([]string{"test", "-list", "^Fuzz"}, c.packages...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("listing the targets: %w\n%s", err, out)
	}
	var found []target
	for _, t := range parseList(string(out)) {
		if c.targets == nil || c.targets.MatchString(t.String()) {
			found = append(found, t)
		}
	}
	return found, nil
}

// parseList reads what go test -list prints: the names of a package, and then it.
func parseList(text string) []target {
	var all []target
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 1 && strings.HasPrefix(words[0], "Fuzz"):
			names = append(names, words[0])
		case len(words) > 1 && words[0] == "ok":
			for _, name := range names {
				all = append(all, target{pkg: words[1], name: name})
			}
			names = nil
		}
	}
	return all
}

func (c *config) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are this program's
	cmd.Dir = c.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test ends what it has started
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// fuzz runs a target.
func (c *config) fuzz(ctx context.Context, w io.Writer, t *target, fuzztime string) {
	began := time.Now()
	cmd := c.command(ctx, "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fuzztime, "-fuzzminimizetime", "5s", "-parallel", strconv.Itoa(c.parallel), t.pkg)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+c.memory)
	out := &progress{w: w, t: t}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	out.flush()
	t.ran, t.took = true, time.Since(began)
	if state := cmd.ProcessState; state != nil {
		t.cpu = state.UserTime() + state.SystemTime()
	}
	if err != nil && ctx.Err() == nil && t.finding == "" && !out.timeUp {
		t.finding = "failed: " + err.Error()
	}
}

// progress reads what a target prints. It shows one line of progress in a while, and
// all others.
type progress struct {
	w     io.Writer
	t     *target
	line  []byte
	shown time.Time

	// The time was up while the fuzzer waited for a worker. go test fails then, though
	// nothing was found: what is found has an input, or says something else.
	timeUp bool
}

const showEvery = 15 * time.Second

// Write implements io.Writer.
func (p *progress) Write(text []byte) (int, error) {
	for _, b := range text {
		if b != '\n' {
			p.line = append(p.line, b)
			continue
		}
		p.flush()
	}
	return len(text), nil
}

var (
	progressLine = regexp.MustCompile(`^fuzz: elapsed: (\S+), (?:execs: (\d+) .*new interesting: (\d+)|gathering baseline)`)
	findingLine  = regexp.MustCompile(`Failing input written to (\S+)`)
)

func (p *progress) flush() {
	line := string(p.line)
	p.line = p.line[:0]
	if m := progressLine.FindStringSubmatch(line); m != nil {
		if m[2] != "" {
			p.t.ranFor, _ = time.ParseDuration(m[1])
			p.t.executions, _ = strconv.ParseUint(m[2], 10, 64)
			p.t.new, _ = strconv.ParseUint(m[3], 10, 64)
		}
		if time.Since(p.shown) < showEvery {
			return
		}
		p.shown = time.Now()
	}
	if strings.TrimSpace(line) == "context deadline exceeded" {
		p.timeUp = true
	}
	if m := findingLine.FindStringSubmatch(line); m != nil {
		p.t.finding = m[1]
	}
	if line != "" && line != "PASS" && !strings.HasPrefix(line, "ok ") {
		fmt.Fprintln(p.w, "   "+line)
	}
}

// report prints what came of the targets.
func (c *config) report(w io.Writer, targets []target) error {
	found, left := 0, 0
	var took, cpu time.Duration
	var executions uint64
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ntarget\texecutions\ta second\tnew inputs\ttime\tcpu\tfinding")
	for i := range targets {
		t := &targets[i]
		if !t.ran {
			left++
			continue
		}
		finding := "none"
		switch {
		case t.finding != "":
			found++
			finding = t.finding
		case t.executions == 0:
			finding = "none, but the time was too short for more than its seeds"
		}
		took += t.took
		cpu += t.cpu
		executions += t.executions
		fmt.Fprintf(table, "%v\t%d\t%.0f\t%d\t%v\t%v\t%s\n", t, t.executions, float64(t.executions)/max(1, t.ranFor.Seconds()), t.new, t.took.Round(time.Second), t.cpu.Round(time.Second), finding)
	}
	fmt.Fprintf(table, "%d targets\t%d\t\t\t%v\t%v\t%d\n", len(targets)-left, executions, took.Round(time.Second), cpu.Round(time.Second), found)
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case found > 0:
		return errFound
	case left > 0:
		return fmt.Errorf("ended early: %d targets were not run", left)
	}
	return nil
}
