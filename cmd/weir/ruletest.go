package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/ruletest"
)

func newTest() *cobra.Command {
	var only, junit string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "test FILE…",
		Short: "test rules by requests at simulated times, and what each is to be answered",
		Long: `Test rules by requests at simulated times, and what each is to be answered: of test
files, folders of them and patterns. Nothing runs but the code that serves, on
counters in memory, and no time passes: a year takes a moment. The exit code is 1 if
an answer is not what is wanted. docs/testing.md has what a test file can say.`,
		Example: `  weir test examples/tests
  weir test --run 'midnight' --verbose examples/tests/calendar.yaml
  weir test --junit report.xml 'tests/*.yaml'`,
		Args: atLeast(1, "a test file, or a folder of them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := ruletest.Options{Configure: testSetup}
			if only != "" {
				var err error
				if o.Run, err = regexp.Compile(only); err != nil {
					return usagef("--run: %w", err)
				}
			}
			reports, missing, err := testFiles(cmd, args, o, verbose)
			if err == nil && junit != "" {
				err = writeJUnit(junit, reports)
			}
			return errors.Join(err, missing, verdict(cmd, reports, only))
		},
	}
	f := cmd.Flags()
	f.StringVar(&only, "run", "", "only tests whose name this regular expression fits, such as midnight")
	f.BoolVarP(&verbose, "verbose", "v", false, "print each step, and who decided")
	f.StringVar(&junit, "junit", "", "write a report here too, as JUnit XML")
	return cmd
}

// testFiles plays the tests of files, and prints what came of them. What is missing
// is of names that mean no file.
func testFiles(cmd *cobra.Command, names []string, o ruletest.Options, verbose bool) (reports []ruletest.Report, missing, err error) {
	paths, missing := ruletest.Find(names)
	for _, path := range paths {
		report := ruletest.Run(cmd.Context(), path, o)
		if err := cmd.Context().Err(); err != nil {
			return reports, missing, err
		}
		report.Write(cmd.OutOrStdout(), verbose)
		reports = append(reports, report)
	}
	return reports, missing, nil
}

// verdict says in a line what came of all, and fails unless all is well.
func verdict(cmd *cobra.Command, reports []ruletest.Report, only string) error {
	var n ruletest.Counts
	for i := range reports {
		n.Add(&reports[i])
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{n.Failed, "failed"}, {n.Unplayed, "not played"}, {n.Unread, "with faults"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	fmt.Fprintln(cmd.OutOrStdout(), strings.Join(slices.Insert(parts, 0, fmt.Sprintf("%d passed", n.Passed)), ", "))
	var problems []error
	if n.Failed > 0 {
		problems = append(problems, fmt.Errorf("%s failed", count(n.Failed, "test")))
	}
	if n.Unread > 0 {
		problems = append(problems, fmt.Errorf("%s could not be played", count(n.Unread, "file")))
	}
	switch {
	case len(problems) > 0 || n.Passed > 0:
	case only != "" && n.Unplayed == 0:
		problems = append(problems, fmt.Errorf("no test has a name that fits --run %s", only))
	default:
		problems = append(problems, errors.New("no test was played"))
	}
	return errors.Join(problems...)
}

func writeJUnit(path string, reports []ruletest.Report) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	if err := ruletest.WriteJUnit(f, reports); err != nil {
		return fmt.Errorf("--junit %s: %w", path, err)
	}
	return nil
}

// testSetup is serve's configuration for a test, as far as flags can say it.
func testSetup(flags []string) (ruletest.Setup, error) {
	var c serveConfig
	f := pflag.NewFlagSet("flags", pflag.ContinueOnError)
	f.Usage = func() {}
	c.addFlags(f)
	if err := f.Parse(flags); err != nil {
		return ruletest.Setup{}, fmt.Errorf("%w; they are those of weir serve", err)
	}
	if f.NArg() > 0 {
		return ruletest.Setup{}, fmt.Errorf("%q is no flag; they are written as in [--charge, each]", f.Arg(0))
	}
	var others []string
	f.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(testFlags(), flag.Name) {
			others = append(others, "--"+flag.Name)
		}
	})
	if len(others) > 0 {
		return ruletest.Setup{}, fmt.Errorf("%s: a test is not played with it; flags that it is played with are --%s", strings.Join(others, ", "), strings.Join(testFlags(), ", --"))
	}
	if c.compat.value == "envoyproxy" { // as with an empty environment: a test is the same everywhere
		if _, err := applyCompat(f, func(string) (string, bool) { return "", false }); err != nil {
			return ruletest.Setup{}, err
		}
	}
	if err := c.answer.complete(); err != nil {
		return ruletest.Setup{}, err
	}
	if c.memoryMaxCounters < 1 {
		return ruletest.Setup{}, fmt.Errorf("--memory-max-counters %d: it is 1 at least", c.memoryMaxCounters)
	}
	return ruletest.Setup{
		Server: c.answering(),
		Rules:  c.ruleOptions(),
		Memory: memoryOptions(&c, slog.New(slog.DiscardHandler)),
	}, nil
}

// testFlags are the flags of serve that decide what a test is answered, and two that
// matter to Redis alone, so that those of a deployment can be taken as they are.
func testFlags() []string {
	return []string{
		"charge", "compat", "count-denied", "denied-body", "dynamic-metadata", "header-names", "headers", "memory-max-counters",
		"on-store-failure", "shadow", "upstream-headers", "store-timeout", "deny-cache",
	}
}
