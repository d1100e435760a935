package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/limiter"
)

// ReplayOptions says what Replay plays. The zero value of all but New is its
// default.
type ReplayOptions struct {
	New        New
	Steps      int                 // requests; 0: 10,000
	Seed       uint64              // of the trace; a failure prints it
	Algorithms []limiter.Algorithm // none: all five
	ChargeEach bool

	// Steady keeps limits as they are and lets the clock only go forward: for a
	// store that forgets a counter when it ends, which a lower limit or an
	// earlier clock would have brought back.
	Steady bool

	// Forget has the store forget a counter of a fixed window that ended long ago: for
	// one whose counters end by another clock than the trace's, and that tells so many
	// windows apart (distinct). nil: there is no need.
	Forget func(t *testing.T, key limiter.Key)

	// SetWaiting makes so many requests wait in a queue of the store; nil: it has
	// none. Some leaky buckets then overflow into queues.
	SetWaiting func(t *testing.T, overflow limiter.Key, n int64)
}

// Replay plays one random trace of requests, of one hit and of several, through
// limiter.Evaluate and through a store. Every field of every decision must agree.
func Replay(t *testing.T, opts ReplayOptions) {
	if opts.Steps == 0 {
		opts.Steps = 10_000
	}
	if len(opts.Algorithms) == 0 {
		opts.Algorithms = []limiter.Algorithm{limiter.FixedWindow, limiter.TokenBucket, limiter.LeakyBucket, limiter.SlidingWindowLog, limiter.SlidingWindowCounter}
	}
	clock := NewClock(start)
	store := opts.New(t, limiter.Options{ChargeEach: opts.ChargeEach}, clock.Now)
	reference := NewReference(limiter.Options{ChargeEach: opts.ChargeEach}, clock.Now)
	tr := newTrace(opts)
	for step := range opts.Steps {
		clock.Add(tr.elapsed())
		hits := tr.request()
		for _, key := range tr.ended(hits, clock.Now()) {
			reference.Forget(key)
			opts.Forget(t, key)
		}
		for _, overflow := range tr.overflows(hits) {
			n := tr.waiting()
			reference.SetWaiting(overflow, n)
			opts.SetWaiting(t, overflow, n)
		}
		want, _ := reference.Decide(context.Background(), hits)
		got, err := store.Decide(context.Background(), hits)
		if err == nil && len(got) != len(hits) {
			err = fmt.Errorf("%d decisions", len(got))
		}
		if err != nil {
			t.Fatalf("seed %d, step %d: Decide on %d hits: %v", opts.Seed, step, len(hits), err)
		}
		for i := range hits {
			if got[i] != want[i] {
				t.Fatalf("seed %d, step %d at %s, hit %d:\n got %s\nwant %s\nof the request\n%s", opts.Seed, step,
					clock.Now().Format(time.RFC3339Nano), i, Words(got[i]), Words(want[i]), describe(hits, reference))
			}
		}
	}
}

// describe writes a request and what its counters remember after it.
func describe(hits []limiter.Hit, r *Reference) string {
	var b strings.Builder
	for _, h := range hits {
		l := h.Limit
		fmt.Fprintf(&b, "  %q %v %d per %v burst %d queue %d denied %t: cost %d refund %t shadow %t quota %t patience %v; then %+v\n", h.Key, l.Algorithm,
			l.Requests, l.Window, l.Burst, l.Queue, l.CountDenied, h.Cost, h.Refund, h.Shadow, h.Quota, h.MaxDelay, r.State(string(h.Key)))
	}
	return b.String()
}

// trace makes requests up.
type trace struct {
	*rand.Rand
	opts   ReplayOptions
	keys   []limiter.Key
	limits []limiter.Limit      // by key
	asked  map[string]time.Time // when a key was last in a request
}

// distinct is how many windows of a fixed window are told apart by any store that wants
// Forget, at least.
const distinct = 1 << 17

// ended lists those counters of a request that surely have, in a store that goes by the
// trace's clock.
func (tr *trace) ended(hits []limiter.Hit, now time.Time) (keys []limiter.Key) {
	if tr.opts.Forget == nil {
		return nil
	}
	for _, h := range hits {
		last, before := tr.asked[string(h.Key)]
		if before && h.Limit.Algorithm == limiter.FixedWindow && h.Limit.Window.Length > 0 && now.Sub(last)/distinct >= h.Limit.Window.Length {
			keys = append(keys, h.Key)
		}
		tr.asked[string(h.Key)] = now
	}
	return keys
}

// The windows of a trace: of both units of time, and one of the calendar.
var windows = []limiter.Window{
	{Length: time.Millisecond}, {Length: time.Second}, {Length: 7 * time.Second}, {Length: time.Minute}, {Length: time.Hour},
	{Length: 90 * time.Minute}, {Length: limiter.DayLength}, {Length: limiter.MaxWindow},
}

