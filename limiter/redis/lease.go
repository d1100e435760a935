package redis

import (
	"sync"
	"time"

	"weir/limiter"
)

// A lease is hits that an instance was charged in advance, in one window of a
// counter (Limit.Lease). It spends them without asking Redis, so that a hot counter
// costs what one in memory does, and gives back what it does not need. Redis has
// charged them all, so the limit is never exceeded; what an instance holds when it
// is killed stays unused until the window ends.
//
// Leases are taken and given back in the background. No request waits for one: what
// the lease does not cover is asked of Redis.

// leaseTable is the leases of an instance. It is bounded: a counter that finds no
// room is asked of Redis each time, as without leases.
type leaseTable struct {
	shards [leaseShards]leaseShard
}

type leaseShard struct {
	mu     sync.Mutex
	leases map[keyHash]*lease
	count  LeaseCounts
	_      [64]byte // apart from the next shard's lock
}

// Bounds of the table, of 16,384 leases in a few megabytes.
const (
	leaseShards   = 64
	maxLeases     = 256 // of a shard
	leaseEvictees = 8   // how many are looked at to find one to evict
)

// Times and sizes of leases.
const (
	leaseTick   = 250 * time.Millisecond // between sweeps
	leaseIdle   = time.Second            // without a hit, after which all is given back
	leaseSpan   = time.Second            // for so long, about, a lease is to last
	firstLease  = 8                      // no smaller size takes anything; rules may want less
	leaseSpare  = 4                      // more than so many spans' hits are not kept
	takeRefused = 50 * time.Millisecond  // after which the next may be tried
	takeFailed  = time.Second
)

// LeaseCounts are what became of leases since the start. What was taken and is
// neither spent, returned nor lost is in hand.
type LeaseCounts struct {
	Taken    uint64 // hits
	Spent    uint64 // hits that were decided without asking Redis
	Returned uint64 // hits given back to Redis
	Lost     uint64 // hits unused at their window's end, or that Redis may have charged and did not say so
	Takes    uint64 // tries that took some
	Refused  uint64 // tries for which too little was left
	Failed   uint64 // tries that Redis did not answer
}

func (c *LeaseCounts) add(o *LeaseCounts) {
	c.Taken += o.Taken
	c.Spent += o.Spent
	c.Returned += o.Returned
	c.Lost += o.Lost
	c.Takes += o.Takes
	c.Refused += o.Refused
	c.Failed += o.Failed
}

// instant is a time as leases compare it: since the store was opened, by the
// monotonic clock and by the wall's. A lease ends by whichever is there first: the
// wall clock may be set back, and the monotonic one stands still while a machine
// sleeps.
type instant struct{ mono, wall time.Duration }

func (t instant) add(d time.Duration) instant { return instant{t.mono + d, t.wall + d} }

func (t instant) reached(end instant) bool { return t.mono >= end.mono || t.wall >= end.wall }

// lease is what this instance has of a counter. left + lent + asked is never over
// limit.Lease.
type lease struct {
	limit     limiter.Limit // another one ends it
	left      uint64        // hits in hand
	lent      uint64        // of requests that are not decided yet, which may put them back
	asked     uint64        // by the take that is under way; 0: none is
	full      uint64        // left after the last take
	size      uint64        // how many to hold: grows with use, from 1
	receipt   int64         // names the window of left, and of lent
	end       instant       // of that window, or a little before
	remaining uint64        // in Redis, as it said last
	told      time.Time     // when it answered the last take
	heard     bool          // since the take under way began it has answered others

	active  time.Duration // when there was a hit last, about
	grown   time.Duration // when size grew last, or was used up
	checked time.Duration // since when hits are counted
	hits    uint64
	seen    uint64        // of hits, by the last sweep
	resume  time.Duration // not to take anything before
	gone    bool          // the table has it no more
	void    bool          // and what it is still given is not to be returned
}

// loan is hits that were spent from a lease.
type loan struct {
	lease   *lease // nil: none was
	receipt int64
}

// errand is what is to be done for a lease in the background: a take, or giving
// back by receipt.
type errand struct {
	counter keyHash
	lease   *lease
	limit   limiter.Limit
	hits    uint64 // 0: there is nothing to do
	back    bool
	receipt int64
}

