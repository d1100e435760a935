package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/internal/accesslog"
	"weir/internal/simulate"
	"weir/rules"
)

// simulateConfig is what the flags of simulate say.
type simulateConfig struct {
	rules       []string
	mapping     string
	domain      string
	format      choice
	timezone    string
	tolerance   time.Duration
	atMost      string
	charge      choice
	countDenied bool
	deadline    time.Duration
	top         int
	out         reportFlags

	share float64        // of atMost
	zone  *time.Location // of timezone
}

func newSimulate() *cobra.Command {
	var c simulateConfig
	cmd := &cobra.Command{
		Use:   "simulate LOG…",
		Short: "replay an access log against rules: who would be refused, by which rule",
		Long: `Replay access logs (- is standard input; gzip is read as it is) against rules, on the
time of the log: how many requests would be refused, whose, and by which rule; the
peak rates; the least limit that refuses a given share at most; and what each of the
algorithms would do at the same limit. Several --rules are compared side by side. Decisions
are those of weir serve. Several logs are read as one, in the order of time.

A mapping says which descriptors a line becomes. Without one, each line has those that
the rules ask for, as far as the log has fields for their keys. Without rules, limits for
each address are suggested.`,
		Example: `  weir simulate access.log --rules rules.yaml
  weir simulate access.log.*.gz --rules now/ --rules next/ --mapping mapping.yaml --html report.html
  weir simulate access.log --at-most 0.05%`,
		Args: atLeast(1, "a log, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.complete(args); err != nil {
				return err
			}
			report, err := c.simulate(cmd.Context(), args, cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return c.out.write(cmd.OutOrStdout(), report)
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

func (c *simulateConfig) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.rules, "rules", nil, "a rule file or a folder of them (repeatable: each is a rule set of its own, and they are compared)")
	f.StringVar(&c.mapping, "mapping", "", "a file that says which descriptors a line becomes")
	f.StringVar(&c.domain, "domain", "", "ask the rules of this domain (default: the mapping's, or the only one that the rules have)")
	c.format = choice{allowed: accesslog.Formats()}
	f.Var(&c.format, "format", "of the logs; recognised by the first line of each unless it is said")
	f.StringVar(&c.timezone, "timezone", "UTC", "of times in the log that name none: an IANA name")
	f.DurationVar(&c.tolerance, "tolerance", accesslog.DefaultTolerance, "lines that are late by so much are put in order; later ones are left out, and counted (0: all that are late)")
	f.StringVar(&c.atMost, "at-most", "0.1%", "the share of its requests that a limit may refuse: look for the tightest one")
	c.charge = choice{[]string{"all-or-nothing", "each"}, "all-or-nothing"}
	f.Var(&c.charge, "charge", "as weir serve has it: a request that one limit refuses charges no limit, or each that lets it pass")
	f.BoolVar(&c.countDenied, "count-denied", false, "as weir serve has it: refused requests count too, for rules that do not say")
	f.DurationVar(&c.deadline, "deadline", 0, "how long callers wait for an answer, beyond which leaky buckets refuse what they would hold (0: for ever; Envoy's default is 20ms)")
	f.IntVar(&c.top, "top", simulate.DefaultTop, "how many counters to list of each rule")
	c.out.addFlags(f)
}

func (c *simulateConfig) complete(args []string) (err error) {
	if c.share, err = parseShare(c.atMost); err != nil {
		return usagef("--at-most %s: %w", c.atMost, err)
	}
	if c.zone, err = time.LoadLocation(c.timezone); err != nil || c.timezone == "" || c.timezone == "Local" {
		return usagef("--timezone %q: it is an IANA name such as Europe/Berlin", c.timezone)
	}
	switch {
	case c.tolerance < 0:
		return usagef("--tolerance %v: it is 0 at least", c.tolerance)
	case c.deadline < 0:
		return usagef("--deadline %v: it is 0 at least", c.deadline)
	case c.top < 1 || c.top > 1000:
		return usagef("--top %d: it is 1 to 1000", c.top)
	}
	for i, name := range args {
		if slices.Contains(args[:i], name) {
			return usagef("the log %s is given twice", name)
		}
	}
	for i, name := range c.rules {
		if slices.Contains(c.rules[:i], name) {
			return usagef("--rules %s is given twice", name)
		}
	}
	return c.out.complete()
}

// parseShare reads 0.1% or 0.001.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		n /= 100
	}
	if err != nil || math.IsNaN(n) || n < 0 || n > 1 {
		return 0, errors.New("it is a share such as 0.1%, from 0% to 100%")
	}
	return n, nil
}

