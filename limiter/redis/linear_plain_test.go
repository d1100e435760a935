package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// standing is a counter on which refused plain hits may stand for a while.
type standing struct {
	used       uint64
	held, done uint64 // by the hit's number, a bit each: it stands in used; it was decided
}

// plainStep is a hit's INCRBY (first), or its decision, in a history of one counter.
type plainStep struct {
	number int
	first  bool
	call   limitertest.Call
}

// twoSteps is what plain.go says of itself: a hit of 1 may add first, and take that
// back when it is decided. Nothing else happens.
func twoSteps() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{standing{}} },
		Step: func(state, input, output any) []any {
			s, in, a := state.(standing), input.(plainStep), output.(limitertest.Answer)
			bit := uint64(1) << in.number
			if in.call.Reset != nil {
				s.used = 0
				return []any{s}
			}
			h, d := &in.call.Hits[0], &a.Decisions[0]
			if in.first {
				out := []any{s}
				if s.done&bit == 0 && s.used+1 > h.Limit.Requests {
					s.used, s.held = s.used+1, s.held|bit
					out = append(out, s)
				}
				return out
			}
			if s.held&bit != 0 {
				s.used, s.held = s.used-min(1, s.used), s.held&^bit
			}
			s.done |= bit
			passes := h.Refund || s.used+h.Cost <= h.Limit.Requests
			if passes != d.Allowed {
				return nil
			}
			switch {
			case h.Refund:
				s.used -= min(s.used, h.Cost)
			case passes:
				s.used += h.Cost
			}
			if h.Limit.Requests-min(s.used, h.Limit.Requests) != d.Remaining {
				return nil
			}
			return []any{s}
		},
	}
	return m.ToModel()
}

// inSteps is the history with the first step of each hit of 1 apart.
func inSteps(h *limitertest.History) (ops []porcupine.Operation) {
	for i, op := range h.Operations() {
		c := op.Input.(limitertest.Call)
		if c.Reset == nil && c.Hits[0].Cost == 1 && !c.Hits[0].Refund {
			first := op
			first.Input = plainStep{i, true, c}
			ops = append(ops, first)
		}
		op.Input = plainStep{i, false, c}
		ops = append(ops, op)
	}
	return ops
}

// Where hits are given back, limits raised or counters looked at or reset, a refused
// plain hit that stands in the counter until it is taken back may be seen. That is all.
func TestOfPlainHitsNothingIsSeenButWhatStandsUntilTakenBack(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	all, stores := linearStores(t, 3, r.Addr, Options{}, nil)
	plainEverywhere(stores)
	strict := limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts)
	limits := []limiter.Limit{perYear(6), perYear(6), perYear(6), perYear(8)}
	load := limitertest.Load{Stores: all, Limits: limits, Costs: 2, Looks: true, Refunds: true, Resets: true, Clients: 6, Calls: 6}
	seen, histories := 0, 60*limitertest.LinearFactor(t)
	for n := range histories {
		h := load.Run(t, fmt.Sprint("standing ", n), uint64(n))
		if h.Check(t, strict) {
			continue
		}
		seen++
		if res := porcupine.CheckOperationsTimeout(twoSteps(), inSteps(h), time.Minute); res != porcupine.Ok {
			t.Fatalf("history %d, %v: more went wrong than that:\n%s", n, res, h)
		}
	}
	t.Logf("with every hit of 1 a plain command it is seen in %d of %d histories of 36 calls", seen, histories)
}

// By default it is next to never seen: an instance sends plain commands only while it
// knows of much that is left.
func TestByDefaultPlainHitsAreHardlyEverSeen(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	all, stores := linearStores(t, 3, r.Addr, Options{}, nil)
	strict := limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts)
	seen, histories := 0, 20*limitertest.LinearFactor(t)
	for n := range histories {
		name := fmt.Sprint("default ", n, " ")
		limit := perYear(plainSpare + 30)
		for _, s := range stores {
			decide(t, s, refund(hit(name+"a", limit, 1)), hit(name+"a", limit, 1)) // each knows of it
		}
		for _, s := range stores {
			decide(t, s, refund(hit(name+"a", limit, 1)))
		}
		load := limitertest.Load{Stores: all, Limits: []limiter.Limit{limit}, Costs: 3, Looks: true, Refunds: true, Clients: 12, Calls: 15}
		h := load.Run(t, name, uint64(n))
		if !h.Check(t, strict) {
			seen++
			t.Logf("%s", h)
		}
	}
	t.Logf("by default it is seen in %d of %d histories of 180 calls", seen, histories)
	if seen > histories/4 {
		t.Errorf("in %d of %d histories hits were seen that were taken back", seen, histories)
	}
}

