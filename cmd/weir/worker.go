package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weir/limiter/redis"
	"weir/queue"
	"weir/server/tracing"
)

// workerConfig is what the flags of worker say.
type workerConfig struct {
	at                          queueTarget
	upstream                    string
	timeout, retryMin, retryMax time.Duration
	keep                        time.Duration
	maxDeliveries               int
	logs                        logFlags
}

func newWorker() *cobra.Command {
	var c workerConfig
	cmd := &cobra.Command{
		Use:   "worker --upstream URL --store redis://…",
		Short: "replay queued requests to the upstream, in order and at their rule's rate",
		Long: `Replay what waits in the queues of rules with over_limit: queue, each queue in
order and at its rule's rate. Several workers may run: one empties a queue at a
time, the others stand by. Each request is sent at least once, with an
Idempotency-Key and, in X-Weir-Delivery, how often it was sent. 5xx answers, 408,
425, 429 and broken connections are tried again, and given up after
--max-deliveries; an upstream that cannot be reached is waited for.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

func (c *workerConfig) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.upstream, "upstream", "", "where requests go: http://host:port, with what goes before each path")
	c.at.addFlags(f)
	f.DurationVar(&c.timeout, "timeout", queue.DefaultDeliveryTimeout, "the longest wait for the upstream's answer")
	f.IntVar(&c.maxDeliveries, "max-deliveries", queue.DefaultMaxDeliveries, "how often a request may fail before it is given up (weir queue retry puts it back)")
	f.DurationVar(&c.retryMin, "retry-min", queue.DefaultFirstRetry, "the first wait after a failure; it doubles with each")
	f.DurationVar(&c.retryMax, "retry-max", queue.DefaultLongestRetry, "the longest wait after a failure")
	f.DurationVar(&c.keep, "keep", queue.DefaultKeep, "how long /queue/ID tells of a request that is done")
	c.logs.addFlags(f)
}

func (c *workerConfig) run(ctx context.Context, stdout, stderr io.Writer) error {
	upstream, err := url.Parse(c.upstream)
	switch {
	case err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" || upstream.RawQuery != "" || upstream.Fragment != "":
		return usagef("--upstream %q: it is http://host:port or https://host:port, with what goes before each path", redis.Redact(c.upstream))
	case c.maxDeliveries < 1:
		return usagef("--max-deliveries %d: it is 1 at least", c.maxDeliveries)
	case c.timeout <= 0 || c.retryMin <= 0 || c.retryMax < c.retryMin || c.keep < time.Second:
		return usagef("--timeout and --retry-min are over 0, --retry-max is --retry-min at least, --keep is 1s at least")
	}
	log := c.logs.logger(stderr)
	goredis.SetLogger(clientLog{log})
	traces, closeTraces, err := openTracing(ctx, tracing.Options{Service: "weir-worker"}, log)
	if err != nil {
		return err
	}
	defer closeTraces()
	queues, err := c.at.open()
	if err != nil {
		return err
	}
	defer queues.Close()
	stopping := make(chan struct{})
	unless := context.AfterFunc(ctx, func() { defer close(stopping); tellManager(log, daemon.SdNotifyStopping) })
	defer func() {
		if !unless() {
			<-stopping
		}
	}()
	tellManager(log, daemon.SdNotifyReady)
	fmt.Fprintf(stdout, "weir %s replays queues of %s to %s\n", versionText(), redis.Redact(c.at.store), upstream.Redacted())
	return queue.NewWorker(queue.WorkerOptions{
		Queues: queues, Upstream: upstream, Timeout: c.timeout, MaxDeliveries: c.maxDeliveries,
		RetryMin: c.retryMin, RetryMax: c.retryMax, Keep: c.keep, Logger: log, Around: traces.Deliveries,
	}).Run(ctx)
}

// queueTarget says where queues are.
type queueTarget struct {
	store, keyPrefix string
	tls              redis.TLSFiles
	flags            *pflag.FlagSet // that it was added to
}

func (t *queueTarget) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.store, "store", "", "the Redis of the queues, as weir serve has it")
	addStoreTLSFlags(f, &t.tls)
	f.StringVar(&t.keyPrefix, "key-prefix", redis.DefaultKeyPrefix, "what every key in Redis begins with")
	t.flags = f
}

func (t *queueTarget) open() (*queue.Queues, error) {
	if t.store == "" || t.store == memoryStore {
		return nil, usagef("--store: the Redis of the queues, such as redis://host:6379")
	}
	if t.keyPrefix == "" {
		return nil, usagef("--key-prefix is empty; give one, such as %s", redis.DefaultKeyPrefix)
	}
	if err := checkStoreTLS(t.flags, t.store); err != nil {
		return nil, err
	}
	queues, err := queue.Open(queue.Options{URL: t.store, TLS: t.tls, KeyPrefix: t.keyPrefix})
	if errors.Is(err, redis.ErrURL) {
		return nil, usagef("--store: %w", err)
	}
	return queues, err
}