// simulate replays the logs.
func (c *simulateConfig) simulate(ctx context.Context, logs []string, stdin io.Reader, stderr io.Writer) (*simulate.Report, error) {
	sets, err := c.ruleSets()
	if err != nil {
		return nil, err
	}
	mapping, err := c.readMapping(sets)
	if err != nil {
		return nil, err
	}
	tolerance := c.tolerance
	if tolerance == 0 {
		tolerance = -1
	}
	log, err := accesslog.Open(accesslog.Options{
		Files: logs, Stdin: stdin, Format: c.format.value, Mapping: mapping, Zone: c.zone, Tolerance: tolerance,
	})
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := simulate.New(simulate.Options{
		Sets: sets, ChargeEach: c.charge.value == "each", Deadline: c.deadline, AtMost: c.share, Top: c.top, Suggest: len(c.rules) == 0,
	})
	defer s.Close()
	if err := replayLog(ctx, log, s, newProgress(stderr)); err != nil {
		return nil, err
	}
	stats := log.Stats()
	if err := stats.Check(); err != nil {
		return nil, err
	}
	report, err := s.Report()
	if err != nil {
		return nil, err
	}
	report.Log = &stats
	report.About = aboutLog(&stats, mapping)
	report.Warnings = append(logWarnings(&stats, len(logs)), domainWarnings(sets, mapping.Domain)...)
	return report, nil
}

// replayLog gives the simulation all requests of a log.
func replayLog(ctx context.Context, log *accesslog.Log, s *simulate.Simulation, bar *progress) error {
	defer bar.clear()
	for n := 0; ; n++ {
		if n%4096 == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("stopped while reading the log: %w", err)
			}
			bar.show(log.Progress())
		}
		req, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Add(req.At, &req.Request); err != nil {
			return err
		}
	}
}

// ruleSets compiles those that are compared, or the one that limits are looked for with.
func (c *simulateConfig) ruleSets() (sets []simulate.NamedSet, err error) {
	options := rules.Options{CountDenied: c.countDenied}
	for _, path := range c.rules {
		files, err := readFiles([]string{path})
		if err != nil {
			return nil, err
		}
		set, err := rules.CompileWith(options, rules.ParseSnapshot(files).Documents...)
		if err != nil {
			return nil, err
		}
		if _, n := set.Size(); n == 0 {
			return nil, fmt.Errorf("%s has no rules", path)
		}
		sets = append(sets, simulate.NamedSet{Name: path, Set: set})
	}
	if len(sets) == 0 {
		set, err := compile(map[string][]byte{"(suggestion)": []byte(simulate.SuggestionRules())})
		if err != nil {
			return nil, err
		}
		sets = append(sets, simulate.NamedSet{Name: "a limit for each address", Set: set})
	}
	return sets, nil
}

// readMapping reads the mapping, or makes the one that the rules imply.
func (c *simulateConfig) readMapping(sets []simulate.NamedSet) (*accesslog.Mapping, error) {
	if c.mapping != "" {
		m, err := accesslog.ReadMapping(c.mapping)
		if err == nil && c.domain != "" {
			m.Domain = c.domain
		}
		return m, err
	}
	domain, domains := c.domain, []string(nil)
	for _, set := range sets {
		for _, name := range set.Set.Domains() {
			if !slices.Contains(domains, name) {
				domains = append(domains, name)
			}
		}
	}
	switch {
	case domain != "":
	case len(domains) == 1:
		domain = domains[0]
	default:
		return nil, usagef("the rules have several domains (%s): say which one the log's requests are for, by --domain", strings.Join(domains, ", "))
	}
	return accesslog.ImpliedMapping(domain, keysOf(sets, domain)), nil
}

