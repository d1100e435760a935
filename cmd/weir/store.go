package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"weir/limiter"
	"weir/limiter/redis"
	"weir/server"
	"weir/server/metrics"
)

// sweepInterval is how often ended counters leave memory.
const sweepInterval = 5 * time.Second

// connectLimit is how long serve waits for Redis before it serves without.
const connectLimit = 2 * time.Second

// openStore opens the store that the flags name.
func openStore(ctx context.Context, background *errgroup.Group, c *serveConfig, log *slog.Logger, health *server.Health, counting *metrics.Metrics) (*openedCounters, error) {
	opts := memoryOptions(c, log)
	countMemory(&opts, counting)
	if c.store == memoryStore {
		m := limiter.NewMemory(opts)
		counting.WatchStore(func() metrics.StoreState {
			return metrics.StoreState{Up: true, Counters: m.Len(), MaxCounters: c.memoryMaxCounters, SweepLock: m.SweepLock()}
		})
		background.Go(func() error { m.Run(ctx, sweepInterval); return nil })
		health.SetStore(true)
		return &openedCounters{Store: m, held: m.Len, healthy: func() bool { return true }, close: func() {}}, nil
	}
	health.SetStore(true) // until its breaker opens
	goredis.SetLogger(clientLog{log})
	standby := limiter.NewStandby(opts)
	background.Go(func() error { standby.Run(ctx, sweepInterval); return nil })
	connecting, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	store, err := redis.Open(connecting, redis.Options{
		Options:   opts.Options,
		URL:       c.store,
		TLS:       c.storeTLS,
		KeyPrefix: c.keyPrefix,
		KeySecret: c.keySecret,
		Timeout:   c.storeTimeout,
		DenyCache: c.denyCache,
		Local:     standby,
		Logger:    log,
		Events:    storeEvents(counting, health),
	})
	if errors.Is(err, redis.ErrURL) {
		return nil, usagef("--store: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	counting.ExpectStoreFailures(redis.Reasons()...)
	counting.WatchStore(func() metrics.StoreState {
		up := store.Healthy()
		return metrics.StoreState{
			Up: up, BreakerOpen: !up, Counters: standby.Len(), MaxCounters: c.memoryMaxCounters, SweepLock: standby.SweepLock(), DenyCached: store.DenyCached(),
			Leases: leaseState(store),
		}
	})
	return &openedCounters{Store: store, redis: store, held: standby.Len, healthy: store.Healthy, close: func() {
		if err := store.Close(); err != nil {
			log.Warn("closing the store", "err", err)
		}
	}}, nil
}

func leaseState(store *redis.Store) metrics.LeaseState {
	c, held := store.Leases()
	return metrics.LeaseState{
		Held: held, Taken: c.Taken, Spent: c.Spent, Returned: c.Returned, Lost: c.Lost,
		Takes: c.Takes, TakesRefused: c.Refused, TakesFailed: c.Failed,
	}
}

// clientLog takes what the Redis client would print by itself: details of what
// the store logs in its own words.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "redis client: "+fmt.Sprintf(format, v...))
}

func memoryOptions(c *serveConfig, log *slog.Logger) limiter.MemoryOptions {
	full, dropped := seldom{every: 10 * time.Second}, seldom{every: 10 * time.Second}
	return limiter.MemoryOptions{
		Options:     limiter.Options{ChargeEach: c.charge.value == "each"},
		MaxCounters: c.memoryMaxCounters,
		OnFull: func() {
			full.do(func(times uint64) {
				log.Warn("the memory store is full: new counters are decided by their failure policy; raise --memory-max-counters or use Redis",
					"max_counters", c.memoryMaxCounters, "times", times)
			})
		},
		OnDropped: func() {
			dropped.do(func(times uint64) {
				log.Warn("counters were farther ahead of the clock than a window and begin anew; did the clock step back?", "times", times)
			})
		},
	}
}

// seldom lets something be said once in a while, with how often it happened.
type seldom struct {
	every time.Duration
	times atomic.Uint64
	next  atomic.Int64 // Unix ns
}

func (s *seldom) do(say func(times uint64)) {
	s.times.Add(1)
	now, next := time.Now().UnixNano(), s.next.Load()
	if now >= next && s.next.CompareAndSwap(next, now+int64(s.every)) {
		say(s.times.Swap(0))
	}
}
