package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"weir/rules"
)

func newRulesDiff(t *target) *cobra.Command {
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
	local, err := readLocal(paths, "")
	if err != nil {
		return nil, err
	}
	files, name := local.onto(state.Files, repo.named)
	return compare(was, files, wasName, name)
}

// compared is one state of the rules beside another.
type compared struct {
	from, to   map[string][]byte // by name beneath the prefix
	fromFaults error             // why what stands there does not load; nil: it does
	changes    []rules.Change    // of the rules; unknown with fromFaults
}

// same tells whether there is no difference at all.
func (c *compared) same() bool { return len(c.files()) == 0 }

// compare compiles both sides, each with the names that its faults are to have.
// An error is of the new side, which would not load.
func compare(from, to map[string][]byte, fromName, toName func(string) string) (*compared, error) {
	c := &compared{from: from, to: to}
	after, err := compile(renamed(to, toName))
	if err != nil {
		return nil, err
	}
	before, faults := compile(renamed(from, fromName))
	if c.fromFaults = faults; faults == nil {
		c.changes = rules.Diff(before, after)
	}
	return c, nil
}

func renamed(files map[string][]byte, name func(string) string) map[string][]byte {
	named := make(map[string][]byte, len(files))
	for n, value := range files {
		named[name(n)] = value
	}
	return named
}

// files are the documents that differ, a line each.
func (c *compared) files() []string {
	var lines []string
	for _, name := range sortedNames(c.from, c.to) {
		was, before := c.from[name]
		is, after := c.to[name]
		switch {
		case !before:
			lines = append(lines, "+ "+name)
		case !after:
			lines = append(lines, "- "+name)
		case string(was) != string(is):
			lines = append(lines, "~ "+name)
		}
	}
	return lines
}

// print shows the difference, in documents and in rules.
func (c *compared) print(w io.Writer) {
	fmt.Fprintln(w, "documents:")
	for _, line := range c.files() {
		fmt.Fprintln(w, "  "+line)
	}
	switch {
	case c.fromFaults != nil:
		fmt.Fprintf(w, "rules: what stands there now does not load, so they are not compared:\n%s\n", indent(c.fromFaults.Error()))
	case len(c.changes) == 0:
		fmt.Fprintln(w, "rules: no difference (comments, spelling or order of files)")
	default:
		fmt.Fprintln(w, "rules:")
		for _, change := range c.changes {
			fmt.Fprint(w, indent(change.String())+"\n")
		}
	}
}

// summary counts the changes.
func (c *compared) summary() string {
	if c.fromFaults != nil {
		return "rules not compared"
	}
	var added, removed, changed int
	for _, change := range c.changes {
		switch {
		case change.Path != "" && change.From == nil:
			added++
		case change.Path != "" && change.To == nil:
			removed++
		default:
			changed++
		}
	}
	return fmt.Sprintf("%s added, %d changed, %d removed", count(added, "rule"), changed, removed)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
}
