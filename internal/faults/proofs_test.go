package faults_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
)

// onBoth runs a test with counters in memory and in Redis.
func onBoth(t *testing.T, test func(t *testing.T, r *testenv.Redis)) {
	t.Helper()
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	t.Run("memory", func(t *testing.T) { test(t, nil) })
	t.Run("redis", func(t *testing.T) { test(t, r) })
}

func TestOfManyAtOnceTheLimitPasses(t *testing.T) {
	onBoth(t, func(t *testing.T, r *testenv.Redis) {
		const limit, clients, asks = 20, 30, 3
		w := newWorld(t, world{redis: r, rules: `
  - {match: {f: "*"}, limit: 20, window: 1h}
  - {match: {b: "*"}, limit: 20, window: 1h, algorithm: token_bucket}
  - {match: {l: "*"}, limit: 20, window: 1h, algorithm: sliding_window_log, count_denied: false}
  - {match: {c: "*"}, limit: 20, window: 1h, algorithm: sliding_window_counter}`})
		instances := []*instance{w.serve(t), w.serve(t), w.serve(t)}
		for _, ask := range []string{"f=1", "b=1", "l=1", "c=1", "f=2, b=2, l=2, c=2"} {
			var passed atomic.Int64
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for range asks {
						if code, _ := instances[i%3].ask(t, ask); code == "A" {
							passed.Add(1)
						}
					}
				})
			}
			all.Wait()
			if n := passed.Load(); n != limit {
				t.Errorf("%s: %d of %d asked at once passed, want %d", ask, n, clients*asks, limit)
			}
		}
	})
}

func TestABucketUnderLoadLetsItsRatePass(t *testing.T) {
	onBoth(t, func(t *testing.T, r *testenv.Redis) {
		w := newWorld(t, world{redis: r, rules: `
  - {endpoint: /x, limit: 1000, window: 1s, algorithm: token_bucket, burst: 10}`})
		s := w.serve(t)
		passed := 0
		const asks, every = 800, 700 * time.Microsecond
		for i := range asks {
			w.clock.Set(w.start.Add(time.Duration(i) * every))
			if code, _ := s.ask(t, "endpoint=/x"); code == "A" {
				passed++
			}
		}
		if want := 10 + int((asks-1)*every/time.Millisecond); passed != want {
			t.Errorf("%d passed, want %d: the burst, and one each millisecond", passed, want)
		}
	})
}

