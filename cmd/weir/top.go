package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	weirv1 "weir/api/weir/v1"
)

func newTop() *cobra.Command {
	var o operatorFlags
	var domain string
	var n uint32
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "list who is refused most often",
		Long: `List the counters that a server refused most often in the last five to ten
minutes. AT LEAST so many requests were refused; where + follows, up to so many
more. It is for operators, as weir reset is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return usagef("--interval %v: it is 100ms at least", interval)
			}
			return o.with(cmd.Context(), func(ctx context.Context, client weirv1.WeirServiceClient) error {
				for {
					if err := topOnce(ctx, cmd.OutOrStdout(), client, o.timeout, &weirv1.TopRequest{Domain: domain, Limit: n}); err != nil || !watch {
						return err
					}
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(interval):
					}
				}
			})
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&domain, "domain", "", "of this domain only")
	cmd.Flags().Uint32VarP(&n, "number", "n", 10, "how many, 100 at most")
	cmd.Flags().BoolVar(&watch, "watch", false, "again and again, until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "with --watch: how often")
	return cmd
}

func topOnce(ctx context.Context, out io.Writer, client weirv1.WeirServiceClient, timeout time.Duration, req *weirv1.TopRequest) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := client.Top(ctx, req)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "refused since %s\n", resp.Since.AsTime().Local().Format(time.TimeOnly))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AT LEAST\tLAST\tDOMAIN\tRULE\tDESCRIPTOR")
	for _, c := range resp.Counters {
		refused := fmt.Sprint(c.Refused)
		if c.Error > 0 {
			refused += fmt.Sprintf(" +%d", c.Error)
		}
		rule := c.Rule
		if rule == "" {
			rule = "(a limit of the request)"
		}
		var words []string
		for _, e := range c.Entries {
			words = append(words, e.GetKey()+"="+e.Text())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", refused, c.LastRefusedAt.AsTime().Local().Format(time.TimeOnly),
			cell(c.Domain), cell(rule), cell(strings.Join(words, " ")))
	}
	return w.Flush()
}

// cell is text that keeps to its place in a table.
func cell(text string) string { return strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(text) }
