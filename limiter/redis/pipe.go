package redis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	alarm   atomic.Pointer[alarm]
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
	return &pipe{client: client, batches: batches, timeout: timeout}, nil
}

// errTimeout is a Redis that did not answer in time.
var errTimeout = errors.New("no answer within the store timeout")

// call is a script to run. Now is the caller's time, args what the script takes.
type call struct {
	script *script
	keys   []string
	args   []any
	now    time.Time
}

// eval runs a script and waits until the timeout or the context's end.
func (p *pipe) eval(ctx context.Context, c *call) ([]int64, error) {
	reply, err := p.evalOnce(ctx, "evalsha", c.script.sha, c)
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return reply, err
	}
	// Once more with the text, which loads it, on the node that wants it: no other
	// node need answer, and no SCRIPT FLUSH can come between.
	c.now = time.Now()
	return p.evalOnce(ctx, "eval", c.script.text, c)
}

func (p *pipe) evalOnce(ctx context.Context, name string, script any, c *call) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	words := make([]any, 0, 3+len(c.keys)+len(c.args))
	words = append(words, name, script, len(c.keys))
	for _, k := range c.keys {
		words = append(words, k)
	}
	words = append(words, c.args...)
	cmd := once{redis.NewIntSliceCmd(ctx, words...)}
	cmd.SetFirstKeyPos(3)
	if err := p.batches.Submit(ctx, cmd).WaitContext(p.patience(ctx, c.now)); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// increment adds 1 to a number, and returns the sum.
func (p *pipe) increment(ctx context.Context, key string, now time.Time) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	cmd := onceInt{redis.NewIntCmd(ctx, "incrby", key, "1")}
	cmd.SetFirstKeyPos(1)
	if err := p.batches.Submit(ctx, cmd).WaitContext(p.patience(ctx, now)); err != nil {
		return 0, err
	}
	return cmd.Val(), nil
}

// once and onceInt are commands that may have been run when their answer is lost.
// The client of a cluster would send them again, whatever its MaxRetries.
type (
	once    struct{ *redis.IntSliceCmd }
	onceInt struct{ *redis.IntCmd }
)

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// NoRetry implements redis.Cmder.
func (onceInt) NoRetry() bool { return true }

// patience is the context that ends a wait: the caller's, if its deadline comes
// before the store's timeout, else an alarm. A caller that leaves earlier is
// noticed at the alarm.
func (p *pipe) patience(ctx context.Context, now time.Time) context.Context {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now) <= p.timeout {
		return ctx
	}
	slack := p.timeout / 10
	a := p.alarm.Load()
	if a == nil || now.Sub(a.set) > slack {
		a = &alarm{Context: context.Background(), set: now, rung: make(chan struct{})}
		time.AfterFunc(p.timeout+slack, func() { close(a.rung) })
		p.alarm.Store(a) // of two at once, one is used less
	}
	return a
}

// alarm is a context that many waits share, which costs less than a timer for
// each: it ends them at the timeout, or up to a tenth of it later.
type alarm struct {
	context.Context
	set  time.Time
	rung chan struct{}
}

func (a *alarm) Done() <-chan struct{} { return a.rung }

func (a *alarm) Err() error {
	select {
	case <-a.rung:
		return errTimeout
	default:
		return nil
	}
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