// A counter in Redis is there until it is as at first, and not for ever.
func TestACounterLivesAsLongAsItCounts(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	const day = 24 * time.Hour
	for _, c := range []struct {
		remark, rule string
		asks         []string
		least, most  time.Duration // of the time to live that is left
	}{
		{"3 a minute, burst 1: a third of the window", "limit: 3, window: 1m, algorithm: token_bucket, burst: 1", []string{"x=1"}, 10 * time.Second, 21 * time.Second},
		{"1 in 10 minutes", "limit: 1, window: 10m, algorithm: token_bucket, burst: 1", []string{"x=1"}, 9 * time.Minute, 10*time.Minute + time.Second},
		{"1,000 in 60 s, half of it used", "limit: 1000, window: 60s, algorithm: token_bucket", []string{"x=1 *500"}, 20 * time.Second, 31 * time.Second},
		{"1 each 15 s, 3 in all", "limit: 1, window: 15s, algorithm: token_bucket, burst: 3", []string{"x=1 *3"}, 35 * time.Second, 46 * time.Second},
		{"a leaky bucket of 6 an hour", "limit: 6, window: 1h, algorithm: leaky_bucket", []string{"x=1"}, 9 * time.Minute, 10*time.Minute + time.Second},
		{"a look first, then more than one", "limit: 10, window: 8784h", []string{"x=1 +0", "x=1 *3", "x=1 *8"}, time.Second, 366 * day},
		{"a first hit of 2", "limit: 10, window: 8784h", []string{"x=1 *2", "x=1 - +1"}, time.Second, 366 * day},
		{"a hit that plain commands count", "limit: 1000, window: 8784h", []string{"x=1", "x=1", "x=1"}, time.Second, 366 * day},
		{"1 a day", "limit: 1, window: 8784h, algorithm: sliding_window_counter", []string{"x=1", "x=1"}, 366 * day, 2 * 366 * day},
		{"a sliding counter: until the next window's end", "limit: 10, window: 1h, algorithm: sliding_window_counter", []string{"x=1"}, time.Hour - time.Minute, 2*time.Hour + time.Second},
		{"a log: one window", "limit: 10, window: 1h, algorithm: sliding_window_log", []string{"x=1 *11", "x=1"}, 59 * time.Minute, time.Hour + time.Second},
	} {
		w := newWorld(t, world{redis: r, real: true, rules: fmt.Sprintf(`
  - {match: {x: "*"}, %s}`, c.rule)})
		s := w.serve(t)
		for _, ask := range c.asks {
			s.ask(t, ask)
		}
		keys := w.keys(t)
		if len(keys) != 1 {
			t.Errorf("%s: it left keys %q, want one", c.remark, keys)
			continue
		}
		ms, err := strconv.ParseInt(r.MustDo(t, "PTTL", keys[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if ttl := time.Duration(ms) * time.Millisecond; ttl < c.least || ttl > c.most {
			t.Errorf("%s: it lives for %v, want %v to %v", c.remark, ttl, c.least, c.most)
		}
	}
}

func TestThoseWhoWaitGetTurnsOneAfterAnother(t *testing.T) {
	onBoth(t, func(t *testing.T, r *testenv.Redis) {
		const clients, apart = 8, 50 * time.Millisecond
		w := newWorld(t, world{redis: r, real: true, rules: `
  - {endpoint: /x, limit: 20, window: 1s, algorithm: leaky_bucket, queue: 20}`})
		s := w.serve(t)
		var turns [clients]time.Duration
		var all sync.WaitGroup
		begin := time.Now()
		for i := range clients {
			all.Go(func() {
				if code, facts := s.ask(t, "endpoint=/x"); code != "A" {
					t.Errorf("a request that might wait was answered %s, %q", code, facts)
				}
				turns[i] = time.Since(begin)
			})
		}
		all.Wait()
		slices.Sort(turns[:])
		for i, turn := range turns {
			if soonest := time.Duration(i)*apart - 5*time.Millisecond; turn < soonest {
				t.Errorf("request %d passed after %v, want %v at least: %v", i+1, turn, soonest, turns)
			}
		}
	})
}

func TestCountersAreNotKeptForEver(t *testing.T) {
	t.Parallel()
	const clients = 500
	w := newWorld(t, world{rules: `
  - {match: {f: "*"}, limit: 5, window: 1m}
  - {match: {b: "*"}, limit: 5, window: 1m, algorithm: token_bucket}
  - {match: {l: "*"}, limit: 5, window: 1m, algorithm: sliding_window_log}
  - {match: {c: "*"}, limit: 5, window: 1m, algorithm: sliding_window_counter}`})
	s := w.serve(t)
	for i := range clients {
		s.ask(t, fmt.Sprintf("f=%d, b=%[1]d, l=%[1]d, c=%[1]d", i))
	}
	if n := w.memory.Len(); n != 4*clients {
		t.Fatalf("it holds %d counters of %d", n, 4*clients)
	}
	w.clock.Add(2 * time.Minute)
	w.memory.Sweep()
	if n := w.memory.Len(); n != 0 {
		t.Errorf("two windows later it holds %d counters", n)
	}
}

func TestScriptsThatRedisForgotAreNoError(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	w := newWorld(t, world{redis: r, rules: `
  - {match: {f: "*"}, limit: 3, window: 1h}
  - {match: {b: "*"}, limit: 3, window: 1h, algorithm: token_bucket}
  - {match: {l: "*"}, limit: 3, window: 1h, algorithm: sliding_window_log}
  - {match: {c: "*"}, limit: 3, window: 1h, algorithm: sliding_window_counter}`})
	s := w.serve(t)
	for _, ask := range []string{"f=1", "b=1", "l=1", "c=1", "f=2, b=2, l=2, c=2"} {
		got := ""
		for range 4 {
			r.MustDo(t, "SCRIPT", "FLUSH")
			code, _ := s.ask(t, ask)
			got += code
		}
		if got != "AAAD" {
			t.Errorf("%s: %s, want AAAD", ask, got)
		}
	}
}

func TestWithoutRedisEachRuleDoesAsItSays(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	w := newWorld(t, world{redis: r, real: true, away: true, rules: `
  - {endpoint: /local, limit: 5, window: 8784h}
  - {endpoint: /open, limit: 1, window: 8784h, on_store_failure: allow}
  - {endpoint: /closed, limit: 100, window: 8784h, on_store_failure: deny}
  - {endpoint: /error, limit: 100, window: 8784h, on_store_failure: error}`})
	s := w.serve(t)
	for _, c := range []struct{ remark, endpoint, want string }{
		{"with Redis", "/local", "AA"},
		{"", "/open", "A"},
		{"", "/closed", "A"},
		{"", "/error", "A"},
		{remark: "without"},
		{"what was seen of it counts", "/local", "AAAD"},
		{"", "/open", "AAA"},
		{"", "/closed", "DDD"},
		{"", "/error", "EEE"},
	} {
		if c.endpoint == "" {
			r.Kill()
			continue
		}
		got := ""
		for range c.want {
			code, _ := s.ask(t, "endpoint="+c.endpoint)
			got += code
		}
		if got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.remark, c.endpoint, got, c.want)
		}
	}
}

func TestWhatIsRememberedRefusesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world{redis: testenv.StartRedis(t, testenv.RedisOptions{}), real: true, rules: `
  - {match: {f: "*"}, limit: 3, window: 8784h}
  - {match: {b: "*"}, limit: 3, window: 8784h, algorithm: token_bucket}`})
	s := w.serve(t)
	for _, c := range []struct{ remark, ask, want string }{
		{"all but one", "f=1 *2", "A"},
		{"a cost that has no room, again and again", "f=1 *2", "DDD"},
		{"has not refused what has", "f=1", "A"},
		{"the end", "f=1", "DDD"},
		{"a limit of its own is another counter", "f=1 !100/YEAR", "AAA"},
		{"of the same counter a low limit", "f=2 !1/YEAR", "ADD"},
		{"and a higher one", "f=2 !3/YEAR", "AAD"},
		{"a look", "f=1 +0", "AA"},
		{"a bucket, all but one", "b=1 *2", "A"},
		{"no room", "b=1 *2", "DDD"},
		{"room", "b=1", "AD"},
		{"given back", "b=1 - +1", "A"},
		{"and taken", "b=1", "AD"},
	} {
		got := ""
		for range c.want {
			code, _ := s.ask(t, c.ask)
			got += code
		}
		if got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.remark, c.ask, got, c.want)
		}
	}
}

