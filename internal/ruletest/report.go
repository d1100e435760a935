package ruletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"weir/rules"
)

// Options say what is played, and how.
type Options struct {
	Configure Configure
	Run       *regexp.Regexp // only tests whose name it fits; nil: all
}

// Report is what came of a file's tests.
type Report struct {
	Path    string
	Err     error // why the file could not be played
	Results []*Result
}

// Run plays the tests of a file.
func Run(ctx context.Context, path string, o Options) Report {
	report := Report{Path: path}
	f, err := Read(path, o.Configure)
	if err != nil {
		report.Err = err
		return report
	}
	for _, t := range f.Tests {
		if o.Run != nil && !o.Run.MatchString(t.Name) {
			continue
		}
		result, err := Play(ctx, t, o.Configure)
		if err != nil {
			report.Err = fmt.Errorf("%s:%d: %s: %w", path, t.Line, t.Name, err)
			return report
		}
		report.Results = append(report.Results, result)
	}
	return report
}

// Counts are how many tests passed and so on.
type Counts struct{ Passed, Failed, Unplayed, Unread int }

// Add counts what a report says.
func (c *Counts) Add(r *Report) {
	if r.Err != nil {
		c.Unread++
	}
	for _, result := range r.Results {
		switch {
		case result.Unplayed != "":
			c.Unplayed++
		case result.Failed():
			c.Failed++
		default:
			c.Passed++
		}
	}
}

// Write writes a report for a terminal. A verbose one has all steps.
func (r *Report) Write(w io.Writer, verbose bool) {
	for _, result := range r.Results {
		name := r.Path + ": " + result.Test.Name
		switch {
		case result.Unplayed != "":
			fmt.Fprintf(w, "skip  %s\n      not played: %s\n", name, result.Unplayed)
		case result.Failed():
			fmt.Fprintf(w, "FAIL  %s\n", name)
		default:
			fmt.Fprintf(w, "ok    %s\n", name)
		}
		fmt.Fprint(w, indented("      ", stepsText(r.Path, result, verbose)))
	}
	if r.Err != nil {
		fmt.Fprintf(w, "FAIL  %s\n%s", r.Path, indented("      ", faultsText(r.Err)))
	}
}

// faultsText is a fault a line.
func faultsText(err error) string {
	var faults rules.Faults
	if !errors.As(err, &faults) {
		return err.Error() + "\n"
	}
	var text strings.Builder
	for _, f := range faults {
		text.WriteString(f.Error() + "\n")
	}
	return text.String()
}

// mostSteps is how many steps of a test are told that came otherwise: most of them
// follow from the first.
const mostSteps = 10

// stepsText tells of the steps that came otherwise, or of all.
func stepsText(path string, result *Result, all bool) string {
	var text strings.Builder
	told, untold := 0, 0
	for i := range result.Steps {
		s := &result.Steps[i]
		switch failed := len(s.Differs) > 0; {
		case failed && told >= mostSteps && !all:
			untold++
		case failed:
			told++
			text.WriteString(s.text(path))
		case all:
			text.WriteString(s.text(path))
		}
	}
	if untold > 0 {
		fmt.Fprintf(&text, "and %d more steps, which may follow from these\n", untold)
	}
	return text.String()
}

// text is a step: when and what, what differs, and who decided.
func (s *Outcome) text(path string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s:%d: at %s (%v): %s\n", path, s.Line, timeText(s.At), s.Elapsed, s.Did)
	for _, d := range s.Differs {
		fmt.Fprintf(&text, "  %s\n", d)
	}
	switch {
	case s.Shown != nil:
		text.WriteString(indented("  ", s.decision()))
	case s.Message != "" && len(s.Differs) == 0:
		fmt.Fprintf(&text, "  %s\n", s.Message)
	}
	for _, hint := range s.Hints {
		fmt.Fprintf(&text, "  %s\n", hint)
	}
	return text.String()
}

// decision tells who decided the answer that was compared.
func (s *Outcome) decision() string {
	var text strings.Builder
	verdict, by := "passes", "; its headers tell of"
	if s.Shown.Deciding < 0 {
		by = " by"
	}
	if s.Shown.Response.OverallCode.String() == "OVER_LIMIT" {
		verdict, by = "is refused", " by"
	}
	if n := len(s.Answers); n == 1 {
		fmt.Fprintf(&text, "the request %s", verdict)
	} else {
		fmt.Fprintf(&text, "%s; request %d of %d %s", briefAnswers(s.Answers), s.ShownNo, n, verdict)
	}
	switch rule := s.Shown.Rule; {
	case rule == "":
		text.WriteString(": no rule matches")
	case s.Shown.Place == "":
		fmt.Fprintf(&text, "%s a limit of its own", by)
	default:
		fmt.Fprintf(&text, "%s rule %s (%s)", by, rule, s.Shown.Place)
	}
	if s.Shown.Delay > 0 {
		fmt.Fprintf(&text, ", held for %v", s.Shown.Delay)
	}
	text.WriteByte('\n')
	for _, d := range s.Shown.Decisions {
		fmt.Fprintf(&text, "  %s\n", d.Describe())
	}
	return text.String()
}

// briefAnswers are the letters of few answers, and of many how many there are of
// each.
func briefAnswers(answers string) string {
	const few = 40
	if len(answers) <= few {
		return answers
	}
	text := fmt.Sprintf("%d passed, %d were refused", strings.Count(answers, "A"), strings.Count(answers, "D"))
	if n := strings.Count(answers, "E"); n > 0 {
		text += fmt.Sprintf(", %d were errors", n)
	}
	return text
}

func indented(by, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}
