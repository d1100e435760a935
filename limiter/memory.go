package limiter

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// MemoryOptions configures a Memory store. The zero value is its default.
type MemoryOptions struct {
	Options
	MaxCounters int              // how many counters it holds at most; 0: DefaultMaxCounters
	Now         func() time.Time // the clock; nil: time.Now
	OnFull      func()           // called when a new counter finds no room; may be nil
	OnDropped   func()           // called when a counter too far ahead of the clock is dropped; may be nil
}

// DefaultMaxCounters bounds a Memory store to about 50 MB, logs aside.
const DefaultMaxCounters = 1_000_000

const shards = 64 // one bit each in a request's set of locks

// Memory keeps counters in this process: exact under parallel load and gone
// with the process. Live counters are never evicted: when it is full, a new
// counter's hit is decided by its failure policy, where FailLocal allows.
type Memory struct {
	opts     MemoryOptions
	seeds    [2]maphash.Seed
	requests sync.Pool    // of *request
	count    atomic.Int64 // counters held or promised
	shards   [shards]shard

	sweeping  sync.Mutex
	nextSweep atomic.Int64 // not before this time, in ns of process time
	start     time.Time
	held      peak // of sweeps
}

type shard struct {
	mu     sync.Mutex
	tables [tables]table
	logs   map[digest][]LogEntry // of the counters that have one
	_      [64]byte              // apart from the next shard's lock
}

// tables share a shard's counters, so that to grow or to sweep one takes little time
// under the lock.
const tables = 64

// digest is a seeded hash of 128 bits: clients cannot make two keys meet.
type digest [2]uint64

