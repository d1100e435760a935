package limiter_test

import (
	"math"
	"math/big"
	"time"

	"weir/limiter"
)

// oracle is one counter, written naively from its algorithm's definition. It
// shares no code with the package: what used says at any time to come decides
// everything, and waits are found by trying.
//
// Times are whole units since 1970. Only charges and refunds move the counter's
// own time: looks and refusals leave it as it is.
type oracle interface {
	empty() bool                              // nothing is kept: as new, whatever its time
	own(now, w int64) int64                   // now, or the counter's own time where that is later
	used(at, w int64, l *limiter.Limit) int64 // what counts against the capacity at a time not before own
	charge(at, w int64, l *limiter.Limit, cost int64)
	refund(at, w int64, l *limiter.Limit, cost int64)
}

func newOracle(a limiter.Algorithm) oracle {
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		return &bucketOracle{level: new(big.Rat)}
	case limiter.SlidingWindowLog:
		return &logOracle{}
	case limiter.SlidingWindowCounter:
		return &windowOracle{sliding: true}
	}
	return &windowOracle{}
}

// ask decides one hit. Where something was written it returns the oracle anew.
func ask(o oracle, h limiter.Hit, now time.Time) (limiter.Decision, oracle) {
	l, before := &h.Limit, o
	if l.Requests == 0 {
		return limiter.Decision{Allowed: h.Refund}, o
	}
	unit := int64(time.Microsecond)
	if l.Window.Length > time.Hour {
		unit = int64(time.Millisecond)
	}
	w, t := int64(l.Window.Length)/unit, ticks(now, time.Duration(unit))
	capacity, cost := capacityOf(l), int64(min(h.Cost, 1<<32))
	if o.empty() || o.own(t, w)-t > w {
		o = newOracle(l.Algorithm) // farther ahead it is dropped
	}
	at, written := o.own(t, w), false
	var d limiter.Decision
	late := false
	turn := func(from int64) bool { // whether the delay of a hit that comes then fits its deadline
		b, ok := o.(*bucketOracle)
		return !ok || l.Algorithm != limiter.LeakyBucket || cost == 0 || b.delay(from, w, l) <= int64(max(0, h.MaxDelay))/unit
	}
	switch {
	case h.Refund:
		d.Allowed = true
		if cost > 0 && o.used(at, w, l) > 0 && l.Algorithm != limiter.LeakyBucket {
			o.refund(at, w, l, cost)
			written = true
		}
	case o.used(at, w, l)+cost > capacity:
	default:
		late = !turn(at)
		d.Allowed = !late
		if b, ok := o.(*bucketOracle); ok && d.Allowed && l.Algorithm == limiter.LeakyBucket && cost > 0 {
			d.Delay = longest(b.delay(at, w, l), unit)
		}
	}
	if !h.Refund && cost > 0 && (d.Allowed || l.CountDenied && !late) {
		o.charge(at, w, l, cost)
		written = true
	}
	d.Remaining = uint64(max(0, capacity-o.used(at, w, l)))
	d.ResetAfter = longest(first(func(wait int64) bool { return o.used(at+wait, w, l) == 0 }), unit)
	if !d.Allowed && cost <= capacity {
		d.RetryAfter = longest(first(func(wait int64) bool { return o.used(at+wait, w, l)+cost <= capacity && turn(at+wait) }), unit)
	}
	if written {
		return d, o
	}
	return d, before
}

func capacityOf(l *limiter.Limit) int64 {
	switch l.Algorithm {
	case limiter.TokenBucket:
		return int64(l.Burst)
	case limiter.LeakyBucket:
		return int64(l.Queue) + 1
	}
	return int64(l.Requests)
}

// ticks are the whole units since 1970.
func ticks(now time.Time, unit time.Duration) int64 {
	if unit == time.Millisecond {
		return now.UnixMilli()
	}
	return now.UnixMicro()
}

// longest is the time of so many units, or the longest there is, 292 years.
func longest(units, unit int64) time.Duration {
	if units > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return time.Duration(units * unit)
}

