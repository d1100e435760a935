package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "weir/api/weir/v1"
	"weir/internal/simulate"
)

func newShadow() *cobra.Command {
	var o operatorFlags
	var domain string
	var n uint32
	var out reportFlags
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "tell what a server's rules in shadow would have refused so far",
		Long: `Tell what the rules of a running server that are in shadow (shadow_mode: true, or all
with weir serve --shadow) would have refused: how many of the decisions that they were
asked for, since when, and whose most, in the last one or two days. It is of this one
instance. The report is that of weir simulate, of what did happen. It is for operators,
as weir top is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || n > 100 {
				return usagef("--number %d: it is 1 to 100", n)
			}
			if err := out.complete(); err != nil {
				return err
			}
			var report *simulate.Report
			err := o.with(cmd.Context(), func(ctx context.Context, client weirv1.WeirServiceClient) (err error) {
				ctx, cancel := context.WithTimeout(ctx, o.timeout)
				defer cancel()
				report, err = shadowReport(ctx, client, o.addr, domain, n)
				return err
			})
			if err != nil {
				return err
			}
			return out.write(cmd.OutOrStdout(), report)
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&domain, "domain", "", "of this domain only")
	cmd.Flags().Uint32VarP(&n, "number", "n", simulate.DefaultTop, "how many counters to list of all rules, 100 at most")
	out.addFlags(cmd.Flags())
	return cmd
}

// shadowReport asks a server what its rules in shadow would have refused.
func shadowReport(ctx context.Context, client weirv1.WeirServiceClient, addr, domain string, n uint32) (*simulate.Report, error) {
	stats, err := client.Stats(ctx, &weirv1.StatsRequest{})
	if err != nil {
		return nil, err
	}
	listed, err := listShadows(ctx, client, domain, stats.Shadow)
	if err != nil {
		return nil, err
	}
	top, err := client.Top(ctx, &weirv1.TopRequest{Domain: domain, Limit: n, Shadow: true})
	if err != nil {
		return nil, err
	}
	set := simulate.SetReport{Name: addr, Version: stats.GetRules().GetVersion()}
	named := map[[2]string]int{} // places in set.Rules: rules with one name count together
	for _, r := range listed {
		x := shadowRule(r, stats.Shadow)
		name := [2]string{x.Domain, x.Rule}
		if at, twice := named[name]; twice {
			set.Rules[at].Place += ", " + x.Place
			continue
		}
		named[name] = len(set.Rules)
		set.Rules = append(set.Rules, x)
		set.Shadow += x.Refused
		set.Matched += x.Asked
	}
	for _, c := range top.Counters {
		if at, ok := named[[2]string{c.Domain, c.Rule}]; ok {
			set.Rules[at].MostRefused = append(set.Rules[at].MostRefused, shadowCounter(c))
		}
	}
	slices.SortStableFunc(set.Rules, func(a, b simulate.RuleReport) int { return cmp.Compare(b.Refused, a.Refused) })
	return &simulate.Report{
		Title: "weir shadow", About: aboutServer(addr, stats, len(set.Rules), top.Since.AsTime()),
		From: stats.StartedAt.AsTime(), To: stats.At.AsTime(), Requests: set.Matched, Sets: []simulate.SetReport{set},
	}, nil
}

// listShadows lists the rules in shadow, all pages of them.
func listShadows(ctx context.Context, client weirv1.WeirServiceClient, domain string, all bool) (shadows []*weirv1.Rule, err error) {
	req := &weirv1.ListRulesRequest{Domain: domain, PageSize: 1000}
	for {
		page, err := client.ListRules(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Rules {
			if len(r.Limits) > 0 && (r.Shadow || all) {
				shadows = append(shadows, r)
			}
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return shadows, nil
		}
	}
}

// shadowRule is what became of a rule's decisions.
func shadowRule(r *weirv1.Rule, all bool) simulate.RuleReport {
	x := simulate.RuleReport{Domain: r.Domain, Rule: r.Name, Place: r.Place, Mode: simulate.ModeOf(r.Shadow || all, r.Quota)}
	if x.Rule == "" {
		x.Rule = r.Path
	}
	for _, o := range r.Outcomes {
		x.Asked += o.Count
		if o.Outcome == "shadow_over_limit" {
			x.Refused += o.Count
		}
	}
	if x.Asked > 0 {
		x.Share = float64(x.Refused) / float64(x.Asked)
	}
	if r.CountedSince != nil {
		since := r.CountedSince.AsTime()
		x.Since = &since
	}
	return x
}

func shadowCounter(c *weirv1.TopCounter) simulate.CounterReport {
	var words []string
	for _, e := range c.Entries {
		words = append(words, e.GetKey()+"="+e.Text())
	}
	return simulate.CounterReport{Name: strings.Join(words, ", "), Refused: c.Refused, AtMost: c.Refused + c.Error}
}

func aboutServer(addr string, stats *weirv1.StatsResponse, rules int, since time.Time) []string {
	const layout = "2006-01-02 15:04:05"
	about := []string{fmt.Sprintf("%s: weir %s, up since %s UTC", addr, stats.Version, stats.StartedAt.AsTime().Format(layout))}
	if loaded := stats.GetRules().GetLoadedAt(); loaded != nil {
		about[0] += fmt.Sprintf("; rules %s since %s", stats.GetRules().GetVersion(), loaded.AsTime().Format(layout))
	}
	switch {
	case rules == 0:
		about = append(about, "no rule is in shadow: shadow_mode: true on a rule makes it so, or weir serve --shadow all of them")
	case stats.Shadow:
		about = append(about, "the whole server is in shadow: nothing is refused")
	}
	if rules > 0 {
		about = append(about, fmt.Sprintf("who would be refused most: since %s UTC", since.UTC().Format(layout)))
	}
	return about
}
