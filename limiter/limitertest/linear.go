package limitertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"weir/limiter"
)

// LinearFactor is how many times longer histories are checked for: by
// WEIR_LINEAR in the environment, 1 without it.
func LinearFactor(t testing.TB) int {
	t.Helper()
	text := os.Getenv("WEIR_LINEAR")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("WEIR_LINEAR (LINEAR of make linear) is %q, and should be a whole number from 1 on", text)
	}
	return n
}

// Call is what a client asked: a decision, or a reset of counters.
type Call struct {
	Hits  []limiter.Hit
	Reset []limiter.Counter
	Now   time.Time // by the clock that the store was given
}

// Answer is what it was told.
type Answer struct {
	Decisions []limiter.Decision
	Lost      bool // nothing: it may or may not have been done
}

// History records calls as they happen. It is safe for concurrent use.
type History struct {
	begin time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// NewHistory returns an empty one.
func NewHistory() *History { return &History{begin: time.Now()} }

// Do has the store answer the call, and records both. A store that fails with
// limiter.ErrUnavailable may or may not have done it.
func (h *History) Do(t testing.TB, client int, s limiter.Store, c Call) Answer {
	t.Helper()
	called := time.Since(h.begin)
	var a Answer
	var err error
	if c.Reset != nil {
		_, err = s.(limiter.Resetter).Reset(context.Background(), c.Reset)
	} else {
		a.Decisions, err = s.Decide(context.Background(), c.Hits)
	}
	op := porcupine.Operation{ClientId: client, Input: c, Call: int64(called), Return: int64(time.Since(h.begin))}
	if err != nil {
		if a.Lost = errors.Is(err, limiter.ErrUnavailable); !a.Lost {
			t.Errorf("%+v: %v", c, err)
		}
		op.Return = 1 << 62
	}
	op.Output = a
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
	return a
}

// Operations are what was recorded, by the time of the call.
func (h *History) Operations() []porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return ops
}

// String is the history, a call a line.
func (h *History) String() string {
	var text strings.Builder
	for _, op := range h.Operations() {
		fmt.Fprintf(&text, "%8d-%8d µs client %d: %s\n", op.Call/1000, op.Return/1000, op.ClientId, Describe(op.Input, op.Output))
	}
	return text.String()
}

// Describe is a call and its answer in words.
func Describe(input, output any) string {
	c, a := input.(Call), output.(Answer)
	var words []string
	for _, n := range c.Reset {
		words = append(words, fmt.Sprintf("reset %s", n.Key))
	}
	for i, h := range c.Hits {
		what := fmt.Sprintf("%s %d of %d", h.Key, h.Cost, h.Limit.Requests)
		if h.Refund {
			what = "back " + what
		}
		if i < len(a.Decisions) {
			what += ": " + Words(a.Decisions[i])
		}
		words = append(words, what)
	}
	if a.Lost {
		words = append(words, "lost")
	}
	return strings.Join(words, " | ")
}

// Agree tells whether an answer is one that the definition gives.
type Agree func(h *limiter.Hit, told, want *limiter.Decision) bool

// AgreeInAll is for stores whose clock is the test's.
func AgreeInAll(_ *limiter.Hit, told, want *limiter.Decision) bool {
	d := *told
	d.Origin = want.Origin
	return d == *want
}

// AgreeInCounts is for windows so long that time plays no part.
func AgreeInCounts(_ *limiter.Hit, told, want *limiter.Decision) bool {
	return told.Allowed == want.Allowed && told.Remaining == want.Remaining
}

// AgreeInAdmission leaves out what remains, too.
func AgreeInAdmission(_ *limiter.Hit, told, want *limiter.Decision) bool {
	return told.Allowed == want.Allowed
}

// counters are the states of a model, by key. They are never changed.
type counters map[string]limiter.State

func (c counters) equal(o counters) bool {
	return maps.EqualFunc(c, o, func(a, b limiter.State) bool {
		return a.Time == b.Time && a.Used == b.Used && a.Previous == b.Previous && slices.Equal(a.Log, b.Log)
	})
}

// Model is a store that does one call at a time, as limiter.Evaluate does.
func Model(opts limiter.Options, agree Agree) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return counters{} },
		Equal: func(a, b any) bool { return a.(counters).equal(b.(counters)) },
		Step: func(state, input, output any) (bool, any) {
			before, c, a := state.(counters), input.(Call), output.(Answer)
			after, want := before.step(c, opts)
			for i := range a.Decisions {
				if !agree(&c.Hits[i], &a.Decisions[i], &want[i]) {
					return false, nil
				}
			}
			return true, after
		},
		DescribeOperation: Describe,
	}
}

