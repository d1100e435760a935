package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// What many clients are told at once, through several instances, could have been told
// to one after another: see limitertest.Model, and docs/guarantees.md for what is
// promised where. WEIR_LINEAR=n makes n times as many histories (make linear).

// linearLimits are an algorithm's limit, and raised and lowered ones.
func linearLimits(a limiter.Algorithm, w limiter.Window) (limits []limiter.Limit) {
	for _, n := range []uint64{6, 9, 3} {
		l := limiter.Limit{Requests: n, Window: w, Algorithm: a}
		switch a {
		case limiter.TokenBucket:
			l.Burst = n
		case limiter.LeakyBucket:
			l.Queue = n - 1
		}
		limits = append(limits, l)
	}
	return limits
}

// linearStores are instances that share counters.
func linearStores(t *testing.T, n int, addr string, opts Options, now func() time.Time) (all []limiter.Store, stores []*Store) {
	opts.KeyPrefix = "linear:"
	for range n {
		s := open(t, addr, opts, now)
		all, stores = append(all, s), append(stores, s)
	}
	return all, stores
}

func TestRedisIsLinearizableByAClockThatMoves(t *testing.T) {
	t.Parallel()
	kathmandu := limiter.CalendarWindow(limiter.Day, time.FixedZone("kathmandu", 5*3600+45*60))
	for _, c := range []struct {
		algorithm limiter.Algorithm
		window    limiter.Window
		moves     []time.Duration
	}{
		{limiter.FixedWindow, limiter.Window{Length: time.Minute}, nil},
		{limiter.TokenBucket, limiter.Window{Length: time.Minute}, nil},
		{limiter.LeakyBucket, limiter.Window{Length: time.Minute}, nil},
		{limiter.SlidingWindowLog, limiter.Window{Length: time.Minute}, nil},
		{limiter.SlidingWindowCounter, limiter.Window{Length: time.Minute}, nil},
		{limiter.FixedWindow, kathmandu, []time.Duration{time.Hour, 7 * time.Hour, 24 * time.Hour}},
	} {
		for _, opts := range []limiter.Options{{}, {ChargeEach: true}} {
			t.Run(fmt.Sprint(c.algorithm, " ", c.window, opts), func(t *testing.T) {
				t.Parallel()
				r := testenv.StartRedis(t, testenv.RedisOptions{})
				clock := limitertest.NewClock(time.Date(2026, 3, 1, 17, 0, 0, 0, time.UTC))
				stores, _ := linearStores(t, 3, r.Addr, Options{Options: opts}, clock.Now)
				load := limitertest.Load{
					Stores: stores, Limits: linearLimits(c.algorithm, c.window),
					Costs: 3, Looks: true, Refunds: true, Resets: true, Pairs: true, Modes: true,
					Clock: clock, Moves: c.moves,
				}
				if c.moves == nil {
					load.Moves = []time.Duration{time.Second, 11 * time.Second, 31 * time.Second, time.Minute}
				}
				load.Linear(t, "moves", 10, limitertest.Model(opts, limitertest.AgreeInAll))
			})
		}
	}
}

func TestRedisIsLinearizableByItsOwnClock(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	stores, _ := linearStores(t, 3, r.Addr, Options{}, nil)
	for a := limiter.FixedWindow; a <= limiter.SlidingWindowCounter; a++ {
		load := limitertest.Load{
			Stores: stores, Limits: linearLimits(a, limiter.Window{Length: limiter.MaxWindow}),
			Costs: 3, Looks: true, Refunds: true, Resets: true, Pairs: true, Modes: true,
		}
		load.Linear(t, a.String(), 8, limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts))
	}
}

// plainEverywhere makes each hit of 1 on a fixed window a plain command, whatever is
// left, once the counter is known to every instance.
func plainEverywhere(stores []*Store) {
	for _, s := range stores {
		s.spare = 0
	}
}

// Without anything that gives back, plain commands are as good as scripts.
func TestPlainHitsAreLinearizable(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	all, stores := linearStores(t, 3, r.Addr, Options{}, nil)
	plainEverywhere(stores)
	for _, c := range []struct {
		remark string
		load   limitertest.Load
	}{
		{"of 1", limitertest.Load{}},
		{"of 1 to 3, some on two counters", limitertest.Load{Costs: 3, Pairs: true}},
		{"in all modes", limitertest.Load{Costs: 2, Pairs: true, Modes: true}},
	} {
		c.load.Stores, c.load.Limits = all, []limiter.Limit{perYear(20)}
		c.load.Linear(t, c.remark, 20, limitertest.Model(limiter.Options{}, limitertest.AgreeInAdmission))
	}
	if plain := calls(t, r, "incrby"); plain == 0 {
		t.Error("no hit was a plain command")
	}
}

