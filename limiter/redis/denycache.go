package redis

import (
	"sync"
	"sync/atomic"
	"time"

	"weir/limiter"
)

// denyCache remembers refusals until the instant at which they end, so that a
// hot refused counter costs no Redis. It answers only a request whose hits are
// all remembered refusals.
type denyCache struct {
	longest time.Duration
	size    atomic.Int64 // refusals remembered, ended ones too
	shards  [16]denyShard
}

type denyShard struct {
	mu      sync.Mutex
	refused map[keyHash]refusal
	forgot  time.Time // when one was forgotten last
}

// refusal is the last one of a counter.
type refusal struct {
	limit    uint64 // with cost and capacity, what was asked
	capacity int64
	cost     uint64
	decision limiter.Decision
	asked    time.Time
	answered time.Time
	until    time.Time
}

// maxRefusals bounds a shard: a full one forgets what has ended, or all if that is little.
const maxRefusals = 4096

func newDenyCache(longest time.Duration) *denyCache {
	c := &denyCache{longest: longest}
	for i := range c.shards {
		c.shards[i].refused = make(map[keyHash]refusal)
	}
	return c
}

func (c *denyCache) shard(k keyHash) *denyShard { return &c.shards[k[0]%uint8(len(c.shards))] }

// answer is the decisions for hits that are all refused still, or nil; keys[i] is
// the counter of hits[i].
func (c *denyCache) answer(hits []limiter.Hit, keys []keyHash, now time.Time) []limiter.Decision {
	if c.size.Load() == 0 {
		return nil
	}
	var decisions []limiter.Decision
	for i := range hits {
		h := &hits[i]
		if !cacheable(h) {
			return nil
		}
		d, ok := c.recall(h, keys[i], now)
		if !ok {
			return nil
		}
		if decisions == nil {
			decisions = make([]limiter.Decision, len(hits))
		}
		decisions[i] = d
	}
	return decisions
}

// cacheable tells whether a refusal of this hit changes nothing and depends on
// nothing but its counter: that of a leaky bucket may depend on the caller's
// deadline, and so does the wait after it.
func cacheable(h *limiter.Hit) bool {
	return h.Cost > 0 && !h.Refund && !h.Shadow && !h.Quota && !h.Limit.CountDenied &&
		(h.Limit.Algorithm != limiter.LeakyBucket || h.MaxDelay == limiter.NoDeadline)
}

func (c *denyCache) recall(h *limiter.Hit, k keyHash, now time.Time) (limiter.Decision, bool) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.refused[k]
	if !ok || r.limit != h.Limit.Requests || r.capacity != h.Limit.Numbers().Capacity || r.cost != h.Cost || !now.Before(r.until) || now.Before(r.asked) {
		return limiter.Decision{}, false
	}
	passed := max(0, now.Sub(r.answered))
	d := r.decision
	d.Origin = limiter.OriginDenyCache
	d.ResetAfter = max(0, d.ResetAfter-passed)
	if d.RetryAfter > 0 {
		d.RetryAfter -= passed
	}
	return d, true
}

// remember keeps the refusals of a request that one round trip decided, which was
// asked for at a time. Redis said so at some moment since: a refusal is kept as if
// it had been the first, and its wait counted as if it had been the last.
func (c *denyCache) remember(hits []limiter.Hit, decisions []limiter.Decision, keys []keyHash, asked time.Time) {
	if c.longest == 0 {
		return
	}
	var answered time.Time
	for i := range hits {
		h, d := &hits[i], &decisions[i]
		if h.Refund {
			c.forget(keys[i]) // what was refused while it was under way
		}
		if d.Allowed {
			c.charged(keys[i]) // the wait and what remains of a refusal are others now
			continue
		}
		if !cacheable(h) {
			continue
		}
		if answered.IsZero() {
			answered = time.Now()
		}
		left := c.longest
		if d.RetryAfter > 0 {
			left = min(left, d.RetryAfter)
		}
		c.keep(keys[i], refusal{h.Limit.Requests, h.Limit.Numbers().Capacity, h.Cost, *d, asked, answered, asked.Add(left)})
	}
}

func (c *denyCache) keep(k keyHash, r refusal) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.asked.After(s.forgot) {
		return // what was forgotten since may be this refusal's reason
	}
	before := len(s.refused)
	defer func() { c.size.Add(int64(len(s.refused) - before)) }()
	if len(s.refused) >= maxRefusals {
		for old, x := range s.refused {
			if !r.asked.Before(x.until) {
				delete(s.refused, old)
			}
		}
		if len(s.refused) >= maxRefusals*3/4 { // to look through all of them each time would cost more than they spare
			clear(s.refused)
		}
	}
	s.refused[k] = r
}

// charged drops what is remembered of a counter that has changed.
func (c *denyCache) charged(k keyHash) {
	if c.size.Load() == 0 {
		return
	}
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c, k)
}

// forget makes the counter ask Redis again, and does not believe what is under
// way.
func (c *denyCache) forget(k keyHash) {
	s := c.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = time.Now()
	s.drop(c, k)
}

func (s *denyShard) drop(c *denyCache, k keyHash) {
	if _, ok := s.refused[k]; ok {
		delete(s.refused, k)
		c.size.Add(-1)
	}
}