// keysOf are the lists of keys that the rules of a domain match, each once.
func keysOf(sets []simulate.NamedSet, domain string) (lists [][]string) {
	for _, set := range sets {
		for r := range set.Set.Rules(domain) {
			keys := r.Keys()
			if !slices.ContainsFunc(lists, func(list []string) bool { return slices.Equal(list, keys) }) {
				lists = append(lists, keys)
			}
		}
	}
	return lists
}

// aboutLog says what was read.
func aboutLog(stats *accesslog.Stats, m *accesslog.Mapping) (about []string) {
	const few = 5
	for i, f := range stats.Files {
		if i == few {
			about = append(about, fmt.Sprintf("and %s more", count(len(stats.Files)-few, "file")))
			break
		}
		about = append(about, fmt.Sprintf("%s: %s, %d lines", cell(f.Name), f.Format, f.Lines))
	}
	about = append(about, fmt.Sprintf("asked of domain %s: %s", cell(m.Domain), cell(strings.Join(m.Describe(), "; "))))
	if stats.LeftOut > 0 {
		about = append(about, fmt.Sprintf("%d lines are no requests, as the mapping has it", stats.LeftOut))
	}
	if stats.Zoneless {
		about = append(about, fmt.Sprintf("times without a zone are taken to be of %s (--timezone)", stats.Zone))
	}
	return about
}

// logWarnings says which lines were not used, and why.
func logWarnings(stats *accesslog.Stats, files int) (warnings []string) {
	if stats.Unreadable > 0 {
		warnings = append(warnings, fmt.Sprintf("%d lines could not be read, such as", stats.Unreadable))
		for _, example := range stats.Examples {
			warnings = append(warnings, cell(example))
		}
	}
	if stats.Late > 0 {
		text := fmt.Sprintf("%d lines were left out, being more than %v behind lines before them (--tolerance)", stats.Late, stats.Tolerance)
		if files == 1 {
			text += "; are these several logs, one after another? Given as files of their own, they are read in the order of time"
		}
		warnings = append(warnings, text)
	}
	for _, unmet := range stats.Unmet {
		warnings = append(warnings, cell(unmet))
	}
	return warnings
}

func domainWarnings(sets []simulate.NamedSet, domain string) (warnings []string) {
	for _, set := range sets {
		if domains := set.Set.Domains(); !slices.Contains(domains, domain) {
			warnings = append(warnings, fmt.Sprintf("%s has no rules of the domain %q, which is asked; it has %s", set.Name, domain, strings.Join(domains, ", ")))
		}
	}
	return warnings
}

// reportFlags say where a report goes, beside the terminal.
type reportFlags struct{ json, html string }

func (o *reportFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.json, "json", "", "write the report as JSON to this file (-: to standard output, in place of the tables)")
	f.StringVar(&o.html, "html", "", "write the report as one self-contained page to this file (-: to standard output, in place of the tables)")
}

func (o *reportFlags) complete() error {
	if o.json != "" && o.json == o.html {
		return usagef("--json and --html both go to %s", o.json)
	}
	return nil
}

func (o *reportFlags) write(stdout io.Writer, r *simulate.Report) error {
	if o.json != "-" && o.html != "-" {
		if err := r.WriteText(stdout); err != nil {
			return err
		}
	}
	return errors.Join(writeReport(o.json, stdout, r.WriteJSON), writeReport(o.html, stdout, r.WriteHTML))
}

// writeReport writes to a file, to - or, without a name, nowhere. Files too have no
// control characters, for they are looked at in terminals.
func writeReport(name string, stdout io.Writer, write func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case "-":
		return write(stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := errors.Join(write(&printable{Writer: f}), f.Close()); err != nil {
		return fmt.Errorf("writing the report to %s: %w", name, err)
	}
	return nil
}