// NewMemory returns an empty store.
func NewMemory(opts MemoryOptions) *Memory {
	if opts.MaxCounters == 0 {
		opts.MaxCounters = DefaultMaxCounters
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	m := &Memory{opts: opts, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, start: time.Now()}
	m.requests.New = func() any { return new(request) }
	for i := range m.shards {
		m.shards[i].logs = make(map[digest][]LogEntry)
	}
	return m
}

// request is what Decide works with for one request.
type request struct {
	digests  []digest // by slot
	index    []int
	slots    []Slot
	held     []bool // by slot: the counter exists
	reserved []bool // by slot: it has room to begin
	locks    uint64 // a bit for each shard
}

// Decide implements Store.
func (m *Memory) Decide(ctx context.Context, hits []Hit) ([]Decision, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.count.Load()+int64(len(hits)) > int64(m.opts.MaxCounters) {
		m.sweepSoon()
	}
	r := m.requests.Get().(*request)
	defer m.requests.Put(r)
	m.gather(r, hits)
	m.lock(r.locks)
	defer m.unlock(r.locks)
	if err := m.load(r, hits); err != nil {
		return nil, err
	}
	decisions := Evaluate(hits, r.index, r.slots, m.opts.Now(), m.opts.Options)
	m.save(r)
	return decisions, nil
}

// gather finds the counters of the hits, one slot each.
func (m *Memory) gather(r *request, hits []Hit) {
	r.digests, r.index, r.slots, r.locks = r.digests[:0], r.index[:0], r.slots[:0], 0
	r.held, r.reserved = r.held[:0], r.reserved[:0]
	var seen map[digest]int // of requests with many hits
	if len(hits) > 16 {
		seen = make(map[digest]int, len(hits))
	}
	for i := range hits {
		d := m.digest(hits[i].Key)
		at, found := seen[d]
		for j := 0; seen == nil && j < len(r.digests) && !found; j++ {
			at, found = j, r.digests[j] == d
		}
		if !found {
			at = len(r.digests)
			r.digests = append(r.digests, d)
			r.slots = append(r.slots, Slot{})
			r.held = append(r.held, false)
			r.reserved = append(r.reserved, false)
			r.locks |= 1 << d.shard()
			if seen != nil {
				seen[d] = at
			}
		}
		r.index = append(r.index, at)
	}
}

func (m *Memory) digest(k Key) digest {
	return digest{maphash.Bytes(m.seeds[0], k), maphash.Bytes(m.seeds[1], k)}
}

func (d digest) shard() int { return int(d[0] % shards) }

// table is the one that has the digest's counter. The shard's lock is held.
func (s *shard) table(d digest) *table { return &s.tables[d[0]/shards%tables] }

// lock takes the shards' locks in order, so that no two requests wait for each
// other.
func (m *Memory) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (m *Memory) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		m.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// load reads the counters' states and reserves room for those that the hits
// would begin.
func (m *Memory) load(r *request, hits []Hit) error {
	for i, d := range r.digests {
		r.slots[i].State, r.held[i] = m.shards[d.shard()].state(d)
	}
	for i := range hits {
		at := r.index[i]
		if r.held[at] || r.reserved[at] || r.slots[at].Full || !hits[i].begins() {
			continue
		}
		if m.count.Add(1) > int64(m.opts.MaxCounters) {
			m.count.Add(-1)
			r.slots[at].Full = true
		} else {
			r.reserved[at] = true
		}
	}
	return m.full(r, hits)
}

// state is what a counter holds, if it is held. s.mu is held.
func (s *shard) state(d digest) (state State, held bool) {
	counter := s.table(d).get(d)
	if counter == nil {
		return State{}, false
	}
	c := counter.record()
	state = State{Time: c.time, Used: c.used, Previous: c.previous}
	if len(s.logs) > 0 {
		state.Log = s.logs[d]
	}
	return state, true
}

// begins tells whether the hit may begin a counter: looks, refunds and limit 0
// never do.
func (h *Hit) begins() bool { return h.Cost > 0 && !h.Refund && h.Limit.Requests > 0 }

// full calls OnFull if a hit finds no room, and fails if one wants an error then.
func (m *Memory) full(r *request, hits []Hit) error {
	turnedAway := false
	for i := range hits {
		if h := &hits[i]; r.slots[r.index[i]].Full && h.begins() {
			turnedAway = true
			if h.OnFailure == FailError && !h.Shadow {
				m.save(r)
				m.onFull()
				return fmt.Errorf("%w: it holds %d counters, all it may (--memory-max-counters)", ErrUnavailable, m.opts.MaxCounters)
			}
		}
	}
	if turnedAway {
		m.onFull()
	}
	return nil
}

func (m *Memory) onFull() {
	if m.opts.OnFull != nil {
		m.opts.OnFull()
	}
}

// save writes what has changed and gives back the room that was not needed.
func (m *Memory) save(r *request) {
	for i := range r.slots {
		slot, d := &r.slots[i], r.digests[i]
		s := &m.shards[d.shard()]
		if slot.Dropped && m.opts.OnDropped != nil {
			m.opts.OnDropped()
		}
		switch empty := slot.State.Used == 0 && slot.State.Previous == 0; {
		case slot.Changed && empty: // a refund has left nothing to remember
			s.table(d).remove(d)
			delete(s.logs, d)
			if r.held[i] || r.reserved[i] {
				m.count.Add(-1)
			}
		case slot.Changed:
			s.table(d).put(d, record{slot.State.Time, slot.State.Used, slot.State.Previous, roundUp(slot.Expires)})
			if slot.State.Log != nil {
				s.logs[d] = slot.State.Log
			}
		case r.reserved[i]:
			m.count.Add(-1)
		case slot.Expires > 0:
			s.table(d).prolong(d, roundUp(slot.Expires))
		}
		slot.State.Log = nil // the pool must not keep it
	}
}

// Len is how many counters it holds, some of which may have ended.
func (m *Memory) Len() int { return int(m.count.Load()) }

// roundUp turns µs into expiryUnits.
func roundUp(µs int64) int64 { return (µs + expiryUnit - 1) / expiryUnit }

// Sweep removes the counters that have ended. It holds a shard's lock for a table at
// a time only.
func (m *Memory) Sweep() { m.sweep(func() {}) }

// sweep pauses now and then, with no lock held. Its own share of the processor then
// does not end while it has one.
func (m *Memory) sweep(pause func()) {
	now := m.opts.Now().UnixMicro() / expiryUnit
	longest := time.Duration(0)
	for i := range m.shards {
		for j := range tables {
			longest = max(longest, m.shards[i].sweep(j, now, &m.count))
			if j%8 == 7 {
				pause()
			}
		}
	}
	m.held.note(time.Since(m.start), longest)
}

// SweepLock is the longest time for which a sweep has held a lock, and kept requests
// waiting, in the last one or two minutes; waits for a processor are in it.
func (m *Memory) SweepLock() time.Duration { return m.held.read(time.Since(m.start)) }

// sweep returns how long it has held the lock.
func (s *shard) sweep(table int, now int64, count *atomic.Int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Now()
	before := s.tables[table].n
	s.tables[table].sweep(now, func(d digest) {
		if len(s.logs) > 0 {
			delete(s.logs, d)
		}
	})
	count.Add(int64(s.tables[table].n - before))
	return time.Since(begin)
}

// sweepSoon sweeps a full store, but spends a tenth of the time on it at most.
func (m *Memory) sweepSoon() {
	begin := int64(time.Since(m.start))
	if begin < m.nextSweep.Load() || !m.sweeping.TryLock() {
		return
	}
	defer m.sweeping.Unlock()
	m.Sweep()
	end := int64(time.Since(m.start))
	m.nextSweep.Store(end + 10*(end-begin))
}

// Run sweeps every interval until the context ends.
func (m *Memory) Run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.sweep(runtime.Gosched)
		}
	}
}
