package limiter

import (
	"context"
	"time"
)

// Counter names a counter as hits do.
type Counter struct {
	Key      Key
	Overflow Key // of hits that overflow into a queue; nil: none
}

// Resetter is a Store whose counters can be made to begin anew.
type Resetter interface {
	// Reset empties the counters and tells how many of them held something. What
	// waits in a queue stays there. Hits that are decided meanwhile count before
	// it or after. It is safe for concurrent use, and fails with ErrUnavailable,
	// after which it may or may not be done, or with the context's error.
	Reset(ctx context.Context, counters []Counter) (held int, err error)
}

// Peeker is a Store that tells what it would decide.
type Peeker interface {
	// Peek returns the decisions of Decide, but charges nothing, not even what
	// CountDenied would count: Remaining and ResetAfter are of now, Delay and
	// Queued are not told. It is safe for concurrent use and fails as Decide does.
	Peek(ctx context.Context, hits []Hit) ([]Decision, error)
}

// Foresee decides as Evaluate does, in a request that something else refuses: so
// nothing is charged, and slots stay what they are but for the time gone by.
func Foresee(hits []Hit, index []int, slots []Slot, now time.Time) []Decision {
	e := evaluation{hits: hits, index: index, slots: slots, now: now, decisions: make([]Decision, len(hits))}
	e.findAhead()
	for i := range hits {
		e.decisions[i].Allowed = hits[i].Refund
		e.check(i)
	}
	for i := range hits {
		e.describe(i, false)
	}
	return e.decisions
}

// Peek implements Peeker.
func (m *Memory) Peek(ctx context.Context, hits []Hit) ([]Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := m.requests.Get().(*request)
	defer m.requests.Put(r)
	m.gather(r, hits)
	m.lock(r.locks)
	defer m.unlock(r.locks)
	full := m.count.Load() >= int64(m.opts.MaxCounters)
	for i, d := range r.digests {
		var held bool
		if r.slots[i].State, held = m.shards[d.shard()].state(d); !held {
			r.slots[i].Full = full
		}
	}
	decisions := Foresee(hits, r.index, r.slots, m.opts.Now())
	for i := range r.slots {
		r.slots[i].State.Log = nil // the pool must not keep it
	}
	return decisions, nil
}

// Reset implements Resetter.
func (m *Memory) Reset(ctx context.Context, counters []Counter) (held int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	now := m.opts.Now().UnixMicro() / expiryUnit
	for i := range counters {
		d := m.digest(counters[i].Key)
		s := &m.shards[d.shard()]
		s.mu.Lock()
		if c := s.table(d).get(d); c != nil {
			if c.expires() > now {
				held++
			}
			s.table(d).remove(d)
			delete(s.logs, d)
			m.count.Add(-1)
		}
		s.mu.Unlock()
	}
	return held, nil
}

// Reset implements Resetter.
func (s *Standby) Reset(ctx context.Context, counters []Counter) (held int, err error) {
	return s.memory.Reset(ctx, counters)
}

// Len is how many counters it holds, some of which may have ended.
func (s *Standby) Len() int { return s.memory.Len() }

// Peek implements Peeker.
func (s *Standby) Peek(ctx context.Context, hits []Hit) ([]Decision, error) {
	stand, err := byPolicies(hits)
	if err != nil {
		return nil, err
	}
	decisions, err := s.memory.Peek(ctx, stand)
	noteStandIn(hits, decisions)
	return decisions, err
}
