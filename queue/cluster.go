package queue

import (
	"context"
	"errors"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// tend makes the client of a Redis Cluster notice a failover, and bounds its waits.
// By itself it asks who has the slots once a minute, or when a node sends it to
// another, which one that is gone never does; and it tries four times, each as long
// as the timeout.
func tend(client goredis.UniversalClient, timeout time.Duration) {
	cluster, ok := client.(*goredis.ClusterClient)
	if !ok {
		return
	}
	cluster.OnNewNode(func(node *goredis.Client) {
		node.AddHook(around(func(ctx context.Context, try func(context.Context) error) error {
			err := try(ctx)
			var answer goredis.Error
			if err != nil && !errors.As(err, &answer) { // no answer at all
				cluster.ReloadState(ctx) // in the background, and not twice at once
			}
			return err
		}))
	})
	cluster.AddHook(around(func(ctx context.Context, try func(context.Context) error) error {
		// A try that is under way heeds no context, but no other follows.
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return try(ctx)
	}))
}

// around is a hook around each command and pipeline.
type around func(ctx context.Context, try func(context.Context) error) error

// DialHook implements goredis.Hook.
func (around) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements goredis.Hook.
func (a around) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		return a(ctx, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements goredis.Hook.
func (a around) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		return a(ctx, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}
