package limiter

import (
	"time"
)

// Slot is one counter of a request: its state before Evaluate, and after.
type Slot struct {
	State   State
	Full    bool  // there is no room for this counter: the hit's failure policy decides
	Queue   bool  // the store has the queue that its hits overflow into
	Waiting int64 // how many requests wait there
	Changed bool  // set by Evaluate: State is not what it was
	Dropped bool  // set by Evaluate: the state was too far ahead of the clock
	Expires int64 // set by Evaluate if Changed, or if a bucket refuses, whose rate may have been lowered: when State says nothing any more, in µs since 1970

	advanced bool
	moment   moment
	departed bool // this request passes the queue and goes on at once
	promised bool // this request will wait too
}

// Options says how a request's hits belong together. The zero value is
// all-or-nothing.
type Options struct {
	ChargeEach bool // each hit on its own: what one refuses, another may charge
}

// Evaluate decides the hits of one request at one instant: hits[i] on
// slots[index[i]]. It is pure, and what every store must agree with.
//
// Refunds are made first, then hits in order. Hits on one counter are checked
// together. A refused request charges nothing but what count_denied counts, each
// limit its own refusals; a shadow or quota hit is charged if it passes by
// itself and the request passes. Decisions show the states after all.
func Evaluate(hits []Hit, index []int, slots []Slot, now time.Time, opts Options) []Decision {
	e := evaluation{hits: hits, index: index, slots: slots, now: now, decisions: make([]Decision, len(hits))}
	for i := range hits {
		if hits[i].Refund {
			e.refund(i)
		}
	}
	passes := true
	if opts.ChargeEach {
		for i := range hits {
			e.check(i)
			e.charge(i, true)
		}
	} else {
		e.findAhead()
		for i := range hits {
			e.check(i)
		}
		passes = Passes(hits, e.decisions)
		for i := range hits {
			e.charge(i, passes)
		}
	}
	for i := range hits {
		e.describe(i, passes)
	}
	return e.decisions
}

type evaluation struct {
	hits      []Hit
	index     []int
	slots     []Slot
	now       time.Time
	decisions []Decision
	ahead     []ahead // nil unless hits share a counter
}

// ahead is what a request's hits on one counter ask for before one of them.
type ahead struct {
	previous int   // the hit before it on the counter; -1: none
	cost     int64 // of the hits before it that it must pass together with
	passing  int64 // of the hits before it that pass
}

// findAhead links the hits that share a counter.
func (e *evaluation) findAhead() {
	if len(e.slots) == len(e.hits) {
		return
	}
	e.ahead = make([]ahead, len(e.hits))
	last := make([]int, len(e.slots)) // 1 + the last hit on each counter
	for i := range e.hits {
		e.ahead[i].previous = -1
		if !e.hits[i].Refund {
			e.ahead[i].previous = last[e.index[i]] - 1
			last[e.index[i]] = i + 1
		}
	}
}

// costAhead is what the hit must pass together with. All that enforced hits ask
// for must pass for any to; shadow and quota hits that refuse are left out, and
// so is all that a look's request will not charge.
func (e *evaluation) costAhead(i int) int64 {
	if e.ahead == nil || e.ahead[i].previous < 0 {
		return 0
	}
	a, p := &e.ahead[i], e.ahead[i].previous
	h, before := &e.hits[p], &e.ahead[p]
	a.cost, a.passing = before.cost, before.passing
	if e.decisions[p].Allowed {
		a.passing += e.cost(p)
	}
	if e.decisions[p].Allowed || !h.Shadow && !h.Quota {
		a.cost += e.cost(p)
	}
	if e.hits[i].Cost == 0 {
		return a.passing
	}
	return a.cost
}

// cost is what the hit asks of its counter's capacity: of a queue one place,
// whatever it costs to depart.
func (e *evaluation) cost(i int) int64 {
	if e.slots[e.index[i]].Queue {
		return min(e.hits[i].cost(), 1)
	}
	return e.hits[i].cost()
}

// counter is a hit's view of its counter at now.
type counter struct {
	*algorithm
	slot  *Slot
	limit *Limit
}

func (e *evaluation) counter(i int) counter {
	c := counter{slot: &e.slots[e.index[i]], limit: &e.hits[i].Limit}
	c.algorithm = c.limit.Algorithm.functions()
	if !c.slot.advanced {
		if c.slot.State.Used == 0 && c.slot.State.Previous == 0 {
			c.slot.State = State{} // it says nothing, whatever its time
		}
		s, m, ok := c.advance(c.slot.State, c.limit, c.limit.ticks(e.now))
		c.slot.State, c.slot.moment, c.slot.Dropped, c.slot.advanced = s, m, !ok, true
	}
	return c
}

