package main

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/limiter/redis"
	"weir/rules"
)

// resets has whole rules begin anew: each reset gives a rule the next generation,
// and with it other counters. With Redis all instances follow.
type resets struct {
	live  *rules.Live
	store *redis.Store // nil: counters are in this process, and so are generations
	log   *slog.Logger

	failing bool // was logged; run's alone

	mu      sync.Mutex              // of what follows
	version uint64                  // of the generations in force
	of      map[rules.RuleID]uint64 // they
}

// resetsInterval is how often an instance looks for what others have reset.
const resetsInterval = time.Second

// Reset is server.Options.ResetRules.
func (r *resets) Reset(ctx context.Context, reset []*rules.Rule) error {
	if r.store == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		of := make(map[rules.RuleID]uint64, len(r.of)+len(reset))
		maps.Copy(of, r.of)
		for _, rule := range reset {
			of[rule.ID()]++
		}
		return r.use(of)
	}
	var names []string
	for _, rule := range reset {
		names = append(names, string(rule.ID()))
	}
	if err := r.store.NextGeneration(ctx, names...); err != nil {
		return err
	}
	return r.follow(ctx)
}

// follow puts into force what Redis has.
func (r *resets) follow(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	generations, err := r.store.Generations(ctx, r.version)
	if err != nil || generations == nil {
		return err
	}
	of := make(map[rules.RuleID]uint64, len(generations.Of))
	for name, n := range generations.Of {
		of[rules.RuleID(name)] = n
	}
	if err := r.use(of); err != nil {
		return err
	}
	r.version = generations.Version
	return nil
}

// use puts generations into force. r.mu is held.
func (r *resets) use(of map[rules.RuleID]uint64) error {
	if err := r.live.SetGenerations(of); err != nil {
		return err
	}
	r.of = of
	return nil
}

// start follows Redis before anything is decided, if it answers, and from then on.
func (r *resets) start(ctx context.Context, background *errgroup.Group) {
	if r.store == nil {
		return
	}
	r.look(ctx)
	background.Go(func() error { r.run(ctx); return nil })
}

// run follows Redis until ctx is done. While it is away, the last stay.
func (r *resets) run(ctx context.Context) {
	tick := time.NewTicker(resetsInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.look(ctx)
		}
	}
}

// look follows, and tells once of what is wrong.
func (r *resets) look(ctx context.Context) {
	err := r.follow(ctx)
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil && r.failing:
		r.failing = false
		r.log.Info("rules that other instances reset are seen again")
	case err != nil && !r.failing:
		r.failing = true
		r.log.Warn("rules that other instances reset are not seen until this is mended", "err", err)
	}
}
