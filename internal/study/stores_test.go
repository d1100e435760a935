package study

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
	"weir/limiter/redis"
)

// What the study measures on the stores themselves.

// TestCountersTakeWhatThePageSays: the memory store's tables are fuller or emptier by
// chance, and another Redis may need more or less.
func TestCountersTakeWhatThePageSays(t *testing.T) {
	want, got := readResults(t).Memory, measureMemory(t, false)
	for i, w := range want.Rows {
		g := got.Rows[i]
		if g.Algorithm != w.Algorithm || g.Hits != w.Hits {
			t.Fatalf("row %d is of %s, %d hits; the page's is of %s, %d hits", i, g.Algorithm, g.Hits, w.Algorithm, w.Hits)
		}
		if toMeasure[i].again && !near(g.Memory, w.Memory, 10) {
			t.Errorf("%s with %d hits takes %d bytes in memory; the page says %d", g.Algorithm, g.Hits, g.Memory, w.Memory)
		}
		if !near(g.Redis, w.Redis, 30) || got.Redis == want.Redis && g.Redis != w.Redis {
			t.Errorf("%s with %d hits takes %d bytes in Redis %s; the page says %d in Redis %s", g.Algorithm, g.Hits, g.Redis, got.Redis, w.Redis, want.Redis)
		}
	}
}

func near(got, want int64, percent int) bool {
	return max(got-want, want-got)*100 <= want*int64(percent)
}

// measured is a kind of counter, and how many hits are in it: 0 where that does not
// matter. Some are enough to be measured again by each make test.
type measured struct {
	algorithm, hits, counters int
	again                     bool
}

var toMeasure = []measured{
	{fixedWindow, 0, 100_000, true},
	{slidingCounter, 0, 100_000, false},
	{tokenBucket, 0, 100_000, false},
	{leakyBucket, 0, 100_000, false},
	{exactLog, 1, 100_000, false},
	{exactLog, 10, 20_000, false},
	{exactLog, 100, 2_000, false},
	{exactLog, 1000, 200, true},
}