func (c counter) room() int64 {
	if c.slot.Queue {
		return c.limit.capacity() - c.places()
	}
	return c.limit.capacity() - c.used(c.slot.State, c.limit, c.slot.moment)
}

// set keeps the new state.
func (c counter) set(s State) {
	c.slot.State, c.slot.Changed = s, true
	c.keep()
}

// keep notes how long the state is needed.
func (c counter) keep() {
	c.slot.Expires = c.expires(c.slot.State, c.limit, c.slot.moment) * int64(c.limit.Window.unit()/time.Microsecond)
}

func (e *evaluation) refund(i int) {
	h := &e.hits[i]
	e.decisions[i].Allowed = true
	if h.Limit.Requests == 0 || h.Cost == 0 {
		return
	}
	if c := e.counter(i); c.algorithm.refund != nil && c.used(c.slot.State, c.limit, c.slot.moment) > 0 {
		c.set(c.algorithm.refund(c.slot.State, c.limit, h.cost()))
	}
}

// check says whether the hit alone passes.
func (e *evaluation) check(i int) {
	h, d := &e.hits[i], &e.decisions[i]
	if h.Refund {
		return
	}
	before := e.costAhead(i)
	if h.Limit.Requests == 0 {
		return
	}
	c := e.counter(i)
	if c.slot.Full && h.Cost > 0 {
		d.Allowed, d.Origin = true, OriginOpen
		if h.OnFailure == FailDeny {
			d.Allowed, d.Origin = false, OriginClosed
		}
		return
	}
	d.Allowed = e.cost(i)+before <= c.room()
	if d.Allowed && h.holds() && !c.slot.Queue {
		delay := turn(c.slot.State, c.limit, before)
		d.Delay = c.limit.duration(delay)
		d.Allowed = delay <= h.patience()
	}
}

// holds tells whether a pass of this hit may be delayed: looks are never held.
func (h *Hit) holds() bool { return h.Limit.Algorithm == LeakyBucket && h.Cost > 0 }

// patience is the longest delay that the caller can wait, in units of time.
func (h *Hit) patience() int64 { return int64(max(0, h.MaxDelay) / h.Limit.Window.unit()) }

// charge adds the hit to its counter if it passes with its request, or if its
// own limit refuses it and counts what it denies. A refusal for the deadline's
// sake is never counted.
func (e *evaluation) charge(i int, passes bool) {
	h, d := &e.hits[i], &e.decisions[i]
	if h.Refund || h.Cost == 0 || h.Limit.Requests == 0 {
		return
	}
	c := e.counter(i)
	denied := c.limit.CountDenied && !d.Allowed && d.Delay == 0
	switch {
	case c.slot.Full:
	case c.slot.Queue:
		if d.Allowed && passes {
			c.enqueue(h, d)
		}
	case d.Allowed && passes || denied:
		c.set(c.algorithm.charge(c.slot.State, c.limit, c.slot.moment, h.cost()))
	}
}

// describe tells the state after the whole request.
func (e *evaluation) describe(i int, passes bool) {
	h, d := &e.hits[i], &e.decisions[i]
	if !passes || h.Shadow || !d.Allowed {
		d.Delay = 0
	}
	if h.Limit.Requests == 0 {
		return
	}
	c := e.counter(i)
	if c.slot.Full && h.Cost > 0 && !h.Refund {
		if d.Allowed {
			d.Remaining = uint64(c.limit.capacity())
		}
		return
	}
	d.Remaining = uint64(max(0, c.room()))
	d.ResetAfter = c.limit.duration(c.reset(c.slot.State, c.limit, c.slot.moment))
	if c.slot.Queue {
		d.ResetAfter = c.limit.duration(c.departure(c.waiting()))
	}
	if !d.Allowed {
		before := int64(0)
		if !passes { // else what was ahead is charged by now
			before = e.costAhead(i)
		}
		if c.slot.Queue {
			d.RetryAfter = c.limit.duration(c.nextPlace(e.cost(i) + before))
		} else {
			d.RetryAfter = c.retryAfter(h, before)
			if c.drains() {
				c.keep()
			}
		}
	}
}

// drains tells of a bucket that has something in it.
func (c counter) drains() bool {
	return (c.limit.Algorithm == TokenBucket || c.limit.Algorithm == LeakyBucket) && c.slot.State.Used > 0
}

// retryAfter is the time until the hit passes together with what is ahead of it
// in its request; 0 if it never can.
func (c counter) retryAfter(h *Hit, before int64) time.Duration {
	cost := h.cost() + before
	if cost > c.limit.capacity() || h.holds() && turn(State{}, c.limit, before) > h.patience() {
		return 0 // not even on a fresh counter
	}
	wait := c.wait(c.slot.State, c.limit, c.slot.moment, cost)
	if h.holds() {
		wait = max(wait, turn(c.slot.State, c.limit, before)-h.patience())
	}
	return c.limit.duration(wait)
}
