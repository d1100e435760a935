package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/rules/kv"
)

func newRulesLog(t *target) *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "log",
		Short: "list the versions, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 0 {
				return usagef("--number %d: it is 0 at least", most)
			}
			repo, ctx, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			state, err := repo.State(ctx)
			if err != nil {
				return err
			}
			versions, err := repo.Log(ctx)
			if err != nil {
				return err
			}
			if len(versions) == 0 {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s has no history: %s\n", repo.url, stateText(state))
				return err
			}
			if most > 0 && len(versions) > most {
				versions = versions[:most]
			}
			return printLog(cmd.OutOrStdout(), state, versions)
		},
	}
	cmd.Flags().IntVarP(&most, "number", "n", 20, "how many, at most (0: all)")
	return cmd
}

func printLog(out io.Writer, state *kv.State, versions []kv.Version) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERSION\tWHEN\tWHO\tDOCUMENTS\tDIGEST\tMESSAGE")
	for _, v := range versions {
		number := strconv.FormatUint(v.Number, 10)
		switch {
		case v.Number == state.Version && !state.ByHand:
			number += " *"
		case state.Push != nil && v.Number == state.Push.Version:
			number += " (under way)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", number, v.At.UTC().Format(time.RFC3339), oneLine(v.By), len(v.Files), oneLine(v.Digest), oneLine(v.Message))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if state.ByHand {
		fmt.Fprintf(out, "in force is %s\n", stateText(state))
	}
	return nil
}

// oneLine keeps what people wrote from breaking the table.
func oneLine(text string) string {
	quoted := strconv.Quote(text)
	if quoted == `"`+text+`"` {
		return text
	}
	return quoted
}
