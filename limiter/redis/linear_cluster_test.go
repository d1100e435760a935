package redis

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// onSlots is a counter that parts of refused requests may be charged to, until they
// are given back.
type onSlots struct {
	used       uint64
	held, done uint64 // by the request's number, a bit each
}

// slotStep is a part of a request on one counter: a decision, or what is charged and given back of
// one that another counter refused.
type slotStep struct {
	number int
	kind   int // stepDecide, stepCharge or stepBack
	hit    limiter.Hit
}

const (
	stepDecide = iota
	stepCharge
	stepBack
)

// chargeAndGiveBack is what a cluster promises of one counter: each request is decided
// by what is charged, which may be what a refused request has not given back yet.
// Windows are so long that time plays no part.
func chargeAndGiveBack() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{onSlots{}} },
		Step: func(state, input, output any) []any {
			s, in := state.(onSlots), input.(slotStep)
			bit := uint64(1) << in.number
			fits := s.used+in.hit.Cost <= uint64(in.hit.Limit.Numbers().Capacity)
			switch in.kind {
			case stepCharge: // if at all
				out := []any{s}
				if fits && s.done&bit == 0 {
					s.used, s.held = s.used+in.hit.Cost, s.held|bit
					out = append(out, s)
				}
				return out
			case stepBack:
				if s.held&bit != 0 {
					s.used, s.held = s.used-in.hit.Cost, s.held&^bit
				}
				s.done |= bit
				return []any{s}
			}
			d := output.(limiter.Decision)
			if d.Allowed != fits {
				return nil
			}
			if fits {
				s.used += in.hit.Cost
			}
			if in.hit.Cost == 0 && d.Remaining != uint64(in.hit.Limit.Numbers().Capacity)-min(s.used, uint64(in.hit.Limit.Numbers().Capacity)) {
				return nil
			}
			return []any{s}
		},
	}
	return m.ToModel()
}

// onCounter is what a history says of one counter.
func onCounter(h *limitertest.History, key string) (ops []porcupine.Operation) {
	for number, op := range h.Operations() {
		c, a := op.Input.(limitertest.Call), op.Output.(limitertest.Answer)
		for i := range c.Hits {
			if string(c.Hits[i].Key) != key {
				continue
			}
			kinds := []int{stepDecide}
			if a.Decisions[i].Allowed && c.Hits[i].Cost > 0 && !limiter.Passes(c.Hits, a.Decisions) {
				kinds = []int{stepCharge, stepBack}
			}
			for _, kind := range kinds {
				one := op
				one.Input, one.Output = slotStep{number, kind, c.Hits[i]}, a.Decisions[i]
				ops = append(ops, one)
			}
		}
	}
	return ops
}

// A request whose counters lie in several slots is charged and given back. Never over
// a limit; and what is refused for another's sake was charged at that time, by a
// request that was under way.
func TestOnAClusterOnlyWhatIsNotGivenBackYetIsSeen(t *testing.T) {
	t.Parallel()
	c := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	var stores []limiter.Store
	for range 3 {
		stores = append(stores, openCluster(t, c, Options{KeyPrefix: "linear:"}))
	}
	strict := limitertest.Model(limiter.Options{}, limitertest.AgreeInAdmission)
	for a := limiter.FixedWindow; a <= limiter.SlidingWindowCounter; a++ {
		limits := linearLimits(a, limiter.Window{Length: limiter.MaxWindow})[:2]
		one := limitertest.Load{Stores: stores, Limits: limits, Costs: 3, Looks: true, Refunds: true, Resets: true}
		one.Linear(t, "one counter "+a.String(), 3, limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts))
		seen, histories := 0, 6*limitertest.LinearFactor(t)
		for n := range histories {
			name := fmt.Sprintf("%v %d ", a, n)
			load := limitertest.Load{Stores: stores, Limits: limits, Costs: 3, Looks: true, Pairs: true, Clients: 6, Calls: 6}
			h := load.Run(t, name, uint64(n))
			for _, key := range []string{name + "a", name + "b"} {
				look := hit(key, limits[0], 0)
				h.Do(t, 0, stores[0], limitertest.Call{Hits: []limiter.Hit{look}, Now: time.Unix(1<<30, 0)})
			}
			if !h.Check(t, strict) {
				seen++
			}
			for _, key := range []string{name + "a", name + "b"} {
				if res := porcupine.CheckOperationsTimeout(chargeAndGiveBack(), onCounter(h, key), time.Minute); res != porcupine.Ok {
					t.Errorf("%v, history %d, counter %q, %v: more went wrong than that:\n%s", a, n, key, res, ofCounter(h, key))
				}
			}
		}
		t.Logf("%v: in %d of %d histories of 36 calls a charge was seen that was given back", a, seen, histories)
	}
}

