package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"weir/rules/kv"
)

func newRulesRollback(t *target) *cobra.Command {
	p := pushFlags{target: t}
	cmd := &cobra.Command{
		Use:   "rollback [VERSION]",
		Short: "push an earlier version once more",
		Long: `Put an earlier version into force, as a new one: nothing is lost, and a rollback can
be rolled back. Without a version it is the one before that in force; the newest one, if the prefix was emptied.`,
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
		if version.Message != "" && !strings.HasPrefix(version.Message, "rollback to version ") {
			p.message += ": " + version.Message
		}
	}
	_, err = p.push(ctx, repo, state, diff, out)
	return err
}

// before is the version before the one in force; that one itself if keys were
// changed since by other means, and the newest one if none is in force, because
// the prefix was emptied.
func before(ctx context.Context, repo *repository, state *kv.State) (uint64, error) {
	if state.ByHand && state.Version > 0 {
		return state.Version, nil
	}
	versions, err := repo.Log(ctx)
	if err != nil {
		return 0, err
	}
	for _, v := range versions {
		if v.Number < state.Version || state.Version == 0 {
			return v.Number, nil
		}
	}
	return 0, errors.New("there is no earlier version in the history")
}

// versionName names the documents of a version in faults and differences.
func versionName(number uint64) func(string) string {
	return func(name string) string { return fmt.Sprintf("version %d: %s", number, name) }
}