func newLeaseTable() *leaseTable {
	t := new(leaseTable)
	for i := range t.shards {
		t.shards[i].leases = make(map[keyHash]*lease)
	}
	return t
}

func (t *leaseTable) shard(k keyHash) *leaseShard { return &t.shards[k[1]%leaseShards] }

// leasable tells whether the hit may be spent from a lease.
func leasable(h *limiter.Hit) bool {
	return h.Limit.Lease > 1 && h.Limit.Algorithm == limiter.FixedWindow && h.Cost > 0 && !h.Refund && h.Overflow == nil && h.Limit.Requests > 0
}

// spend takes a hit out of the lease, if that covers it, and decides it. If lend is
// true, it stays to be settled. More hits are to be taken if ask is over 0.
func (t *leaseTable) spend(h *limiter.Hit, k keyHash, now instant, lend bool) (d limiter.Decision, from loan, ask uint64) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil || l.left < h.Cost || l.limit != h.Limit || now.reached(l.end) {
		return d, from, 0
	}
	l.left -= h.Cost
	l.hits += h.Cost
	if lend {
		l.lent += h.Cost
	} else {
		s.count.Spent += h.Cost
	}
	if l.left < l.full/4 || l.left == 0 {
		if now.mono-l.grown <= leaseSpan {
			l.grow()
		}
		l.grown = now.mono
		ask = l.take(now)
	}
	d.Allowed, d.Remaining, d.ResetAfter = true, l.remains(), l.end.mono-now.mono
	return d, loan{l, l.receipt}, ask
}

// settle ends a loan: the hits are spent, or put back. It returns what remains then,
// for the decision.
func (t *leaseTable) settle(from loan, k keyHash, cost uint64, spent bool) (remaining uint64) {
	s, l := t.shard(k), from.lease
	s.mu.Lock()
	defer s.mu.Unlock()
	same := !l.gone && l.receipt == from.receipt && l.lent >= cost
	if same {
		l.lent -= cost
	}
	switch {
	case spent:
		s.count.Spent += cost
	case same:
		l.left += cost
		l.hits -= min(cost, l.hits)
	default: // it was for a window that is over, or another limit
		s.count.Lost += cost
	}
	return l.remains()
}

// remains is what is left for this instance: never more than the limit, though a Redis
// that forgot what was used may have that left beside what is in hand.
func (l *lease) remains() uint64 { return min(l.remaining+l.left, l.limit.Requests) }

// grow doubles how many are held.
func (l *lease) grow() { l.size = min(2*l.size, l.limit.Lease) }

// take begins a take of so many hits; 0: it is not worth while. Of what Redis has left only a share is
// asked for, so that the end of it is shared hit by hit.
func (l *lease) take(now instant) uint64 {
	held := l.left + l.lent
	if now.reached(l.end) {
		held = 0
	}
	if l.asked > 0 || now.mono < l.resume || l.size < min(firstLease, l.limit.Lease) || held >= l.size {
		return 0
	}
	n := min(l.size-held, l.remaining/limiter.LeaseShare)
	if n < 2 {
		return 0
	}
	l.asked, l.heard = n, false
	return n
}

// decided notes what Redis decided of a hit that no lease covered, asked for at a
// time: demand, or that there is no more. A refusal of what would pass with what is
// in hand has that given back, so that the hit can have it the next time.
func (t *leaseTable) decided(h *limiter.Hit, d *limiter.Decision, k keyHash, at instant, asked time.Time) (back, take errand) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l != nil && l.limit != h.Limit {
		back = s.drop(k, l, at)
		l = nil
	}
	if !d.Allowed {
		if l != nil && l.left > 0 && !at.reached(l.end) && d.Remaining+l.left >= h.Cost {
			back = s.giveUp(k, l, l.left)
			l.size = 1
		}
		return back, take
	}
	if l == nil {
		if !s.makeRoom() {
			return back, take
		}
		s.leases[k] = &lease{limit: h.Limit, size: 1, remaining: d.Remaining, active: at.mono, grown: at.mono, checked: at.mono}
		return back, take
	}
	switch {
	case at.mono-l.active > leaseIdle:
		l.size = 1
	case l.asked == 0:
		l.grow()
	}
	l.remaining, l.active, l.grown = l.newer(d.Remaining, asked), max(l.active, at.mono), max(l.grown, at.mono)
	l.heard = true
	if n := l.take(at); n > 0 {
		take = errand{counter: k, lease: l, limit: l.limit, hits: n}
	}
	return back, take
}