// first is the least wait for which ok holds, where it holds from then on.
func first(ok func(wait int64) bool) int64 {
	low, high := int64(-1), int64(0)
	for ; !ok(high); high = 2*high + 1 {
		low = high
	}
	for high-low > 1 {
		if middle := (low + high) / 2; ok(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// windowOracle has a number for each window there ever was.
type windowOracle struct {
	sliding bool
	hits    map[int64]int64 // by the window's number since 1970
	latest  int64           // the last one written to
}

func (o *windowOracle) empty() bool {
	return o.hits[o.latest] == 0 && (!o.sliding || o.hits[o.latest-1] == 0)
}

func (o *windowOracle) own(now, w int64) int64 { return max(now, o.latest*w) }

func (o *windowOracle) used(at, w int64, _ *limiter.Limit) int64 {
	n, x := at/w, at%w
	if !o.sliding {
		return o.hits[n]
	}
	return int64(math.Floor(float64(o.hits[n-1])*float64(w-x)/float64(w))) + o.hits[n]
}

func (o *windowOracle) charge(at, w int64, l *limiter.Limit, cost int64) {
	o.write(at / w)
	if room := 2*int64(l.Requests) - o.used(at, w, l); room > 0 { // no further than twice the limit
		o.hits[at/w] += min(cost, room)
	}
}

func (o *windowOracle) refund(at, w int64, _ *limiter.Limit, cost int64) {
	o.write(at / w)
	for n := at / w; n >= at/w-1; n-- {
		if n < at/w && !o.sliding {
			return
		}
		back := min(cost, o.hits[n])
		o.hits[n] -= back
		cost -= back
	}
}

func (o *windowOracle) write(n int64) {
	if o.hits == nil {
		o.hits = make(map[int64]int64)
	}
	o.latest = n
}

// logOracle is the time of each single unit of cost, oldest first.
type logOracle struct{ times []int64 }

func (o *logOracle) empty() bool { return len(o.times) == 0 }

func (o *logOracle) own(now, _ int64) int64 {
	for _, t := range o.times {
		now = max(now, t)
	}
	return now
}

func (o *logOracle) used(at, w int64, _ *limiter.Limit) int64 {
	n := int64(0)
	for _, t := range o.times {
		if at-t < w {
			n++
		}
	}
	return n
}

func (o *logOracle) charge(at, w int64, l *limiter.Limit, cost int64) {
	o.forget(at, w)
	for range min(cost, int64(l.Requests)+1) {
		o.times = append(o.times, at)
	}
	for int64(len(o.times)) > int64(l.Requests)+1 {
		o.times = o.times[1:]
	}
}

func (o *logOracle) refund(at, w int64, _ *limiter.Limit, cost int64) {
	o.forget(at, w)
	for ; cost > 0 && len(o.times) > 0; cost-- {
		o.times = o.times[:len(o.times)-1]
	}
}

func (o *logOracle) forget(at, w int64) {
	for len(o.times) > 0 && at-o.times[0] >= w {
		o.times = o.times[1:]
	}
}

// bucketOracle is a level of cost, a fraction, as it was when last written.
type bucketOracle struct {
	level *big.Rat
	time  int64
}

func (o *bucketOracle) empty() bool { return o.level.Sign() == 0 }

func (o *bucketOracle) own(now, _ int64) int64 { return max(now, o.time) }

// at is the level then: limit in w units of time have drained.
func (o *bucketOracle) at(t, w int64, l *limiter.Limit) *big.Rat {
	drained := new(big.Rat).Mul(big.NewRat(t-o.time, w), new(big.Rat).SetInt64(int64(l.Requests)))
	if level := new(big.Rat).Sub(o.level, drained); level.Sign() > 0 {
		return level
	}
	return new(big.Rat)
}

func (o *bucketOracle) used(t, w int64, l *limiter.Limit) int64 { return roundUp(o.at(t, w, l)) }

// delay is the time that the level takes to drain.
func (o *bucketOracle) delay(t, w int64, l *limiter.Limit) int64 {
	return roundUp(new(big.Rat).Mul(o.at(t, w, l), big.NewRat(w, int64(l.Requests))))
}

func (o *bucketOracle) charge(t, w int64, l *limiter.Limit, cost int64) {
	most := new(big.Rat).SetInt64(capacityOf(l) + int64(l.Requests))
	if whole := big.NewRat(1<<53-1, w); most.Cmp(whole) > 0 { // states are whole numbers below 2^53
		most = whole
	}
	before := o.at(t, w, l)
	o.level, o.time = new(big.Rat).Add(before, new(big.Rat).SetInt64(cost)), t
	if o.level.Cmp(most) > 0 { // no further than that, but nothing is taken away
		o.level = most
		if before.Cmp(most) > 0 {
			o.level = before
		}
	}
}

func (o *bucketOracle) refund(t, w int64, l *limiter.Limit, cost int64) {
	o.level, o.time = o.at(t, w, l), t
	if o.level.Sub(o.level, new(big.Rat).SetInt64(cost)); o.level.Sign() < 0 {
		o.level = new(big.Rat)
	}
}

func roundUp(r *big.Rat) int64 {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return n.Div(n, r.Denom()).Int64()
}