func measureMemory(t *testing.T, all bool) Memory {
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	m := Memory{Redis: r.Info("redis_version")}
	for _, x := range toMeasure {
		l := limits(1000, hour)[x.algorithm]
		row := MemoryRow{Algorithm: algorithmNames[x.algorithm], Hits: int64(x.hits), Redis: inRedis(t, r, l, max(1, x.hits))}
		if all || x.again {
			row.Memory = rounded(inMemory(t, l, x.counters, max(1, x.hits)))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

// rounded has a digit or two: how full tables are is chance.
func rounded(n int64) int64 {
	unit := int64(10)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

func inMemory(t *testing.T, l limiter.Limit, counters, hits int) int64 {
	clock := limitertest.NewClock(time.UnixMicro(start))
	m := limiter.NewMemory(limiter.MemoryOptions{Now: clock.Now})
	before := liveHeap()
	h := []limiter.Hit{{Key: make(limiter.Key, 24), Limit: l, Cost: 1, MaxDelay: limiter.NoDeadline}}
	for range hits {
		for i := range counters {
			binary.LittleEndian.PutUint64(h[0].Key, uint64(i))
			pass(t, m, h)
		}
		clock.Add(time.Second)
	}
	each := (liveHeap() - before) / int64(counters)
	runtime.KeepAlive(m)
	return each
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func inRedis(t *testing.T, r *testenv.Redis, l limiter.Limit, hits int) int64 {
	clock := limitertest.NewClock(time.UnixMicro(start))
	s := openRedis(t, r, clock.Now)
	key := limiter.Key(fmt.Sprint(l.Algorithm, hits))
	for range hits {
		pass(t, s, []limiter.Hit{{Key: key, Limit: l, Cost: 1, MaxDelay: limiter.NoDeadline}})
		clock.Add(time.Second)
	}
	text := r.MustDo(t, "MEMORY", "USAGE", redis.NewNaming(redis.DefaultKeyPrefix, nil).Counter(key, nil), "SAMPLES", "0")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func pass(t *testing.T, s limiter.Store, h []limiter.Hit) {
	t.Helper()
	d, err := s.Decide(t.Context(), h)
	if err != nil || !d[0].Allowed {
		t.Fatalf("%v: %+v, %v", h[0].Limit.Algorithm, d, err)
	}
}

func openRedis(t *testing.T, r *testenv.Redis, now func() time.Time) *redis.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := redis.Open(ctx, redis.Options{
		URL: "redis://" + r.Addr, Timeout: 10 * time.Second, Local: limiter.NewStandby(limiter.MemoryOptions{}), Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Others hold what is left when an instance refuses: as much as the page derives, at most.
func TestRefusalsComeNoEarlierThanLeasesAreLarge(t *testing.T) {
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	for _, c := range []struct {
		remark           string
		instances, limit int64
		lease            uint64
	}{
		{"small leases", 3, 10_000, 100},
		{"leases as large as they can be", 3, 6_000, 100_000},
		{"many instances", 6, 5_000, 500},
	} {
		t.Run(c.remark, func(t *testing.T) {
			clock := limitertest.NewClock(time.UnixMicro(start + second/2))
			l := limits(uint64(c.limit), second)[fixedWindow]
			l.Lease = c.lease
			h := []limiter.Hit{{Key: limiter.Key(c.remark), Limit: l, Cost: 1}}
			var stores []*redis.Store
			for range c.instances {
				stores = append(stores, openRedis(t, r, clock.Now))
			}
			for turn := range 3 * c.limit { // leases grow, and are as large in the next window
				ask(t, stores[turn%c.instances], h)
			}
			clock.Add(600 * time.Millisecond) // a second would have them dwindle
			passed := int64(0)
			for _, s := range stores[1:] {
				before, _ := s.Leases()
				passed += ask(t, s, h)
				await(t, "a lease is filled", func() bool {
					counts, _ := s.Leases()
					return counts.Takes > before.Takes
				})
			}
			for refused := 0; refused < 50; refused++ { // the first may come while it is taking some itself
				for ask(t, stores[0], h) == 1 {
					passed++
					refused = 0
				}
			}
			early, most := c.limit-passed, leaseEarly(c.instances, c.limit, int64(c.lease))
			t.Logf("of %d, %d had passed when one of %d instances refused: others held %d, and may hold %d", c.limit, passed, c.instances, early, most)
			if early < 1 || early > most {
				t.Errorf("refusals came %d early, want 1 to %d", early, most)
			}
		})
	}
}

// await polls until something is so that happens in the background.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

func ask(t *testing.T, s limiter.Store, h []limiter.Hit) int64 {
	t.Helper()
	d, err := s.Decide(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if d[0].Allowed {
		return 1
	}
	return 0
}

// The README and docs/redis.md say what a counter takes, and how much passes.
func TestOtherPagesSayWhatTheStudyFinds(t *testing.T) {
	r := readResults(t)
	readme, redisPage := read(t, "../../README.md"), read(t, docs+"redis.md")
	for _, name := range algorithmNames {
		first, last := r.Memory.rows(name)
		wantCell(t, readme, name, fmt.Sprintf("about %d bytes", first.Memory))
		mustSay(t, redisPage, fmt.Sprintf("%d", first.Redis), name)
		if first != last {
			memory, redis := eachHit(first, last)
			wantCell(t, readme, name, fmt.Sprintf("about %d for each hit", memory))
			mustSay(t, redisPage, fmt.Sprintf("about %d for each hit", redis), name)
		}
	}
	for i, curve := range r.Worst.Curves {
		want := "`limit`"
		if i == fixedWindow || i == slidingCounter {
			want = fmt.Sprintf("%d × `limit`", curve[worstWindow/curveStep]/worstLimit)
		}
		if i == tokenBucket {
			want = "`burst` + `limit`"
		}
		wantCell(t, readme, algorithmNames[i], want)
	}
}

// wantCell wants the text in the README's row of an algorithm.
func wantCell(t *testing.T, page, algorithm, text string) {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `" + algorithm + "`.*$").FindString(page)
	if !strings.Contains(row, text) {
		t.Errorf("the README's row of %s does not say %q:\n%s", algorithm, text, row)
	}
}

func mustSay(t *testing.T, page, text, of string) {
	t.Helper()
	if !strings.Contains(page, text) {
		t.Errorf("docs/redis.md does not say %q (of %s)", text, of)
	}
}
