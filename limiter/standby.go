package limiter

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Standby decides for a store that is away, each hit by its failure policy: with
// FailLocal by counters in this process, which begin from what the store last
// said of them. What it charges is not told to the store later.
type Standby struct {
	memory *Memory
	heard  [shards][hearers]time.Duration // since memory.start: when Learn was last called for some counters; under the shards' locks
}

// hearers is into how many parts a shard's counters are told apart by when the store
// was heard of. Counters of one part are taken for asked at the same time more often
// than they are.
const hearers = 64

// NewStandby returns a Standby that knows of no counters yet.
func NewStandby(opts MemoryOptions) *Standby { return &Standby{memory: NewMemory(opts)} }

// Run sweeps every interval until the context ends.
func (s *Standby) Run(ctx context.Context, interval time.Duration) { s.memory.Run(ctx, interval) }

// SweepLock is Memory's.
func (s *Standby) SweepLock() time.Duration { return s.memory.SweepLock() }

// Decide implements Store.
func (s *Standby) Decide(ctx context.Context, hits []Hit) ([]Decision, error) {
	stand, err := byPolicies(hits)
	if err != nil {
		return nil, err
	}
	decisions, err := s.memory.Decide(ctx, stand)
	noteStandIn(hits, decisions)
	return decisions, err
}

// noteStandIn says in the decisions that the store did not make them.
func noteStandIn(hits []Hit, decisions []Decision) {
	for i := range decisions {
		decisions[i].Origin = hits[i].standIn(decisions[i].Origin)
	}
}

// byPolicies are the hits as each policy wants them decided.
func byPolicies(hits []Hit) ([]Hit, error) {
	var stand []Hit // hits, where not all are FailLocal
	for i := range hits {
		switch {
		case hits[i].OnFailure == FailLocal:
			continue
		case hits[i].OnFailure == FailError && !hits[i].Shadow:
			return nil, fmt.Errorf("%w: the store is away, and the rule's on_store_failure is error", ErrUnavailable)
		}
		if stand == nil {
			stand = append(stand, hits...)
		}
		stand[i] = hits[i].byPolicy(i)
	}
	if stand == nil {
		return hits, nil
	}
	return stand, nil
}

// standIn is who decided the hit where the store is away. One that found no room
// here either has been let pass.
func (h *Hit) standIn(origin Origin) Origin {
	switch {
	case h.OnFailure == FailDeny:
		return OriginClosed
	case h.OnFailure != FailLocal:
		return OriginOpen
	case origin == OriginStore:
		return OriginLocal
	}
	return origin
}

// byPolicy is a hit that is answered as the policy says and counts nothing: of
// FailAllow a look at a counter that was never used, of FailDeny a limit of 0.
func (h Hit) byPolicy(i int) Hit {
	h.Key = Key(fmt.Sprintf("policy %d", i))
	if h.OnFailure == FailDeny {
		h.Limit = Limit{Window: h.Limit.Window}
	} else {
		h.Cost = 0
	}
	return h
}

// Learn takes over what the store, asked at that time, said of the hits' counters, of
// those that it may have to decide (FailLocal) or that Left may be asked for
// (FixedWindow). How their use is spread over time is not known, and taken as all of it
// at that time. Of answers to what was asked at the same time, whose order is not
// known, the one with the most use counts.
func (s *Standby) Learn(hits []Hit, decisions []Decision, asked time.Time) {
	told := time.Since(s.memory.start)
	for i := range hits {
		h := &hits[i]
		if h.Limit.Requests == 0 || h.OnFailure != FailLocal && h.Limit.Algorithm != FixedWindow {
			continue
		}
		used := h.Limit.capacity() - int64(min(decisions[i].Remaining, uint64(h.Limit.capacity())))
		s.put(h, used, asked, told)
	}
}

// Left is what Learn last saw left of a fixed window's counter, if it saw any use in
// the window of that time.
func (s *Standby) Left(h *Hit, now time.Time) (left uint64, known bool) {
	l := &h.Limit
	start, _, _ := l.Window.bounds(l.ticks(now))
	state, held := s.memory.state(h.Key)
	if !held || state.Time != start {
		return 0, false
	}
	return l.Requests - min(l.Requests, uint64(state.Used)), true
}

// put makes used what a counter holds. One that finds no room is left out.
func (s *Standby) put(h *Hit, used int64, asked time.Time, told time.Duration) {
	m, l := s.memory, &h.Limit
	t := l.ticks(asked)
	f := l.Algorithm.functions()
	state, at, _ := f.advance(State{}, l, t)
	state = state.holding(used, l, t)
	expires := f.expires(state, l, at) * int64(l.Window.unit()/time.Microsecond)

	d := m.digest(h.Key)
	shard := &m.shards[d.shard()]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	heard := &s.heard[d.shard()][d[1]%hearers]
	late := asked.Sub(m.start) < *heard
	*heard = max(*heard, told)
	if late && shard.usesMore(d, l, used, t) {
		return
	}
	added := shard.table(d).put(d, record{state.Time, state.Used, state.Previous, roundUp(expires)})
	if added && (used == 0 || m.count.Add(1) > int64(m.opts.MaxCounters)) {
		shard.table(d).remove(d)
		if used > 0 {
			m.count.Add(-1)
		}
		return
	}
	if l.Algorithm == SlidingWindowLog {
		shard.logs[d] = append(shard.logs[d][:0], LogEntry{t, used})
	}
}

// usesMore tells whether the counter holds as much use at t as another answer told, or
// is in a later window. The lock is held.
func (s *shard) usesMore(d digest, l *Limit, used, t int64) bool {
	held, _ := s.state(d)
	if held.Time > t && (l.Algorithm == FixedWindow || l.Algorithm == SlidingWindowCounter) {
		return true
	}
	held.Log = slices.Clone(held.Log)
	f := l.Algorithm.functions()
	held, at, _ := f.advance(held, l, t)
	return f.used(held, l, at) >= used
}

// state is what a counter holds now, if it is held.
func (m *Memory) state(k Key) (state State, held bool) {
	d := m.digest(k)
	s := &m.shards[d.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state(d)
}

// holding is an empty state with so much used now.
func (s State) holding(used int64, l *Limit, now int64) State {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		s.Used = used * l.length()
	case SlidingWindowLog:
		s.Time, s.Used = now, used
	default:
		s.Used = used
	}
	return s
}
