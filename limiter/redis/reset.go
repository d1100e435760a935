package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
)

// What operators do to counters. None of it is on the way of a request.

var (
	_ limiter.Resetter = (*Store)(nil)
	_ limiter.Peeker   = (*Store)(nil)
)

// operatorTimeout is the longest that an operator waits, in the end for nothing.
const operatorTimeout = 2 * time.Second

// operator is the client for what operators do, whose answers are larger than those to
// requests: it waits longer than --store-timeout. That of a cluster has no such copy.
func (s *Store) operator() goredis.UniversalClient {
	if c, ok := s.pipe.client.(*goredis.Client); ok {
		return c.WithTimeout(operatorTimeout) // of the same connections
	}
	return s.pipe.client
}

// Reset implements limiter.Resetter in one round trip; on a cluster in one to each
// node, at the same time. Other instances see it at once, but for what their deny
// caches remember, their counters for the time that Redis is away, and their leases:
// what those have in hand passes beside the limit, until they go or their window ends.
func (s *Store) Reset(ctx context.Context, counters []limiter.Counter) (held int, err error) {
	if len(counters) == 0 {
		return 0, ctx.Err()
	}
	if _, err := s.opts.Local.Reset(ctx, counters); err != nil {
		return 0, err
	}
	defer func() {
		for _, c := range counters {
			k := s.naming.hash(c.Key, c.Overflow)
			s.denied.forget(k) // also what was refused while it was under way
			s.leases.forget(k) // also what was taken meanwhile
		}
	}()
	var gone []*goredis.IntCmd
	err = s.operate(ctx, "resetting counters", func(ctx context.Context) error {
		p := s.operator().Pipeline()
		for _, c := range counters {
			gone = append(gone, p.Unlink(ctx, s.naming.Counter(c.Key, c.Overflow)))
		}
		_, err := p.Exec(ctx)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, n := range gone {
		held += int(n.Val())
	}
	return held, nil
}

// Peek implements limiter.Peeker: the scripts take the hits for the part of a
// request that another part has refused.
func (s *Store) Peek(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.breaker.isOpen() {
		return s.opts.Local.Peek(ctx, hits)
	}
	plain := make([]limiter.Hit, len(hits))
	for i, h := range hits {
		h.Limit.CountDenied = false // else a refusal would be charged
		plain[i] = h
	}
	began := time.Now()
	decisions, err := s.foresee(ctx, plain)
	if err != nil {
		if err := s.note(ctx, err, time.Since(began)); err != nil {
			return nil, err
		}
		return s.opts.Local.Peek(ctx, hits)
	}
	s.breaker.succeeded()
	s.showLeases(hits, decisions, began)
	return decisions, nil
}

func (s *Store) foresee(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if s.cluster {
		parts := s.split(hits)
		decisions := make([]limiter.Decision, len(hits))
		s.runParts(ctx, parts, modeRefused)
		return decisions, collect(parts, decisions)
	}
	var r request
	r.gather(s.naming, hits)
	a, err := s.run(ctx, &s.scripts.multi, modeRefused, &r, hits, time.Now())
	return a.decisions, err
}

// Generations tell how often things were reset as a whole, by their names: a hash
// in Redis, that all instances with the same key prefix share.
type Generations struct {
	Version uint64            // another one after each reset; 0: there was none
	Of      map[string]uint64 // over 0, and another one after each reset; what was never reset is left out
}

// The hash of generations has a field for each name, and one for their version.
const (
	generationsKey   = "resets"
	generationsField = "version"
)

// generationsLife is longer than what a reset hides can live: two windows of the
// longest length.
const generationsLife = 2*limiter.MaxWindow + 24*time.Hour

// Generations returns those of a version other than the known one, or nil if that
// is still the last. It fails with ErrUnavailable, or with the context's error.
func (s *Store) Generations(ctx context.Context, known uint64) (g *Generations, err error) {
	err = s.operate(ctx, "reading which rules were reset", func(ctx context.Context) error {
		key, client := s.opts.KeyPrefix+generationsKey, s.operator()
		version, err := client.HGet(ctx, key, generationsField).Uint64()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return err
		}
		if version == known {
			return nil
		}
		fields, err := client.HGetAll(ctx, key).Result()
		if err != nil {
			return err
		}
		g = &Generations{Of: make(map[string]uint64, len(fields))}
		for name, text := range fields {
			n, err := strconv.ParseUint(text, 10, 63)
			switch {
			case err != nil:
				return fmt.Errorf("field %q of %s is no number: %w; delete the field", name, key, err)
			case name == generationsField:
				g.Version = n
			default:
				g.Of[name] = n
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// generationStep is how much a number may grow in one reset: less than the root of
// what fits into a number in Redis, so that resets do not run out of them.
const generationStep = 1 << 31

// step is by how much a number grows. It is random, since the hash may get lost, such
// as in a failover: if the numbers then began with 1 again, an instance that missed
// the loss would take them for those it knows, and counters of before would come back
// as new ones.
func step() int64 { return 1 + rand.Int64N(generationStep) }

// NextGeneration begins a new one for each of the names. It fails with
// ErrUnavailable, after which it may or may not be done, or with the context's
// error.
func (s *Store) NextGeneration(ctx context.Context, names ...string) error {
	return s.operate(ctx, "resetting rules", func(ctx context.Context) error {
		key := s.opts.KeyPrefix + generationsKey
		p := s.operator().Pipeline()
		for _, name := range names {
			p.HIncrBy(ctx, key, name, step())
		}
		p.HIncrBy(ctx, key, generationsField, step()) // the last: who sees it sees the others
		p.Expire(ctx, key, generationsLife)
		_, err := p.Exec(ctx)
		return err
	})
}

// operate does what an operator asked of Redis.
func (s *Store) operate(ctx context.Context, what string, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	err := do(bounded)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s in Redis: %w", limiter.ErrUnavailable, what, explain(err))
}