// leaving is the context of a caller that leaves once it has been asked for n times.
type leaving struct {
	context.Context
	n atomic.Int64
}

func (l *leaving) Err() error {
	if l.n.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A caller that leaves between the plain command and what takes it back leaves
// nothing charged.
func TestWhoLeavesIsNotChargedForARefusal(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	_, stores := linearStores(t, 1, r.Addr, Options{}, nil)
	plainEverywhere(stores)
	s, h := stores[0], hit("k", perYear(3), 1)
	for range 4 {
		decide(t, s, h)
	}
	for n := range int64(6) {
		ctx := &leaving{Context: context.Background()}
		ctx.n.Store(n)
		_, _ = s.Decide(ctx, []limiter.Hit{h})
	}
	if n := used(t, r, s, h); n != 3 {
		t.Errorf("of a limit of 3, %d are used", n)
	}
}

// A refused plain hit that is taken back after its counter began anew takes off one of
// the new one's: so one more passes for each hit that was under way, and no more.
func TestAfterAResetAsManyMoreMayPassAsPlainHitsWereUnderWay(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	h := hit("k", perYear(3), 1)
	key := s.naming.Counter(h.Key, nil)
	for range 3 {
		decide(t, s, h)
	}
	sum, err := s.pipe.increment(t.Context(), key, time.Now()) // the first step of a hit, which refuses it
	if err != nil || sum%windowCounts != 4 {
		t.Fatalf("%d, %v", sum, err)
	}
	if _, err := s.Reset(t.Context(), []limiter.Counter{{Key: h.Key}}); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for range 3 {
		if decide(t, s, h)[0].Allowed {
			passed++
		}
	}
	back := h
	back.MaxDelay = h.Limit.Duration(sum / windowCounts)
	req := request{hashes: []keyHash{s.naming.hash(h.Key, nil)}, index: []int{0}}
	a, err := s.run(t.Context(), &s.scripts.fixedBack, modeAllOrNothing, &req, []limiter.Hit{back}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if a.decisions[0].Allowed {
		passed++
	}
	for range 3 {
		if decide(t, s, h)[0].Allowed {
			passed++
		}
	}
	if passed != 4 {
		t.Errorf("after a reset a limit of 3 let %d pass, with one hit under way", passed)
	}
}

// In the end a reset under load leaves a counter that is right, whoever was under way.
func TestAResetUnderLoadBeginsTheLimitAnewOnce(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	_, stores := linearStores(t, 3, r.Addr, Options{}, nil)
	const limit, clients = 400, 24
	most := 0
	for round := range 10 * limitertest.LinearFactor(t) {
		h := hit(fmt.Sprint("reset ", round), perYear(limit), 1)
		var passed atomic.Int64
		var calling sync.WaitGroup
		done := make(chan struct{})
		for i := range clients {
			calling.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if decide(t, stores[i%3], h)[0].Allowed {
						passed.Add(1)
					}
				}
			})
		}
		await(t, "the limit is used up", func() bool { return used(t, r, stores[0], h) >= limit })
		if _, err := stores[0].Reset(context.Background(), []limiter.Counter{{Key: h.Key}}); err != nil {
			t.Fatal(err)
		}
		await(t, "the limit is used up again", func() bool { return used(t, r, stores[0], h) >= limit })
		close(done)
		calling.Wait()
		n := int(passed.Load())
		most = max(most, n)
		if n < 2*limit || n > 2*limit+clients {
			t.Errorf("with a reset a limit of %d let %d pass, with %d clients", limit, n, clients)
		}
		if n := used(t, r, stores[0], h); n != limit {
			t.Errorf("in the end %d of %d are used", n, limit)
		}
	}
	t.Logf("with a reset a limit of %d let %d pass at most", limit, most)
}