func ofCounter(h *limitertest.History, key string) string {
	var lines []string
	for line := range strings.Lines(h.String()) {
		if strings.Contains(line, key) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Of hits at one time, all that one was charged comes back, whatever the others were;
// and what has left a window is not taken off those that are in it.
func TestALogGivesBackWhatWasChargedAtThatTime(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	clock := limitertest.NewClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	s := open(t, r.Addr, Options{}, clock.Now)
	l := limiter.Limit{Requests: 20, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.SlidingWindowLog}
	req := request{hashes: []keyHash{s.naming.hash(limiter.Key("k"), nil)}, index: []int{0}}
	charge := func(cost uint64) int64 {
		a, err := s.run(t.Context(), &s.scripts.multi, modePart, &req, []limiter.Hit{hit("k", l, cost)}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a.receipts[0]
	}
	giveBack := func(cost uint64, receipt int64) uint64 {
		back := hit("k", l, cost)
		back.MaxDelay = l.Duration(receipt)
		a, err := s.run(t.Context(), &s.scripts.giveBack, modeAllOrNothing, &req, []limiter.Hit{back}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a.decisions[0].Remaining
	}
	first := charge(5)
	charge(1)
	clock.Add(time.Second)
	charge(2)
	if left := giveBack(5, first); left != 17 {
		t.Errorf("5 of 5, 1 and 2 are given back: %d left, want 17", left)
	}
	charge(4)
	clock.Add(time.Minute - time.Second) // the first have left
	if left := giveBack(1, first); left != 14 {
		t.Errorf("one that has left is given back: %d left, want 14", left)
	}
}

// While a slot moves to another node nothing is told wrong, and what got no answer was
// done once or not at all.
func TestASlotThatMovesIsLinearizable(t *testing.T) {
	t.Parallel()
	c := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	var stores []limiter.Store
	var all []*Store
	var mu sync.Mutex
	why := map[string]int{}
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		word, _, _ := strings.Cut(err.Error(), " ")
		why[word]++
	}
	for range 2 {
		s := openCluster(t, c, Options{KeyPrefix: "{moves}:", Timeout: time.Second, Events: Events{Failed: failed}})
		stores, all = append(stores, s), append(all, s)
	}
	model := limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts)
	lost, ops := 0, 0
	for n := range limitertest.LinearFactor(t) {
		for a := limiter.FixedWindow; a <= limiter.SlidingWindowCounter; a++ {
			name := fmt.Sprintf("moves %v %d ", a, n)
			load := limitertest.Load{
				Stores: stores, Limits: linearLimits(a, limiter.Window{Length: limiter.MaxWindow}), Policy: limiter.FailError,
				Costs: 3, Looks: true, Refunds: true, Resets: true, Pairs: true, Clients: 5, Calls: 12,
			}
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				moveSlot(t, c, fmt.Sprint(slotOf("{moves}")))
			}()
			h := load.Run(t, name, uint64(n))
			<-moved
			for _, op := range h.Operations() {
				ops++
				if op.Output.(limitertest.Answer).Lost {
					lost++
				}
			}
			if !h.Check(t, model) {
				t.Fatalf("%s cannot have happened one call after another:\n%s", name, h)
			}
			for _, s := range all {
				await(t, "Redis decides", s.Healthy)
			}
		}
	}
	t.Logf("of %d calls while slots moved %d got no answer: %v", ops, lost, why)
}

// moveSlot moves the slot of {moves} to the next master.
func moveSlot(t *testing.T, c *testenv.RedisCluster, slot string) {
	from := c.Master(t, "{moves}")
	to := c.Nodes[0]
	for i, node := range c.Nodes {
		if node == from {
			to = c.Nodes[(i+1)%len(c.Nodes)]
		}
	}
	fromID, toID := from.MustDo(t, "CLUSTER", "MYID"), to.MustDo(t, "CLUSTER", "MYID")
	host, port, _ := net.SplitHostPort(to.Addr)
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	for keys := from.MustDo(t, "CLUSTER", "GETKEYSINSLOT", slot, "1000"); keys != ""; keys = from.MustDo(t, "CLUSTER", "GETKEYSINSLOT", slot, "1000") {
		from.MustDo(t, append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, strings.Split(keys, "\n")...)...)
	}
	for _, node := range []*testenv.Redis{to, from} {
		node.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
	for _, node := range c.Nodes {
		if node != to && node != from {
			node.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		}
	}
}
