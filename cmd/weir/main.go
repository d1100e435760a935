// Command weir decides whether requests may pass: it serves Envoy's
// RateLimitService, and has the tools to write, check and try its rules.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	_ "time/tzdata" // time zones of rules, also in an image without them

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, ratelimitArgs(os.Args), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitWrongUse = 2
)

// usageError is a wrong use of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = &printable{Writer: stdout}, &printable{Writer: stderr}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "weir:", err)
	if wrong := new(usageError); errors.As(err, wrong) {
		fmt.Fprintf(stderr, "See '%s -h'.\n", cmd.CommandPath())
		return exitWrongUse
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := newGroup("weir", "weir decides whether requests may pass: a rate limit service for Envoy and any gRPC client",
		`weir decides whether requests may pass: a rate limit service for Envoy and any
gRPC client.

Each flag can also be set by the environment: --grpc-addr is WEIR_GRPC_ADDR (a
flag wins; values of a repeatable flag are separated by commas). Exit codes: 0 done, 1 it failed, 2 wrong use.`)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd.Flags()) }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(newHelp())
	root.AddCommand(newServe(), newCheck(), newDecide(), newExplain(), newTest(), newSimulate(), newReset(), newTop(), newShadow(), newRules(), newWorker(), newQueue(), newVersion())
	return root
}

// newGroup is a command that only has commands.
func newGroup(use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			_ = cmd.Help()
			return usagef("no command")
		},
	}
}

// newHelp is cobra's, but that an unknown command is a wrong use.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "print help for a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q", strings.Join(args, " "))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// fromEnvironment sets flags that were not given from WEIR_FLAG_NAME.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "WEIR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || err != nil || f.Name == "help" {
			return
		}
		set := func() error { return flags.Set(f.Name, value) }
		if list, ok := f.Value.(pflag.SliceValue); ok { // a repeatable flag
			set = func() error { return list.Replace(splitList(value)) }
		}
		if e := set(); e != nil {
			err = usagef("environment %s: %w", name, e)
		}
	})
	return err
}

// laterHost is a host after the first one in a URL, and what follows it.
var laterHost = regexp.MustCompile(`^[^/]+:\d+(/|$)`)

// splitList splits at commas, but those between the hosts of an etcd URL.
func splitList(value string) []string {
	var list []string
	for _, part := range strings.Split(value, ",") {
		if last := len(list) - 1; last >= 0 && laterHost.MatchString(part) {
			if _, hosts, ok := strings.Cut(list[last], "://"); ok && strings.HasPrefix(list[last], "etcd") && !strings.Contains(hosts, "/") {
				list[last] += "," + part
				continue
			}
		}
		list = append(list, part)
	}
	return list
}

// atLeast is cobra.MinimumNArgs as a wrong use.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef("want %s", what)
		}
		return nil
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// choice is a flag that takes one of a few words.
type choice struct {
	allowed []string
	value   string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	for _, a := range c.allowed {
		if a == s {
			c.value = s
			return nil
		}
	}
	return fmt.Errorf("allowed: %s", strings.Join(c.allowed, ", "))
}