// A bucket whose rate is raised is not refused for as long as it was to be before.
func TestARefusalIsNotRememberedBeyondItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world{redis: testenv.StartRedis(t, testenv.RedisOptions{}), real: true, rules: `
  - {match: {b: "*"}, limit: 1, window: 100s, algorithm: token_bucket, burst: 3}`})
	s := w.serve(t)
	for range 4 {
		s.ask(t, "b=1")
	}
	w.load(t, `
  - {match: {b: "*"}, limit: 100, window: 100s, algorithm: token_bucket, burst: 3}`)
	if code, facts := s.ask(t, "b=1"); code == "D" && !slices.Contains(facts, "retry 1") {
		t.Errorf("after the change %s, %q, want a wait of 1 s at most", code, facts)
	}
}

func TestANewInstanceGoesOnWhereTheOldOneEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world{redis: testenv.StartRedis(t, testenv.RedisOptions{}), rules: `
  - {match: {f: "*"}, limit: 10, window: 1h}
  - {match: {b: "*"}, limit: 10, window: 1h, algorithm: token_bucket}`})
	for i, want := range []string{"AAAA", "AAA", "AAAD"} {
		t.Run(fmt.Sprintf("instance %d", i+1), func(t *testing.T) {
			s, got := w.serve(t), ""
			for range want {
				code, _ := s.ask(t, "f=1, b=1")
				got += code
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
