// Command bench measures what a decision of Weir costs, beside its peers, under
// the same load in one run.
//
//	bench matrix     starts everything by itself, and writes the tables of docs/performance.md
//	bench drive      drives servers that run already
//	bench report     writes the page and the chart again from the results of a run
//	bench micro      Go benchmarks, of this tree or of two revisions in turn
//	bench profile    the CPU profile of Weir under load, for the compiler
//	bench soak       runs Weir for an hour under a mixed load, and judges whether anything grows
//
// Exit codes: 0 done, 1 it failed, 2 wrong use.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `usage: bench COMMAND [flags]

  matrix   measures Weir and its peers, and writes docs/performance.md's tables
  drive    drives servers that run already
  report   writes the page and the chart again from a run's results
  micro    Go benchmarks, compared with a base revision if one is given
  profile  writes the profile that the compiler reads, cmd/weir/default.pgo
  soak     runs Weir for an hour under a mixed load, and judges whether anything grows

bench COMMAND -h lists the flags.
`

// errUsage is wrong use, of which the flag package has already told.
var errUsage = errors.New("wrong use")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"matrix": runMatrix, "drive": runDrive, "report": runReport, "micro": runMicro, "profile": runProfile, "soak": runSoak,
	}
	var command func(context.Context, []string, io.Writer, io.Writer) error
	if len(args) > 0 {
		command = commands[args[0]]
	}
	if command == nil {
		if len(args) > 0 {
			fmt.Fprintf(stderr, "bench: there is no command %q\n", args[0])
		}
		fmt.Fprint(stderr, usage)
		return 2
	}
	err := command(ctx, args[1:], stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		if err != errUsage { //nolint:errorlint // the bare one has been told
			fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
		}
		return 2
	default:
		fmt.Fprintf(stderr, "bench %s: %v\n", args[0], err)
		return 1
	}
}

// parse parses flags; there are no other arguments.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: what is %q?", errUsage, flags.Arg(0))
	}
	return nil
}
