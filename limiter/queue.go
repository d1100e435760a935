package limiter

// A hit with an Overflow queue never waits at its leaky bucket. While nobody waits
// in the queue and the bucket is empty, its request departs at once; else it takes
// one place in the queue, of which there are Limit.Queue, and who empties the queue
// charges the bucket when it departs. So both together depart at the limit's rate,
// and none overtakes one that waits.
//
// A store that has no queue refuses what cannot depart at once.

// places is how many places are taken: by who waits, and by who departed last.
func (c counter) places() int64 {
	n := c.waiting()
	if n > 0 || c.slot.State.Used > 0 {
		n++
	}
	return n
}

// waiting is how many wait, the request itself included once it is told to.
func (c counter) waiting() int64 {
	if c.slot.promised {
		return c.slot.Waiting + 1
	}
	return c.slot.Waiting
}

// departure is the time until one with so many ahead of it departs.
func (c counter) departure(ahead int64) int64 {
	return drainTime(c.slot.State.Used+ahead*c.limit.length(), c.limit)
}

// enqueue has the request depart, or wait. Hits that share the queue do alike.
func (c counter) enqueue(h *Hit, d *Decision) {
	s := &c.slot.State
	if c.slot.Waiting == 0 && (s.Used == 0 || c.slot.departed) {
		c.slot.departed = true
		after := *s
		after.Used = min(after.Used+min(h.cost(), c.limit.mostBacklog()/c.limit.length())*c.limit.length(), maxWhole)
		c.set(after)
		return
	}
	if !h.Shadow {
		d.Queued, d.Delay = true, c.limit.duration(c.departure(c.slot.Waiting))
		c.slot.promised = true
	}
}

// nextPlace is the time until a place is free again, if whoever empties the queue
// does: at the next departure.
func (c counter) nextPlace(places int64) int64 {
	if places > c.limit.capacity() {
		return 0
	}
	if used := c.slot.State.Used; used > 0 {
		return drainTime(used, c.limit)
	}
	return drainTime(c.limit.length(), c.limit)
}
