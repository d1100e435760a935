package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
)

// A hit on a fixed window that is likely to pass is counted by INCRBY alone, for
// less than half of what the shortest script takes Redis. A counter there is one
// number (see fixed.lua), and one that has the expected window's tag lives no longer
// than that window: so the sum that INCRBY tells says by Redis's own clock whether the
// hit passes. What turns out otherwise is taken back by fixed_back.lua, which decides it
// as ever in the same step.
//
// Until then a refused hit's 1 stands in a counter whose limit is used up, about as
// long as a round trip. Other hits are refused there anyway; only a look, or a hit
// just after a refund (of a lease's rest, of a cluster's charge) or by a limit that was
// raised, may be refused in that time by what is taken back at its end, and its
// instance's deny cache may remember that. A counter that is reset in that time has the
// 1 taken off what is counted anew. One whose answer was lost stays until the window
// ends. That is rare, for plain commands are sent only while much is left.
//
// A counter that is gone (flushed, or ended early by Redis's clock) INCRBY makes anew,
// without a tag and a time to live: no hit passes on it, and the first that is taken
// back replaces it.

// plainSpare is what must be left of a limit, by the last answer to this instance.
const plainSpare = 100

// plain tells whether a plain command may count the hit in the window.
func (s *Store) plain(h *limiter.Hit, w window, now time.Time) bool {
	if h.Cost != 1 || w.tag <= 1 || w.tag == windowTags { // none is expected, or one that a number without a tag might be of
		return false
	}
	left, known := s.opts.Local.Left(h, now)
	return known && left >= s.spare
}

// askFixed has Redis decide a hit on a fixed window.
func (s *Store) askFixed(ctx context.Context, r *request, hits []limiter.Hit, now time.Time) ([]limiter.Decision, error) {
	script, h := &s.scripts.single[limiter.FixedWindow], &hits[0]
	if w := s.expected(h, now); s.plain(h, w, now) {
		name := r.hashes[0].name(s.opts.KeyPrefix)
		sum, err := s.pipe.increment(ctx, name, now)
		switch {
		case err == nil:
			used, most := sum-(w.tag-1)*windowCounts, h.Limit.Numbers().Capacity
			if used > 0 && used <= most {
				return []limiter.Decision{{Allowed: true, Remaining: uint64(most - used), ResetAfter: h.Limit.Duration(w.left)}}, nil
			}
			back := *h
			back.MaxDelay = h.Limit.Duration(max(sum, 0) / windowCounts) // in the place of the script's patience
			script, hits = &s.scripts.fixedBack, []limiter.Hit{back}
		case !goredis.HasErrorPrefix(err, "WRONGTYPE") && !isERR(err): // those have added nothing
			s.loose.add(name)
			return nil, err
		}
		a, err := s.run(context.WithoutCancel(ctx), script, modeAllOrNothing, r, hits, time.Now()) // also for a caller that leaves
		if err != nil {
			s.loose.add(name)
		}
		return a.decisions, err
	}
	a, err := s.run(ctx, script, modeAllOrNothing, r, hits, now)
	return a.decisions, err
}

// loose are counters that INCRBY may have made anew and whose answers were lost: they
// have no time to live then, and are looked at again.
type loose struct {
	mu    sync.Mutex
	names map[string]struct{}
}

// maxLoose bounds them. What is beyond it, or lost with this process, stays in Redis
// until the counter is hit again.
const maxLoose = 50_000

func (l *loose) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names == nil {
		l.names = make(map[string]struct{})
	}
	if len(l.names) < maxLoose {
		l.names[name] = struct{}{}
	}
}

// take returns them, and is empty then.
func (l *loose) take() map[string]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = nil
	return names
}

const looseTick = 500 * time.Millisecond

// tendLoose deletes what has no time to live, until the context ends.
func (s *Store) tendLoose(ctx context.Context) {
	tick := time.NewTicker(looseTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.deleteLoose(ctx)
		}
	}
}

func (s *Store) deleteLoose(ctx context.Context) {
	if s.breaker.isOpen() {
		return
	}
	names := s.loose.take()
	for name := range names {
		if _, err := s.pipe.eval(ctx, &call{script: &s.scripts.loose, keys: []string{name}, now: time.Now()}); err != nil {
			s.log.Debug("counters without a time to live are looked for later", "err", err)
			break
		}
		delete(names, name)
	}
	for name := range names {
		s.loose.add(name)
	}
}
