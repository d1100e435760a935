package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for a terminal. Names in it are those of logs and rules:
// the writer keeps control characters from it.
func (r *Report) WriteText(w io.Writer) error {
	b := new(strings.Builder)
	for _, line := range r.About {
		fmt.Fprintln(b, line)
	}
	for _, line := range r.Warnings {
		fmt.Fprintln(b, "warning:", line)
	}
	if r.PerSecond != nil && r.Requests > 0 {
		fmt.Fprintf(b, "%s; %s\n", r.span(), r.peaks())
	}
	if len(r.Sets) > 1 {
		r.writeSets(b)
	}
	for i := range r.Sets {
		r.writeSet(b, &r.Sets[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// span is the time that requests came in.
func (r *Report) span() string {
	return fmt.Sprintf("%d requests, %s to %s UTC", r.Requests, clock(r.From), clock(r.To))
}

func (r *Report) peaks() string {
	seconds := max(1, r.To.Sub(r.From).Seconds())
	return fmt.Sprintf("%s a second on average, at most %d in a second (%s) and %d in a minute (%s)",
		strconv.FormatFloat(float64(r.Requests)/seconds, 'f', 1, 64), r.PerSecond.Requests, clock(r.PerSecond.At), r.PerMinute.Requests, clock(r.PerMinute.At))
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// percent writes a share: what is over 0 is never written as 0.
func percent(share float64) string {
	switch p := 100 * share; {
	case share == 0:
		return "0%"
	case p < 0.001:
		return "<0.001%"
	case p < 1:
		return strconv.FormatFloat(p, 'f', 3, 64) + "%"
	default:
		return strconv.FormatFloat(p, 'f', 2, 64) + "%"
	}
}

func table(b *strings.Builder, header string, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, header)
	rows(func(cells ...any) {
		words := make([]string, len(cells))
		for i, c := range cells {
			words[i] = cell(fmt.Sprint(c))
		}
		fmt.Fprintln(t, strings.Join(words, "\t"))
	})
	_ = t.Flush() // into memory
}

// cell is text that keeps to its place in a table.
func cell(text string) string { return strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(text) }

func (r *Report) writeSets(b *strings.Builder) {
	b.WriteString("\n")
	table(b, "RULES\tMET A LIMIT\tREFUSED\tSHARE\tIN SHADOW\tHELD", func(row func(...any)) {
		for i := range r.Sets {
			s := &r.Sets[i]
			row(s.Name, s.Matched, s.Refused, percent(s.Share), s.Shadow, s.Held)
		}
	})
}

func (r *Report) writeSet(b *strings.Builder, s *SetReport) {
	fmt.Fprintf(b, "\n== %s\n%s\n", cell(s.Name), s.Summary(r))
	if len(s.Rules) == 0 {
		return
	}
	b.WriteString("\n")
	live := r.PerSecond == nil
	header := "RULE\tMODE\tASKED\tREFUSED\tSHARE\tCOUNTERS\tOF THEM REFUSED"
	if live {
		header = "RULE\tMODE\tASKED\tWOULD BE REFUSED\tSHARE\tSINCE"
	}
	table(b, header, func(row func(...any)) {
		for i := range s.Rules {
			x := &s.Rules[i]
			if live {
				row(s.label(x), x.Mode, x.Asked, x.Refused, percent(x.Share), since(x.Since))
			} else {
				row(s.label(x), x.Mode, x.Asked, x.Refused, percent(x.Share), x.Counters, x.CountersRefused)
			}
		}
	})
	for i := range s.Rules {
		s.Rules[i].write(b, r, s)
	}
	if s.Suggestion != "" {
		fmt.Fprintf(b, "\nRules to begin with:\n\n%s", s.Suggestion)
	}
}

func since(t *time.Time) string {
	if t == nil {
		return "not met"
	}
	return clock(*t)
}

// Summary says in a line what the set comes to.
func (s *SetReport) Summary(r *Report) string {
	if r.PerSecond == nil {
		return fmt.Sprintf("%d decisions would have been refusals", s.Shadow)
	}
	if s.Suggestion != "" {
		return fmt.Sprintf("no rules were given (--rules): what limits for each address could be, if each were to refuse %s of the requests at most", percent(r.AtMost))
	}
	text := fmt.Sprintf("%d of %d requests would be refused (%s); %d met a limit", s.Refused, r.Requests, percent(s.Share), s.Matched)
	if s.Shadow > 0 {
		text += fmt.Sprintf("; %d more met a refusal in shadow", s.Shadow)
	}
	if s.Held > 0 {
		text += fmt.Sprintf("; %d would be held, %s at most", s.Held, seconds(s.LongestHeld))
	}
	if s.Unmet > 0 {
		text += fmt.Sprintf("; no request met %d of the rules", s.Unmet)
	}
	return text
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// label is the rule's name, with its domain where there are several.
func (s *SetReport) label(x *RuleReport) string {
	for i := range s.Rules {
		if s.Rules[i].Domain != x.Domain {
			return x.Domain + ": " + x.Rule
		}
	}
	return x.Rule
}

func (x *RuleReport) write(b *strings.Builder, r *Report, s *SetReport) {
	live := r.PerSecond == nil
	if live && len(x.MostRefused) == 0 {
		return
	}
	fmt.Fprintf(b, "\n-- %s (%s)\n", cell(s.label(x)), cell(x.Place))
	if len(x.MostRefused) > 0 {
		x.writeRefused(b, live)
	}
	if len(x.Busiest) > 0 {
		table(b, "BUSIEST\tREQUESTS\tREFUSED\tMOST IN A SECOND\tIN A MINUTE", func(row func(...any)) {
			for _, c := range x.Busiest {
				row(c.Name, c.Asked, c.Refused, c.PerSecond, c.PerMinute)
			}
		})
	}
	for i := range x.Limits {
		x.Limits[i].write(b, r)
	}
}

func (x *RuleReport) writeRefused(b *strings.Builder, live bool) {
	header := "REFUSED MOST\tREFUSED\tOF ITS REQUESTS\tSHARE"
	if live {
		header = "WOULD BE REFUSED MOST\tAT LEAST"
	}
	table(b, header, func(row func(...any)) {
		for _, c := range x.MostRefused {
			switch {
			case !live:
				row(c.Name, c.Refused, c.Asked, percent(c.Share))
			case c.AtMost > c.Refused:
				row(c.Name, fmt.Sprintf("%d +%d", c.Refused, c.AtMost-c.Refused))
			default:
				row(c.Name, c.Refused)
			}
		}
	})
}

func (l *LimitReport) write(b *strings.Builder, r *Report) {
	if len(l.Algorithms) == 0 {
		return
	}
	fmt.Fprintf(b, "limit %s: ", cell(l.Limit))
	switch t := l.Tightest; {
	case t == nil:
		b.WriteString("\n")
	case t.Requests == 0:
		fmt.Fprintf(b, "none refuses %s at most: %s\n", percent(r.AtMost), t.None)
	default:
		fmt.Fprintf(b, "alone, %s refuses %s at most (%s)\n", cell(t.Limit), percent(r.AtMost), percent(t.Share))
	}
	table(b, "  ALGORITHM, ALONE\tREFUSED\tSHARE\tCOUNTERS\tHELD\tLONGEST", func(row func(...any)) {
		for i := range l.Algorithms {
			a := &l.Algorithms[i]
			name := "  " + a.Algorithm
			if a.Own {
				name += " *"
			}
			if a.Impossible != "" {
				row(name, a.Impossible)
				continue
			}
			row(name, a.Refused, percent(a.Share), a.Counters, a.Held, seconds(a.LongestHeld))
		}
	})
}
