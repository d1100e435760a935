package soak

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// windows counts what passed of a counter that is asked all the time for more than
// its limit, by store and window: it must be the limit, in each of them. All
// processes are on one machine, so there is one clock.
type windows struct {
	mu     sync.Mutex
	counts map[windowKey]*windowCount
	void   []span // in which the store did not decide everything, or began anew
}

type windowKey struct {
	store string
	n     int64
}

type windowCount struct {
	sure, perhaps int64 // passed: surely in this window; in it or the next to it
	passed, asked int64 // by when they were sent
}

type span struct {
	from, to time.Time
	empty    bool // the store has forgotten what was used
}

// edge is how near to a window's edge it is not sure which window a request is
// counted in.
const edge = 50 * time.Millisecond

func (w *windows) add(store string, sent, answered time.Time, passed bool) {
	of := func(t time.Time) windowKey {
		return windowKey{store, t.UnixNano() / int64(steadyWindow)}
	}
	first, last := of(sent.Add(-edge)), of(answered.Add(edge))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[windowKey]*windowCount{}
	}
	for k := first; k.n <= last.n; k.n++ {
		c := w.counts[k]
		if c == nil {
			c = &windowCount{}
			w.counts[k] = c
		}
		if k == of(sent) {
			c.asked++
			if passed {
				c.passed++
			}
		}
		switch {
		case first == last && passed:
			c.sure++
		case passed:
			c.perhaps++
		}
	}
}

func (w *windows) except(s span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.void = append(w.void, s)
}

// judge returns how many windows held exactly their limit, how many could not be
// judged, and what is wrong with the others. The first and the last are not whole,
// nor is one in which the store forgot all.
func (w *windows) judge() (right, unjudged int, wrong []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, store := range []string{"Redis", "memory"} {
		var ns []int64
		for k, c := range w.counts {
			if k.store == store && c.asked > 0 {
				ns = append(ns, k.n)
			}
		}
		slices.Sort(ns)
		var row []windowCount // right ones in succession
		for i, n := range ns {
			c := *w.counts[windowKey{store, n}]
			void, empty := w.isVoid(n)
			switch {
			case i == 0 || i == len(ns)-1 || empty: // not whole
			case c.sure > steadyLimit:
				wrong = append(wrong, fmt.Sprintf("%s: %d passed in a window with a limit of %d", store, c.sure, steadyLimit))
			case void || c.asked < 2*steadyLimit:
				unjudged++
			case c.sure+c.perhaps < steadyLimit:
				wrong = append(wrong, fmt.Sprintf("%s: only %d of %d passed in a window, with %d at its edges", store, c.sure, steadyLimit, c.perhaps))
			default:
				right++
				if len(row) == 0 || ns[i-1] == n-1 {
					row = append(row, c)
					continue
				}
			}
			wrong, row = append(wrong, judgeRow(store, row)...), nil
		}
		wrong = append(wrong, judgeRow(store, row)...)
	}
	return right, unjudged, wrong
}

// judgeRow holds what passed in windows in succession against the sum of their
// limits: what is not sure is only what passed at both ends of the row.
func judgeRow(store string, row []windowCount) []string {
	if len(row) == 0 {
		return nil
	}
	var passed int64
	for _, c := range row {
		passed += c.passed
	}
	want, unsure := int64(len(row)*steadyLimit), row[0].perhaps+row[len(row)-1].perhaps
	if passed < want-unsure || passed > want+unsure {
		return []string{fmt.Sprintf("%s: %d passed in %d windows in succession, with a limit of %d each", store, passed, len(row), steadyLimit)}
	}
	return nil
}

// isVoid tells whether the store did not decide all of a window, or even began anew
// in it.
func (w *windows) isVoid(n int64) (void, empty bool) {
	for _, s := range w.void {
		if s.from.UnixNano() < (n+1)*int64(steadyWindow) && s.to.UnixNano() > n*int64(steadyWindow) {
			void, empty = true, empty || s.empty
		}
	}
	return void, empty
}

