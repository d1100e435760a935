package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipe sends scripts to Redis. Concurrent calls share round trips: go-redis
// gathers what is asked while a batch is under way into the next one.
//
// A command that is queued cannot be called back: a caller that stops waiting
// may still be charged for it. It is never sent twice, but where Redis says that
// it does not know the script (NOSCRIPT), and so did not run it.
type pipe struct {
	client  redis.UniversalClient
	batches *redis.AutoPipeliner
	timeout time.Duration
}

// autoPipeliner is what the clients for one Redis and for a cluster share beyond
// redis.UniversalClient.
type autoPipeliner interface {
	AsyncAutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error)
}

// maxQueued bounds what waits while Redis is slow; callers beyond it are decided
// by the failure policy at once.
const maxQueued = 20_000

func newPipe(client redis.UniversalClient, timeout time.Duration) (*pipe, error) {
	opts := redis.DefaultBlockingAutoPipelineOptions()
	opts.MaxQueuedCommands = maxQueued
	batches, err := client.(autoPipeliner).AsyncAutoPipelineWithOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("preparing pipelines to Redis: %w", err)
	}
	return &pipe{client, batches, timeout}, nil
}

// errTimeout is a Redis that did not answer in time.
var errTimeout = errors.New("no answer within the store timeout")

// eval runs a script and waits until the timeout or the context's end.
func (p *pipe) eval(ctx context.Context, s *script, keys []string, args ...any) ([]int64, error) {
	reply, err := p.evalOnce(ctx, s, keys, args)
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return reply, err
	}
	if err := p.load(ctx, s); err != nil {
		return nil, err
	}
	return p.evalOnce(ctx, s, keys, args)
}

func (p *pipe) evalOnce(ctx context.Context, s *script, keys []string, args []any) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, "evalsha", s.sha, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	words = append(words, args...)
	cmd := redis.NewIntSliceCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	waiting, cancel := context.WithTimeoutCause(ctx, p.timeout, errTimeout)
	defer cancel()
	err := p.batches.Submit(ctx, cmd).WaitContext(waiting)
	switch {
	case err != nil && waiting.Err() != nil && errors.Is(err, waiting.Err()):
		return nil, context.Cause(waiting)
	case err != nil:
		return nil, err
	}
	return cmd.Val(), nil
}

// load gives Redis the script, on a cluster every master.
func (p *pipe) load(ctx context.Context, s *script) error {
	return p.everywhere(ctx, func(ctx context.Context, c redis.Cmdable) error {
		if err := c.ScriptLoad(ctx, s.text).Err(); err != nil {
			return fmt.Errorf("loading a script into Redis: %w", err)
		}
		return nil
	})
}

// everywhere calls f for the Redis, or for every master of a cluster.
func (p *pipe) everywhere(ctx context.Context, f func(ctx context.Context, c redis.Cmdable) error) error {
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return f(ctx, c) })
	}
	return f(ctx, p.client)
}

func (p *pipe) close() error {
	return errors.Join(p.batches.Close(), p.client.Close())
}