// A refusal that an instance remembers is one that Redis would give: with one
// instance whatever is given back, with several as long as nothing is.
func TestTheDenyCacheIsLinearizable(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	model := limitertest.Model(limiter.Options{}, limitertest.AgreeInAdmission)
	var cached atomic.Int64
	one, _ := linearStores(t, 1, r.Addr, Options{DenyCache: time.Second, Events: Events{DenyCached: func() { cached.Add(1) }}}, nil)
	several, _ := linearStores(t, 3, r.Addr, Options{DenyCache: time.Second}, nil)
	for a := limiter.FixedWindow; a <= limiter.SlidingWindowCounter; a++ {
		limits := linearLimits(a, limiter.Window{Length: limiter.MaxWindow})
		load := limitertest.Load{Stores: one, Limits: limits, Costs: 3, Looks: true, Refunds: true, Resets: true, Pairs: true, Clients: 6, Calls: 10}
		load.Linear(t, "one "+a.String(), 6, model)
		load = limitertest.Load{Stores: several, Limits: limits, Costs: 3, Looks: true, Pairs: true, Clients: 6, Calls: 10}
		load.Linear(t, "several "+a.String(), 6, model)
	}
	if cached.Load() == 0 {
		t.Error("nothing was answered by the deny cache")
	}
}

// A call without an answer was done once or not at all, and no other is told wrong.
func TestLostAnswersAreLinearizable(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	p := startProxy(t, r.Addr)
	all, stores := linearStores(t, 2, p.Addr(), Options{Timeout: 300 * time.Millisecond, Events: Events{Failed: ignored}}, nil)
	model := limitertest.Model(limiter.Options{}, limitertest.AgreeInCounts)
	lost := 0
	for a := limiter.FixedWindow; a <= limiter.SlidingWindowCounter; a++ {
		load := limitertest.Load{
			Stores: all, Limits: linearLimits(a, limiter.Window{Length: limiter.MaxWindow}), Clients: 6,
			Costs: 3, Looks: true, Refunds: true, Pairs: true, Policy: limiter.FailError,
		}
		for n := range 6 * limitertest.LinearFactor(t) {
			for _, s := range stores {
				await(t, "Redis decides", s.Healthy)
			}
			time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { p.Lose(1, false) })
			h := load.Run(t, fmt.Sprint("lost ", a, n), uint64(n))
			for _, op := range h.Operations() {
				if op.Output.(limitertest.Answer).Lost {
					lost++
				}
			}
			if !h.Check(t, model) {
				t.Fatalf("%v: history %d cannot have happened one call after another:\n%s", a, n, h)
			}
		}
	}
	t.Logf("%d answers were lost", lost)
	if lost == 0 {
		t.Error("no answer was lost")
	}
}

// careless is a store that reads a counter and then sets it, in two commands.
type careless struct{ client goredis.UniversalClient }

func (c careless) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	text, err := c.client.Get(ctx, string(hits[0].Key)).Result()
	if err != nil && err != goredis.Nil { //nolint:errorlint // as it comes
		return nil, err
	}
	n, _ := strconv.ParseUint(text, 10, 64)
	most := hits[0].Limit.Requests
	if n >= most {
		return []limiter.Decision{{}}, nil
	}
	err = c.client.Set(ctx, string(hits[0].Key), n+1, time.Minute).Err()
	return []limiter.Decision{{Allowed: true, Remaining: most - n - 1}}, err
}

func TestGetAndThenSetIsNotLinearizable(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	load := limitertest.Load{Stores: []limiter.Store{careless{s.pipe.client}}, Limits: []limiter.Limit{perYear(20)}}
	model := limitertest.Model(limiter.Options{}, limitertest.AgreeInAdmission)
	for n := range 1000 {
		if !load.Run(t, fmt.Sprint(n), uint64(n)).Check(t, model) {
			return
		}
	}
	t.Error("1,000 histories of a store that loses updates were taken for right")
}