// askSteadily asks each server for the counter of the windows, 40 times a second.
func (s *soak) askSteadily(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, w := range s.weirs {
		wg.Go(func() {
			for pause(ctx, 25*time.Millisecond) {
				begin := time.Now()
				a, err := w.ask(ctx, request(descriptor("steady", "all")))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					s.faults.add(fmt.Sprintf("%s, steady: %v", w.name, err))
				default:
					s.windows.add(w.store, begin, time.Now(), a.OverallCode == rls.RateLimitResponse_OK)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// exact is a counter that is new, and asked for more than its limit at once.
type exact struct {
	entry  string
	limit  int64
	refill float64 // a bucket: what comes back, a second
	leased bool    // all of it passes only once the instances have given back what they hold
}

var exacts = []exact{
	{entry: "exact_fixed", limit: exactLimit}, {entry: "exact_counter", limit: exactLimit}, {entry: "exact_log", limit: exactLimit},
	{entry: "exact_token", limit: exactLimit, refill: exactRefill}, {entry: "exact_leaky", limit: 1, refill: 1 / exactWindow.Seconds()},
	{entry: "exact_leased", limit: leaseLimit, leased: true},
}

// checkExactly asks each kind of counter, of each store, for more than its limit, on
// all instances at once; what passes must be the limit. It is false where that could
// not be seen: the window ended meanwhile, or the store did not decide everything.
func (s *soak) checkExactly(ctx context.Context, n int) {
	for _, store := range []string{"Redis", "memory"} {
		for _, x := range exacts {
			var weirs []*weir
			for _, w := range s.weirs {
				if w.store == store {
					weirs = append(weirs, w)
				}
			}
			s.checkOne(ctx, store, weirs, x, fmt.Sprint("check-", n))
		}
	}
}

func (s *soak) checkOne(ctx context.Context, store string, weirs []*weir, x exact, value string) {
	// In the first half of a window, of which enough is left.
	for into := sinceEdge(); into > exactWindow/2; into = sinceEdge() {
		if !pause(ctx, exactWindow-into) {
			return
		}
	}
	before, err := s.standby(ctx, weirs)
	begin, restarts := time.Now(), s.restarts.Load()
	passed, failed := s.burst(ctx, weirs, x.entry, value, x.limit+x.limit/3+10)
	for range 3 {
		if !x.leased || passed >= x.limit || !pause(ctx, 1200*time.Millisecond) {
			break
		}
		more, bad := s.burst(ctx, weirs, x.entry, value, x.limit-passed+10)
		passed, failed = passed+more, failed+bad
	}
	after, err2 := s.standby(ctx, weirs)
	lasted := time.Since(begin)
	if ctx.Err() != nil {
		return
	}
	most := x.limit + int64(math.Ceil(x.refill*lasted.Seconds()))
	switch {
	case s.restarts.Load() != restarts || lasted > exactWindow/2-edge && x.refill == 0: // it may have been another window
		s.unchecked.Add(1)
	case passed > most:
		s.faults.add(fmt.Sprintf("%s, %s: %d passed of a limit of %d", store, x.entry, passed, x.limit))
	case passed < x.limit && (failed > 0 || err != nil || err2 != nil || after > before):
		s.unchecked.Add(1)
	case passed < x.limit:
		s.faults.add(fmt.Sprintf("%s, %s: only %d passed of a limit of %d", store, x.entry, passed, x.limit))
	default:
		s.checked.Add(1)
	}
}

// sinceEdge is how far it is into the window of the check's counters.
func sinceEdge() time.Duration {
	return time.Duration(time.Now().UnixNano() % int64(exactWindow))
}

// burst sends n requests for a counter, from a few clients of each instance.
func (s *soak) burst(ctx context.Context, weirs []*weir, entry, value string, n int64) (passed, failed int64) {
	var wg sync.WaitGroup
	var sent, ok, bad atomic.Int64
	for i := range 8 {
		w := weirs[i%len(weirs)]
		wg.Go(func() {
			for sent.Add(1) <= n {
				call, cancel := context.WithTimeout(ctx, 5*time.Second) // less than a leaky bucket would hold the second request for
				a, err := w.ask(call, request(descriptor(entry, value)))
				cancel()
				switch {
				case err != nil:
					bad.Add(1)
				case a.OverallCode == rls.RateLimitResponse_OK:
					ok.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return ok.Load(), bad.Load()
}
