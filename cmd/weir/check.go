package main

import (
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"weir/rules"
	"weir/rules/file"
)

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE…",
		Short: "parse and compile rule files, and name every fault",
		Long: `Parse and compile rule files, or folders of them, as one rule set. Each fault is
printed as file:line:col, all at once, and the exit code is 1. Warnings name what
is sound but hardly meant.`,
		Args: atLeast(1, "a rule file or a folder of them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := compileFiles(args)
			if faults := (rules.Faults)(nil); errors.As(err, &faults) {
				for _, f := range faults {
					fmt.Fprintln(cmd.OutOrStdout(), f)
				}
				return fmt.Errorf("%d faults in the rules", len(faults))
			}
			if err != nil {
				return err
			}
			for _, w := range set.Warnings() {
				fmt.Fprintf(cmd.OutOrStdout(), "%v (warning)\n", w)
			}
			domains, n := set.Size()
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s in %s: no faults\n", count(n, "rule"), count(domains, "domain"))
			return err
		},
	}
}

// compileFiles makes one rule set of files and folders.
func compileFiles(paths []string) (*rules.Set, error) {
	files := map[string][]byte{}
	for _, p := range paths {
		read, err := file.Read(p)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, read)
	}
	return rules.Compile(rules.ParseSnapshot(files).Documents...)
}

// count says how many things there are.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