func (c counters) step(call Call, opts limiter.Options) (counters, []limiter.Decision) {
	after := maps.Clone(c)
	for _, n := range call.Reset {
		delete(after, string(n.Key))
	}
	if call.Reset != nil {
		return after, nil
	}
	index, at := make([]int, len(call.Hits)), map[string]int{}
	var slots []limiter.Slot
	var keys []string
	for i, h := range call.Hits {
		key := string(h.Key)
		if _, known := at[key]; !known {
			at[key] = len(slots)
			s := c[key]
			s.Log = slices.Clone(s.Log)
			slots, keys = append(slots, limiter.Slot{State: s}), append(keys, key)
		}
		index[i] = at[key]
	}
	decisions := limiter.Evaluate(call.Hits, index, slots, call.Now, opts)
	for i, key := range keys {
		switch s := slots[i].State; {
		case !slots[i].Changed:
		case s.Used == 0 && s.Previous == 0: // it says nothing
			delete(after, key)
		default:
			after[key] = s
		}
	}
	return after, decisions
}

// Check tells whether a history could have happened one call after another.
func (h *History) Check(t testing.TB, m porcupine.Model) bool {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(m, h.Operations(), 2*time.Minute) {
	case porcupine.Illegal:
		return false
	case porcupine.Unknown:
		t.Error("the checker has not come to an end in two minutes; shorten the history")
	}
	return true
}

// Load is many clients that ask for the same counters at once.
type Load struct {
	Stores  []limiter.Store
	Limits  []limiter.Limit // of one algorithm and window; several: the limit is raised and lowered
	Costs   uint64          // the largest; 0: 1
	Looks   bool            // and refunds
	Refunds bool
	Resets  bool
	Pairs   bool // requests on two counters
	Modes   bool // shadow, quota and count_denied hits too
	Policy  limiter.FailurePolicy
	Clients int // 0: 8
	Calls   int // of each client; 0: 6
	// Clock is moved between calls, by Moves: while it moves no call is under way.
	Clock *Clock
	Moves []time.Duration
}

// Run records one history on counters whose names begin with a text.
func (l *Load) Run(t testing.TB, name string, seed uint64) *History {
	t.Helper()
	h := NewHistory()
	clients, calls := max(l.Clients, 1), max(l.Calls, 1)
	if l.Clients == 0 {
		clients = 8
	}
	if l.Calls == 0 {
		calls = 6
	}
	var moving sync.RWMutex
	parallel(clients, func(client int) {
		r := rand.New(rand.NewPCG(seed, uint64(client)))
		for range calls {
			c := l.call(r, name)
			if len(l.Moves) > 0 && r.IntN(4) == 0 {
				moving.Lock()
				l.Clock.Add(l.Moves[r.IntN(len(l.Moves))])
				moving.Unlock()
			}
			moving.RLock()
			c.Now = time.Unix(1<<30, 0)
			if l.Clock != nil {
				c.Now = l.Clock.Now()
			}
			h.Do(t, client, l.Stores[r.IntN(len(l.Stores))], c)
			moving.RUnlock()
		}
	})
	return h
}

func (l *Load) call(r *rand.Rand, name string) (c Call) {
	keys := []string{"a", "b"}
	if l.Pairs {
		r.Shuffle(2, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		keys = keys[:1+r.IntN(2)]
	} else {
		keys = keys[:1]
	}
	if l.Resets && r.IntN(12) == 0 {
		c.Reset = []limiter.Counter{{Key: limiter.Key(name + keys[0])}} // of several, each is reset on its own
		return c
	}
	for _, k := range keys {
		h := limiter.Hit{Key: limiter.Key(name + k), Limit: l.Limits[r.IntN(len(l.Limits))], Cost: 1, MaxDelay: limiter.NoDeadline, OnFailure: l.Policy}
		if l.Costs > 1 {
			h.Cost += r.Uint64N(l.Costs)
		}
		switch n := r.IntN(10); {
		case l.Looks && n == 0:
			h.Cost = 0
		case l.Refunds && n < 3:
			h.Refund = true
		case l.Modes && n == 4:
			h.Shadow = true
		case l.Modes && n == 5:
			h.Quota = true
		}
		h.Limit.CountDenied = l.Modes && r.IntN(3) == 0
		c.Hits = append(c.Hits, h)
	}
	return c
}

// Linear checks so many histories, times LinearFactor, and tells the first that could
// not have happened one call after another.
func (l *Load) Linear(t testing.TB, name string, histories int, m porcupine.Model) {
	t.Helper()
	ops, passed := 0, 0
	for n := range histories * LinearFactor(t) {
		h := l.Run(t, fmt.Sprint(name, " ", n, " "), uint64(n))
		for _, op := range h.Operations() {
			ops++
			for _, d := range op.Output.(Answer).Decisions {
				if d.Allowed {
					passed++
					break
				}
			}
		}
		if !h.Check(t, m) {
			t.Fatalf("%s: history %d cannot have happened one call after another:\n%s", name, n, h)
		}
	}
	t.Logf("%s: %d calls, %d of which passed, one after another", name, ops, passed)
}
