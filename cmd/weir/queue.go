package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"weir/queue"
)

func newQueue() *cobra.Command {
	cmd := newGroup("queue", "look into queues, retry what was given up, drop requests, remove queues",
		`The queues of rules with over_limit: queue, as operators need them. A queue is
named DOMAIN/RULE, or by the hash that ls prints.`)
	var t queueTarget
	t.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(newQueueLs(&t), newQueuePeek(&t), newQueueRetry(&t), newQueueDrop(&t), newQueueRm(&t))
	return cmd
}

// queueTimeout bounds a command's work.
const queueTimeout = time.Minute

// with opens the queues for a command.
func (t *queueTarget) with(ctx context.Context, do func(context.Context, *queue.Queues) error) error {
	goredis.SetLogger(&logging.VoidLogger{}) // what goes wrong is the command's error
	queues, err := t.open()
	if err != nil {
		return err
	}
	defer queues.Close()
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	return do(ctx, queues)
}

// withQueue opens the queue of that name.
func (t *queueTarget) withQueue(ctx context.Context, name string, do func(context.Context, *queue.Queues, *queue.About) error) error {
	return t.with(ctx, func(ctx context.Context, queues *queue.Queues) error {
		about, err := queues.Lookup(ctx, name)
		if err != nil {
			return err
		}
		return do(ctx, queues, about)
	})
}

func newQueueLs(t *queueTarget) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "list the queues: how many wait, were given up, since when",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, queues *queue.Queues) error {
				all, err := queues.Overviews(ctx)
				if err != nil {
					return err
				}
				return printQueues(cmd.OutOrStdout(), all)
			})
		},
	}
}

func printQueues(out io.Writer, all []queue.Overview) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "QUEUE\tWAITING\tOF\tRATE\tOLDEST\tGIVEN UP\tWORKER\tRULE\tHASH")
	for _, o := range all {
		oldest, worker, rule := "-", "none", "gone"
		if !o.Oldest.IsZero() {
			oldest = time.Since(o.Oldest).Round(time.Second).String()
		}
		if o.Worked {
			worker = "yes"
		}
		if o.Ruled {
			rule = "in force"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d per %v\t%s\t%d\t%s\t%s\t%s\n", o.Name(), o.Waiting, o.Limit.Queue, o.Limit.Requests, o.Limit.Window.Length, oldest, o.Failed, worker, rule, o.Hash)
	}
	return w.Flush()
}

func newQueuePeek(t *queueTarget) *cobra.Command {
	var failed bool
	var n int64
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "show the first requests of a queue, without their bodies",
		Args:  exactly(1, "a queue: DOMAIN/RULE, as weir queue ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 {
				return usagef("-n %d: it is 1 at least", n)
			}
			return t.withQueue(cmd.Context(), args[0], func(ctx context.Context, queues *queue.Queues, about *queue.About) error {
				entries, err := queues.Peek(ctx, about, failed, n)
				for _, e := range entries {
					printEntry(cmd.OutOrStdout(), e)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&failed, "failed", false, "those that were given up")
	cmd.Flags().Int64VarP(&n, "number", "n", 10, "how many")
	return cmd
}

func printEntry(w io.Writer, e *queue.Entry) {
	what := "unreadable"
	if r := e.Request; r != nil {
		what = fmt.Sprintf("%s %s%s, %d bytes", r.Method, r.Authority, r.Path, len(r.Body))
	}
	fmt.Fprintf(w, "%s  %s  %s\n", e.ID, e.Since().Format(time.RFC3339), what)
	if e.Why != "" {
		fmt.Fprintf(w, "  given up: %s\n", e.Why)
	}
}

func newQueueRetry(t *queueTarget) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "retry QUEUE ID… | --all",
		Short: "put requests that were given up behind those that wait",
		Args:  atLeast(1, "a queue: DOMAIN/RULE, as weir queue ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := idsOrAll(args[1:], all); err != nil {
				return err
			}
			return t.withQueue(cmd.Context(), args[0], func(ctx context.Context, queues *queue.Queues, about *queue.About) error {
				n, err := queues.Retry(ctx, about, args[1:])
				fmt.Fprintf(cmd.OutOrStdout(), "%s put back\n", count(n, "request"))
				return found(err, n, args[1:])
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that were given up")
	return cmd
}

func newQueueDrop(t *queueTarget) *cobra.Command {
	var all, failed bool
	cmd := &cobra.Command{
		Use:   "drop QUEUE ID… | --all",
		Short: "take requests out of a queue for good",
		Args:  atLeast(1, "a queue: DOMAIN/RULE, as weir queue ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := idsOrAll(args[1:], all); err != nil {
				return err
			}
			return t.withQueue(cmd.Context(), args[0], func(ctx context.Context, queues *queue.Queues, about *queue.About) error {
				n, err := queues.Drop(ctx, about, failed, args[1:])
				fmt.Fprintf(cmd.OutOrStdout(), "%s dropped\n", count(n, "request"))
				return found(err, n, args[1:])
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that wait")
	cmd.Flags().BoolVar(&failed, "failed", false, "of those that were given up, not of those that wait")
	return cmd
}

func newQueueRm(t *queueTarget) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm QUEUE",
		Short: "remove a queue whose rule is gone, and which is empty",
		Long: `Remove a queue that is empty and whose rule is gone, so that workers do not look
after it any more. A queue stays whose rule is in force at any weir serve on this
Redis, also with --force: it would be announced again. A rule counts as in force
for a minute and a half after a server last had it.`,
		Args: exactly(1, "a queue: DOMAIN/RULE, as weir queue ls lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.withQueue(cmd.Context(), args[0], func(ctx context.Context, queues *queue.Queues, about *queue.About) error {
				return removeQueue(ctx, cmd.OutOrStdout(), queues, about, force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "drop who waits in it, and who was given up, before")
	return cmd
}

func removeQueue(ctx context.Context, out io.Writer, queues *queue.Queues, about *queue.About, force bool) error {
	err := queues.Remove(ctx, about) // first: what stays is not emptied
	if errors.Is(err, queue.ErrNotEmpty) && !force {
		return fmt.Errorf("%w; --force drops them", err)
	}
	if errors.Is(err, queue.ErrNotEmpty) {
		var dropped int
		for _, failed := range []bool{false, true} {
			n, err := queues.Drop(ctx, about, failed, nil)
			dropped += n
			if err != nil {
				return fmt.Errorf("emptying the queue, of which %s are dropped: %w", count(dropped, "request"), err)
			}
		}
		fmt.Fprintf(out, "%s dropped\n", count(dropped, "request"))
		err = queues.Remove(ctx, about)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s removed\n", about.Name())
	return nil
}

// idsOrAll keeps a command from doing to all what was meant for one.
func idsOrAll(ids []string, all bool) error {
	if all == (len(ids) > 0) {
		return usagef("give IDs, as weir queue peek prints them, or --all")
	}
	return nil
}

// found makes an error of IDs that are not there.
func found(err error, n int, ids []string) error {
	if err == nil && n < len(ids) {
		return fmt.Errorf("of %d IDs %d are not there; they may be done", len(ids), len(ids)-n)
	}
	return err
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("want %s", what)
		}
		return nil
	}
}
