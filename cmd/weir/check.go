package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"weir/limiter/redis"
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
			files, unread := readFiles(args)
			set, err := compile(files)
			if faults := (rules.Faults)(nil); errors.As(err, &faults) {
				for _, f := range faults {
					fmt.Fprintln(cmd.OutOrStdout(), f)
				}
				err = fmt.Errorf("%s in the rules", count(len(faults), "fault"))
			}
			if err := errors.Join(unread, err); err != nil {
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
	files, err := readFiles(paths)
	if err != nil {
		return nil, err
	}
	return compile(files)
}

// readFiles reads files and folders. The error is of those that it could not
// read, each on a line.
func readFiles(paths []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	var unread []error
	for _, p := range paths {
		if strings.Contains(p, "://") {
			unread = append(unread, fmt.Errorf("%s: only files and folders are read here; `weir rules pull DIR` writes those of Consul or etcd into one", redis.Redact(p)))
			continue
		}
		read, err := file.Read(p)
		if err != nil {
			unread = append(unread, err)
		}
		maps.Copy(files, read)
	}
	return files, errors.Join(unread...)
}

func compile(files map[string][]byte) (*rules.Set, error) {
	return rules.Compile(rules.ParseSnapshot(files).Documents...)
}

// count says how many things there are.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