func newTrace(opts ReplayOptions) *trace {
	tr := &trace{Rand: rand.New(rand.NewPCG(opts.Seed, 0)), opts: opts, asked: make(map[string]time.Time)}
	for i := range 4 * len(opts.Algorithms) {
		l := limiter.Limit{Algorithm: opts.Algorithms[i%len(opts.Algorithms)], Window: windows[tr.IntN(len(windows))]}
		if l.Algorithm == limiter.FixedWindow && tr.IntN(4) == 0 {
			l.Window = limiter.CalendarWindow(limiter.Day+limiter.Calendar(tr.IntN(4)), time.FixedZone("", 9*3600))
		}
		tr.keys = append(tr.keys, fmt.Appendf(nil, "key %d", i))
		tr.limits = append(tr.limits, tr.change(l))
	}
	return tr
}

// change gives the limit new numbers: most are small, so that they bind.
func (tr *trace) change(l limiter.Limit) limiter.Limit {
	size := func() uint64 {
		switch tr.IntN(12) {
		case 0:
			return tr.Uint64N(limiter.MaxLogLimit) + 1
		case 1:
			return 1
		}
		return tr.Uint64N(12) + 1
	}
	l.Requests, l.Burst, l.Queue, l.CountDenied = size(), 0, 0, tr.IntN(3) == 0
	if tr.IntN(50) == 0 && !tr.opts.Steady {
		l.Requests = 0
	}
	if tr.IntN(20) == 0 && l.Algorithm != limiter.SlidingWindowLog {
		l.Requests = limiter.MaxRequests
	}
	switch l.Algorithm {
	case limiter.TokenBucket:
		l.Burst = size()
	case limiter.LeakyBucket:
		l.Queue = size() - 1
	}
	return l
}

// elapsed is the time until the next request.
func (tr *trace) elapsed() time.Duration {
	length := int64(tr.limits[tr.IntN(len(tr.limits))].Window.Length)
	switch n := tr.IntN(100); {
	case n < 25:
		return 0
	case n < 75:
		return time.Duration(tr.Int64N(length/4 + 1))
	case n < 80:
		return time.Duration(length) // on the dot
	case n < 85:
		return time.Duration(tr.Int64N(1000)) // less than a unit of time
	case n < 88 && !tr.opts.Steady:
		return -time.Duration(tr.Int64N(length/2 + 1))
	case n < 89 && !tr.opts.Steady:
		return -time.Duration(tr.Int64N(2*length + 1))
	case n < 90:
		return time.Duration(tr.Int64N(3*length + 1))
	}
	return time.Duration(tr.Int64N(length/100 + 1))
}

// request makes one up: half have one hit, the others up to four.
func (tr *trace) request() []limiter.Hit {
	n := 1
	if tr.IntN(2) == 0 {
		n = 2 + tr.IntN(3)
	}
	hits := make([]limiter.Hit, n)
	for i := range hits {
		k := tr.IntN(len(tr.keys))
		if i > 0 && tr.IntN(3) == 0 { // the key of a hit before
			hits[i] = tr.hit(hits[tr.IntN(i)].Key)
			continue
		}
		hits[i] = tr.hit(tr.keys[k])
	}
	if !tr.opts.Steady && tr.IntN(10) == 0 { // not before the request has its hits: all of one key have one limit
		k := tr.IntN(len(tr.keys))
		tr.limits[k] = tr.change(tr.limits[k])
	}
	return hits
}

func (tr *trace) hit(key limiter.Key) limiter.Hit {
	var k int
	if _, err := fmt.Sscanf(string(key), "key %d", &k); err != nil {
		panic(err) // the trace made the key
	}
	h := limiter.Hit{Key: key, Limit: tr.limits[k], Cost: 1, MaxDelay: limiter.NoDeadline}
	size := max(h.Limit.Requests, h.Limit.Burst, h.Limit.Queue)
	switch tr.IntN(8) {
	case 0:
		h.Cost = 0
	case 1:
		h.Cost = tr.Uint64N(size+2) + 1 // up to more than can pass
	case 2:
		h.Cost = tr.Uint64N(4) + 1
	}
	switch tr.IntN(200) {
	case 0:
		h.Cost = 1<<64 - 1
	case 1:
		h.Cost = limiter.MaxCost
	}
	if h.Limit.Algorithm == limiter.LeakyBucket {
		switch tr.IntN(4) {
		case 0:
			h.MaxDelay = 0
		case 1:
			h.MaxDelay = time.Duration(tr.Int64N(int64(h.Limit.Window.Length)))
		}
	}
	if h.Limit.Algorithm == limiter.LeakyBucket && tr.opts.SetWaiting != nil && k%2 == 0 {
		h.Overflow, h.MaxDelay, h.Limit.CountDenied = fmt.Appendf(nil, "queue %d", k), 0, false
	}
	h.Refund = tr.IntN(10) == 0
	h.Shadow = tr.IntN(12) == 0
	h.Quota = tr.IntN(12) == 0
	return h
}

// overflows are the queues of a request's hits, some of them.
func (tr *trace) overflows(hits []limiter.Hit) []limiter.Key {
	var queues []limiter.Key
	for i := range hits {
		if hits[i].Overflow != nil && tr.IntN(3) == 0 {
			queues = append(queues, hits[i].Overflow)
		}
	}
	return queues
}

// waiting makes up how many wait in a queue: nobody, half of the time.
func (tr *trace) waiting() int64 {
	if tr.IntN(2) == 0 {
		return 0
	}
	return tr.Int64N(14)
}
