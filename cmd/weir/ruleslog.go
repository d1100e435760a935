package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"weir/rules/kv"
)

func newRulesLog() *cobra.Command {
	var t target
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
	t.addFlags(cmd.Flags())
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", number, v.At.UTC().Format(time.RFC3339), oneLine(v.By), len(v.Files), v.Digest, oneLine(v.Message))
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

func newRulesRollback() *cobra.Command {
	var p pushFlags
	cmd := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "push an earlier version once more",
		Long: `Put an earlier version into force, as a new one: nothing is lost, and a rollback can
be rolled back. Without a version it is the one before that in force.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one version, or none")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			number := uint64(0)
			if len(args) == 1 {
				var err error
				if number, err = strconv.ParseUint(args[0], 10, 64); err != nil || number == 0 {
					return usagef("version %q: it is a number, as `weir rules log` lists them", args[0])
				}
			}
			repo, ctx, err := p.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			return p.rollback(ctx, repo, number, cmd.OutOrStdout())
		},
	}
	p.addFlags(cmd)
	return cmd
}

func (p *pushFlags) rollback(ctx context.Context, repo *repository, number uint64, out io.Writer) error {
	state, err := repo.State(ctx)
	if err != nil {
		return err
	}
	if err := refusePushing(state); err != nil {
		return err
	}
	if number == 0 {
		if number, err = before(ctx, repo, state); err != nil {
			return err
		}
	}
	version, files, err := repo.Version(ctx, number)
	if err != nil {
		return err
	}
	diff, err := compare(state.Files, files, repo.named, versionName(number))
	if err != nil {
		return printFaults(out, err, fmt.Sprintf("version %d would not load, nothing was changed", number))
	}
	if p.message == "" {
		p.message = fmt.Sprintf("rollback to version %d", number)
		if version.Message != "" {
			p.message += ": " + version.Message
		}
	}
	_, err = p.push(ctx, repo, state, diff, out)
	return err
}

// before is the version before the one in force; that one itself if keys were
// changed since by other means.
func before(ctx context.Context, repo *repository, state *kv.State) (uint64, error) {
	if state.ByHand && state.Version > 0 {
		return state.Version, nil
	}
	versions, err := repo.Log(ctx)
	if err != nil {
		return 0, err
	}
	for _, v := range versions {
		if v.Number < state.Version {
			return v.Number, nil
		}
	}
	return 0, errors.New("there is no earlier version in the history")
}

// versionName names the documents of a version in faults and differences.
func versionName(number uint64) func(string) string {
	return func(name string) string { return fmt.Sprintf("version %d: %s", number, name) }
}

func newRulesDiff() *cobra.Command {
	var t target
	var from, to uint64
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "diff [PATH…]",
		Short: "show what a push would change, or what differs between versions",
		Long: `Show what pushing the paths would change: documents, and what that means for rules and
limits. With --from and --to, two versions are compared instead; what is left out is
what is in force.`,
		Example: `weir rules diff rules/
weir rules diff --from 6 --to 7
weir rules diff --from 6`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && to > 0 {
				return usagef("--to and paths exclude each other")
			}
			if len(args) == 0 && from == 0 && to == 0 {
				return usagef("want a folder of rules, rule files, or --from and --to")
			}
			repo, ctx, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			diff, err := compareSides(ctx, repo, args, from, to)
			if err != nil {
				return printFaults(cmd.OutOrStdout(), err, "they would not load")
			}
			if diff.same() {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "no difference")
				return err
			}
			diff.print(cmd.OutOrStdout())
			fmt.Fprintln(cmd.OutOrStdout(), diff.summary())
			if exitCode {
				return errors.New("there are differences")
			}
			return nil
		},
	}
	t.addFlags(cmd.Flags())
	cmd.Flags().Uint64Var(&from, "from", 0, "the version to compare with (0: what is in force)")
	cmd.Flags().Uint64Var(&to, "to", 0, "the version that is compared (0: what is in force)")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 if there are differences")
	return cmd
}

// compareSides compares a version, or what is in force, with another one or with
// local files.
func compareSides(ctx context.Context, repo *repository, paths []string, from, to uint64) (*compared, error) {
	state, err := repo.State(ctx)
	if err != nil {
		return nil, err
	}
	side := func(number uint64) (map[string][]byte, func(string) string, error) {
		if number == 0 {
			return state.Files, repo.named, nil
		}
		_, files, err := repo.Version(ctx, number)
		return files, versionName(number), err
	}
	was, wasName, err := side(from)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		is, isName, err := side(to)
		if err != nil {
			return nil, err
		}
		return compare(was, is, wasName, isName)
	}
	local, err := readLocal(paths)
	if err != nil {
		return nil, err
	}
	files, name := local.onto(state.Files, repo.named)
	return compare(was, files, wasName, name)
}