// makeRoom evicts a counter that has no hits in hand if the shard is full.
func (s *leaseShard) makeRoom() bool {
	if len(s.leases) < maxLeases {
		return true
	}
	looked := 0
	for k, l := range s.leases {
		if l.left+l.lent+l.asked == 0 {
			l.gone = true
			delete(s.leases, k)
			return true
		}
		if looked++; looked == leaseEvictees {
			break
		}
	}
	return false
}

// drop takes a lease out of the table. What it has is to be given back.
func (s *leaseShard) drop(k keyHash, l *lease, now instant) errand {
	l.gone = true
	delete(s.leases, k)
	if now.reached(l.end) {
		s.count.Lost += l.left
		return errand{}
	}
	return s.giveUp(k, l, l.left)
}

// giveUp takes hits out of a lease, which are to be given back.
func (s *leaseShard) giveUp(k keyHash, l *lease, n uint64) errand {
	l.left -= n
	l.full = l.left
	return errand{counter: k, limit: l.limit, hits: n, back: true, receipt: l.receipt}
}

// granted is what became of a take.
type granted struct {
	decision limiter.Decision
	receipt  int64
	asked    instant // when Redis was asked
	failed   bool    // Redis did not answer, or was not asked
	lost     bool    // and may have charged it
}

// taken ends a take. What comes too late is to be given back.
func (t *leaseTable) taken(e errand, g granted, now instant) (back errand) {
	s, l := t.shard(e.counter), e.lease
	s.mu.Lock()
	defer s.mu.Unlock()
	l.asked = 0
	switch {
	case g.failed:
		l.size, l.resume = 1, now.mono+takeFailed
		s.count.Failed++
		if g.lost {
			s.count.Taken += e.hits
			s.count.Lost += e.hits
		}
		return errand{}
	case !g.decision.Allowed:
		l.size, l.resume, l.remaining = 1, now.mono+takeRefused, g.decision.Remaining
		s.count.Refused++
		return errand{}
	}
	s.count.Takes++
	s.count.Taken += e.hits
	switch {
	case l.void:
		s.count.Lost += e.hits
		return errand{}
	case l.gone:
		return errand{counter: e.counter, limit: e.limit, hits: e.hits, back: true, receipt: g.receipt}
	}
	if g.receipt != l.receipt || now.reached(l.end) {
		s.count.Lost += l.left
		l.left, l.lent = 0, 0
	}
	if l.left+l.lent == 0 {
		l.checked, l.hits, l.seen = now.mono, 0, 0
	}
	l.left += e.hits
	remaining := g.decision.Remaining
	if l.heard { // which of the two Redis said later is not known
		remaining = min(remaining, l.remaining)
	}
	l.full, l.receipt, l.remaining, l.told = l.left, g.receipt, remaining, time.Now()
	// Redis said so at some moment since it was asked, and its times are cut to units.
	l.end = g.asked.add(g.decision.ResetAfter - l.limit.Numbers().Unit)
	return errand{}
}

// show has a decision of Redis, which was asked at a time, tell what remains for this
// instance: what it has in hand too, which Redis has counted.
func (t *leaseTable) show(h *limiter.Hit, d *limiter.Decision, k keyHash, now instant, asked time.Time) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[k]
	if l == nil || l.limit != h.Limit || now.reached(l.end) {
		return
	}
	d.Remaining = min(l.newer(d.Remaining, asked)+l.left, h.Limit.Requests)
}

// newer is what Redis has left by an answer to what was asked at a time. Whether it
// had counted a take that was under way then is not known.
func (l *lease) newer(remaining uint64, asked time.Time) uint64 {
	if asked.Before(l.told) {
		return min(remaining, l.remaining)
	}
	return remaining
}

// counted notes what became of an errand to give back.
func (t *leaseTable) counted(e *errand, ok bool) {
	s := t.shard(e.counter)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.count.Returned += e.hits
	} else {
		s.count.Lost += e.hits
	}
}

// totals are the counts, and how many counters have hits in hand.
func (t *leaseTable) totals() (c LeaseCounts, held int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		c.add(&s.count)
		for _, l := range s.leases {
			if l.left > 0 {
				held++
			}
		}
		s.mu.Unlock()
	}
	return c, held
}
