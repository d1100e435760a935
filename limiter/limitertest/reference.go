package limitertest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/limiter"
)

// Reference is the plainest store: limiter.Evaluate and a map, which forgets
// nothing. It is what Replay holds other stores against.
type Reference struct {
	opts limiter.Options
	now  func() time.Time

	mu     sync.Mutex
	states map[string]limiter.State
	queues map[string]int64 // how many wait, by Hit.Overflow
}

// NewReference returns an empty store.
func NewReference(opts limiter.Options, now func() time.Time) *Reference {
	return &Reference{opts: opts, now: now, states: make(map[string]limiter.State), queues: make(map[string]int64)}
}

// SetWaiting says how many wait in a queue that hits overflow into.
func (r *Reference) SetWaiting(overflow limiter.Key, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queues[string(overflow)] = n
}

// Forget drops a counter.
func (r *Reference) Forget(key limiter.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, string(key))
}

// Decide implements limiter.Store.
func (r *Reference) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, slots, index := r.gather(hits)
	decisions := limiter.Evaluate(hits, index, slots, r.now(), r.opts)
	for i, key := range keys {
		if slots[i].Changed {
			r.states[key] = slots[i].State
		}
	}
	return decisions, nil
}

// gather finds the counters of the hits.
func (r *Reference) gather(hits []limiter.Hit) (keys []string, slots []limiter.Slot, index []int) {
	index = make([]int, len(hits))
	for i, h := range hits {
		key := string(h.Key)
		at := slices.Index(keys, key)
		if at < 0 {
			at = len(keys)
			keys = append(keys, key)
			slots = append(slots, limiter.Slot{State: r.states[key], Queue: h.Overflow != nil, Waiting: r.queues[string(h.Overflow)]})
		}
		index[i] = at
	}
	return keys, slots, index
}

// Peek implements limiter.Peeker.
func (r *Reference) Peek(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, slots, index := r.gather(hits)
	return limiter.Foresee(hits, index, slots, r.now()), nil
}

// Reset implements limiter.Resetter. It tells of all that were ever charged, and
// have not been reset since.
func (r *Reference) Reset(ctx context.Context, counters []limiter.Counter) (held int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range counters {
		if _, ok := r.states[string(c.Key)]; ok {
			delete(r.states, string(c.Key))
			held++
		}
	}
	return held, nil
}

// At returns a copy whose clock stands at now. What is asked of it leaves r as
// it is.
func (r *Reference) At(now time.Time) *Reference {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := NewReference(r.opts, func() time.Time { return now })
	for key, s := range r.states {
		s.Log = slices.Clone(s.Log)
		c.states[key] = s
	}
	maps.Copy(c.queues, r.queues)
	return c
}

// State returns what the counter of that key remembers.
func (r *Reference) State(key string) limiter.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[key]
}
