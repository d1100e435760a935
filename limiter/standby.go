package limiter

import (
	"context"
	"fmt"
	"time"
)

// Standby decides for a store that is away, each hit by its failure policy: with
// FailLocal by counters in this process, which begin from what the store last
// said of them. What it charges is not told to the store later.
type Standby struct{ memory *Memory }

// NewStandby returns a Standby that knows of no counters yet.
func NewStandby(opts MemoryOptions) *Standby { return &Standby{NewMemory(opts)} }

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
	if err != nil {
		return nil, err
	}
	for i := range hits {
		decisions[i].Origin = hits[i].standIn(decisions[i].Origin)
	}
	return decisions, nil
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

// Learn takes over what the store said of the hits' counters, of those that it may
// have to decide (FailLocal) or that Left may be asked for (FixedWindow). How their use
// is spread over time is not known, and taken as all of it at now.
func (s *Standby) Learn(hits []Hit, decisions []Decision, now time.Time) {
	for i := range hits {
		h := &hits[i]
		if h.Limit.Requests == 0 || h.OnFailure != FailLocal && h.Limit.Algorithm != FixedWindow {
			continue
		}
		used := h.Limit.capacity() - int64(min(decisions[i].Remaining, uint64(h.Limit.capacity())))
		s.memory.put(h, used, now)
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
func (m *Memory) put(h *Hit, used int64, now time.Time) {
	l := &h.Limit
	t := l.ticks(now)
	f := l.Algorithm.functions()
	state, at, _ := f.advance(State{}, l, t)
	state = state.holding(used, l, t)
	expires := f.expires(state, l, at) * int64(l.Window.unit()/time.Microsecond)

	d := m.digest(h.Key)
	s := &m.shards[d.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	added := s.table(d).put(d, record{state.Time, state.Used, state.Previous, roundUp(expires)})
	if added && (used == 0 || m.count.Add(1) > int64(m.opts.MaxCounters)) {
		s.table(d).remove(d)
		if used > 0 {
			m.count.Add(-1)
		}
		return
	}
	if l.Algorithm == SlidingWindowLog {
		s.logs[d] = append(s.logs[d][:0], LogEntry{t, used})
	}
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
