package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// leasing is a store whose clock stands unless it is moved, so that no lease idles.
type leasing struct {
	*Store
	t     *testing.T
	redis *testenv.Redis
	clock *limitertest.Clock
}

func newLeasing(t *testing.T, opts Options) *leasing {
	t.Helper()
	l := &leasing{t: t, redis: testenv.StartRedis(t, testenv.RedisOptions{}), clock: limitertest.NewClock(time.Now().Truncate(time.Hour).Add(time.Minute))}
	l.Store = open(t, l.redis.Addr, opts, l.clock.Now)
	return l
}

// hand is what the store has of the hit's counter.
func hand(s *Store, h limiter.Hit) (l lease) {
	k := s.naming.hash(h.Key, nil)
	shard := s.leases.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if held := shard.leases[k]; held != nil {
		l = *held
	}
	return l
}

// lease decides the hit until a lease is in hand and nothing is under way, and
// returns how often.
func (l *leasing) lease(h limiter.Hit) (n uint64) {
	l.t.Helper()
	await(l.t, "a lease is taken", func() bool {
		held := hand(l.Store, h)
		switch {
		case held.asked > 0:
			return false
		case held.left > 0:
			return true
		}
		if !decide(l.t, l.Store, h)[0].Allowed {
			l.t.Fatalf("the hit number %d is refused", n+1)
		}
		n++
		return false
	})
	return n
}

// used is what Redis has counted, leases included.
func used(t testing.TB, r *testenv.Redis, s *Store, h limiter.Hit) uint64 {
	t.Helper()
	text := r.MustDo(t, "GET", s.naming.Counter(h.Key, nil))
	if text == "" || text == "(nil)" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n % (1 << 33)
}

func TestALeasedHotKeyCostsNextToNoRedis(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	h := hit("k", leased(1_000_000, 1000), 1)
	const hits = 50_000
	for n := range uint64(hits) {
		d := decide(t, s, h)[0]
		if !d.Allowed || d.Remaining > h.Limit.Requests-n-1 || d.ResetAfter <= 0 || d.Origin != limiter.OriginStore {
			t.Fatalf("the hit number %d: %+v", n+1, d)
		}
	}
	trips := calls(t, r, "evalsha") + calls(t, r, "eval")
	counts, _ := s.Leases()
	t.Logf("%d hits: %d scripts, %+v", hits, trips, counts)
	if trips > hits/10 {
		t.Errorf("%d hits of a hot key were %d calls of Redis", hits, trips)
	}
	await(t, "a look shows all that is left", func() bool { return decide(t, s, hit("k", h.Limit, 0))[0].Remaining == h.Limit.Requests-hits })
	counts, _ = s.Leases()
	if got, want := used(t, r, s, h), hits+counts.Taken-counts.Spent-counts.Returned; got != want {
		t.Errorf("Redis has counted %d, want %d: %d hits and what is in hand", got, want, hits)
	}
}

// What is leased comes back where it is not used.
func TestUnusedHitsComeBack(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	h := hit("k", leased(1000, 500), 1)
	for _, c := range []struct {
		remark string
		end    func(s *Store)
	}{
		{"after a second without a hit", func(*Store) {}},
		{"at the end of the process", func(s *Store) {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}},
	} {
		s := open(t, r.Addr, Options{KeyPrefix: c.remark}, nil)
		l := &leasing{Store: s, t: t, redis: r}
		n := l.lease(h)
		c.end(s)
		await(t, "all is back "+c.remark, func() bool { return used(t, r, s, h) == n })
		other := open(t, r.Addr, Options{KeyPrefix: c.remark}, nil)
		if d := decide(t, other, hit("k", h.Limit, 1000-n))[0]; !d.Allowed {
			t.Errorf("%s, another instance does not get the %d that are left: %+v", c.remark, 1000-n, d)
		}
		if counts, held := s.Leases(); counts.Taken != counts.Spent+counts.Returned || held != 0 {
			t.Errorf("%s: %+v, and %d counters in hand", c.remark, counts, held)
		}
	}
}

// A lease is for its window, by the time at which Redis was asked.
func TestALeaseIsNotSpentInTheNextWindow(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	h := hit("k", limiter.Limit{Requests: 1000, Window: limiter.Window{Length: time.Second}, Lease: 100}, 1)
	n := l.lease(h)
	l.clock.Add(time.Second - 2*time.Microsecond)
	if d := decide(t, l.Store, h)[0]; !d.Allowed || used(t, l.redis, l.Store, h) == n+1 {
		t.Errorf("just before the window's end the lease is not spent: %+v", d)
	}
	left := hand(l.Store, h).left
	l.clock.Add(2 * time.Microsecond)
	if d := decide(t, l.Store, h)[0]; !d.Allowed || d.Remaining != 999 {
		t.Errorf("the first hit of the next window: %+v", d)
	}
	if left == 0 {
		t.Error("the window's end found nothing in hand")
	}
	await(t, "what it had is given up", func() bool { counts, _ := l.Leases(); return counts.Lost == left })
}

// Requests with hits of several rules are all or nothing, whatever leases cover.
func TestALeaseKeepsRequestsAllOrNothing(t *testing.T) {
	t.Parallel()
	hot, hot2, spent, free := hit("hot", leased(10_000, 100), 1), hit("hot2", leased(10_000, 100), 1), hit("spent", perYear(2), 1), hit("free", perYear(1000), 1)
	change := func(h limiter.Hit, f func(h *limiter.Hit)) limiter.Hit { f(&h); return h }
	shadow := func(h limiter.Hit) limiter.Hit { return change(h, func(h *limiter.Hit) { h.Shadow = true }) }
	quota := func(h limiter.Hit) limiter.Hit { return change(h, func(h *limiter.Hit) { h.Quota = true }) }
	for _, c := range []struct {
		remark string
		each   bool
		hits   []limiter.Hit
		passes bool
		costs  map[string]uint64 // by counter; no other is charged
	}{
		{"alone", false, []limiter.Hit{hot}, true, map[string]uint64{"hot": 1}},
		{"two leases", false, []limiter.Hit{hot, hot2}, true, map[string]uint64{"hot": 1, "hot2": 1}},
		{"beside one that passes", false, []limiter.Hit{free, hot}, true, map[string]uint64{"hot": 1, "free": 1}},
		{"beside one that refuses", false, []limiter.Hit{hot, spent}, false, nil},
		{"two beside one that refuses", false, []limiter.Hit{hot, spent, hot2, free}, false, nil},
		{"each on its own, beside one that refuses", true, []limiter.Hit{hot, spent, free}, false, map[string]uint64{"hot": 1, "free": 1}},
		{"more than is in hand, beside a lease", false, []limiter.Hit{hit("hot", hot.Limit, 3000), hot2}, true, map[string]uint64{"hot": 3000, "hot2": 1}},
		{"more than there is, beside a lease", false, []limiter.Hit{hit("hot", hot.Limit, 10_000), hot2}, false, nil},
		{"a shadow lease, beside one that refuses", false, []limiter.Hit{shadow(hot), spent}, false, nil},
		{"a shadow lease, beside one that passes", false, []limiter.Hit{shadow(hot), free}, true, map[string]uint64{"hot": 1, "free": 1}},
		{"a lease beside a shadow hit that refuses", false, []limiter.Hit{hot, shadow(spent)}, true, map[string]uint64{"hot": 1}},
		{"a quota lease beside a quota that refuses", false, []limiter.Hit{quota(hot), quota(spent), free}, true, map[string]uint64{"hot": 1, "free": 1}},
		{"a quota lease beside a plain limit that refuses", false, []limiter.Hit{quota(hot), spent}, false, nil},
		{"a lease beside the only quota, which refuses", false, []limiter.Hit{hot, quota(spent)}, false, nil},
		{"two hits on one counter", false, []limiter.Hit{hot, hot, hot2}, true, map[string]uint64{"hot": 2, "hot2": 1}},
		{"two on one counter, beside one that refuses", false, []limiter.Hit{hot, hot, spent}, false, nil},
		{"beside a refund that passes", false, []limiter.Hit{hot, refund(hit("refunded", perYear(9), 1))}, true, map[string]uint64{"hot": 1}},
		{"beside a limit of 0", false, []limiter.Hit{hot, hit("none", perYear(0), 1)}, false, nil},
		{"beside a look", false, []limiter.Hit{hot, hit("hot2", hot2.Limit, 0)}, true, map[string]uint64{"hot": 1}},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			l := newLeasing(t, Options{Options: limiter.Options{ChargeEach: c.each}})
			before := map[string]uint64{"hot": l.lease(hot), "hot2": l.lease(hot2), "spent": 2}
			decide(t, l.Store, hit("spent", spent.Limit, 2))
			counts, _ := l.Leases()
			d := decide(t, l.Store, c.hits...)
			if passes := limiter.Passes(c.hits, d); passes != c.passes {
				t.Errorf("it passes: %v: %+v", passes, d)
			}
			await(t, "nothing is under way", func() bool { return hand(l.Store, hot).asked+hand(l.Store, hot2).asked == 0 })
			for _, h := range []limiter.Hit{hot, hot2, spent, free} {
				key := string(h.Key)
				want := h.Limit.Requests - before[key] - c.costs[key]
				await(t, fmt.Sprintf("%d remain of %s", want, key), func() bool { return decide(t, l.Store, hit(key, h.Limit, 0))[0].Remaining == want })
			}
			after, _ := l.Leases()
			for i := range c.hits {
				if h := &c.hits[i]; leasable(h) && h.Cost == 1 && c.costs["hot"] == 1 && !slices.ContainsFunc(c.hits, func(h limiter.Hit) bool { return h.Quota }) && after.Spent == counts.Spent {
					t.Errorf("no lease was spent from: %+v, before %+v", after, counts)
				}
			}
		})
	}
}

// The tail of a limit: what is in hand and what Redis has left together are not lost
// for a hit that needs both.
func TestAHitOfMoreThanIsInHandGetsItTheNextTime(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{DenyCache: time.Minute})
	h := hit("k", leased(100, 50), 1)
	n := l.lease(h)
	left := hand(l.Store, h).left
	all := hit("k", h.Limit, 100-n)
	if d := decide(t, l.Store, all)[0]; d.Allowed {
		t.Fatalf("%d, of which %d are in hand: %+v", all.Cost, left, d)
	}
	await(t, "it passes when the lease is back", func() bool { return decide(t, l.Store, all)[0].Allowed })
	if d := decide(t, l.Store, h)[0]; d.Allowed {
		t.Errorf("one more than the limit: %+v", d)
	}
}

func TestALimitThatIsChangedLiveEndsItsLease(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	h := hit("k", leased(1000, 500), 1)
	n := l.lease(h)
	lowered := hit("k", leased(n+3, 500), 1)
	var passed uint64
	for range 20 {
		if decide(t, l.Store, lowered)[0].Allowed {
			passed++
		}
	}
	await(t, "what was leased is back", func() bool {
		if decide(t, l.Store, lowered)[0].Allowed {
			passed++
		}
		return used(t, l.redis, l.Store, h) == n+3
	})
	if passed != 3 {
		t.Errorf("a limit lowered to 3 more than were used let %d pass", passed)
	}
	off := hit("k", perYear(n+10), 1)
	if d := decide(t, l.Store, off)[0]; !d.Allowed || d.Remaining != 6 {
		t.Errorf("a rule whose lease was taken away, with 7 left: %+v", d)
	}
}

func TestARefundAndALookOfALeasedCounter(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	h := hit("k", leased(1000, 100), 1)
	n := l.lease(h)
	if d := decide(t, l.Store, refund(hit("k", h.Limit, n)))[0]; !d.Allowed || d.Remaining != 1000 {
		t.Errorf("all %d that were used are refunded: %+v", n, d)
	}
	if d := decide(t, l.Store, hit("k", h.Limit, 0))[0]; d.Remaining != 1000 {
		t.Errorf("a look: %+v", d)
	}
	p, err := l.Peek(t.Context(), []limiter.Hit{h})
	if err != nil || !p[0].Allowed || p[0].Remaining != 1000 {
		t.Errorf("a peek: %+v, %v", p, err)
	}
	if got, want := used(t, l.redis, l.Store, h), hand(l.Store, h).left; got != want || got == 0 {
		t.Errorf("Redis has counted %d, want the %d in hand", got, want)
	}
}

// With count_denied refusals count, but what a lease is not given does not.
func TestOnlyTriesOfClientsCountAsDenied(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	limit := leased(100, 50)
	limit.CountDenied = true
	h := hit("k", limit, 1)
	for range 130 {
		decide(t, l.Store, h)
	}
	await(t, "nothing is under way", func() bool { return hand(l.Store, h).asked == 0 })
	left := hand(l.Store, h).left
	if got := used(t, l.redis, l.Store, h) - left; got != 130 {
		t.Errorf("130 tries at a limit of 100 count as %d", got)
	}
	k := l.naming.hash(h.Key, nil)
	before, _ := l.Leases()
	l.takeSoon(&h, errand{counter: k, lease: &lease{}, limit: limit, hits: 50})
	await(t, "a take is refused", func() bool { counts, _ := l.Leases(); return counts.Refused > before.Refused })
	if got := used(t, l.redis, l.Store, h) - left; got != 130 {
		t.Errorf("a take that is refused counts: %d", got)
	}
}

func TestAResetEndsTheLeaseOfItsInstance(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	h := hit("k", leased(1000, 100), 1)
	l.lease(h)
	if held, err := l.Reset(t.Context(), []limiter.Counter{{Key: h.Key}}); err != nil || held != 1 {
		t.Fatal(held, err)
	}
	if left := hand(l.Store, h).left; left != 0 {
		t.Errorf("%d hits of before are in hand", left)
	}
	if d := decide(t, l.Store, hit("k", h.Limit, 1000))[0]; !d.Allowed {
		t.Errorf("the whole limit, after a reset: %+v", d)
	}
	if d := decide(t, l.Store, h)[0]; d.Allowed {
		t.Errorf("one more: %+v", d)
	}
	if got := used(t, l.redis, l.Store, h); got != 1000 {
		t.Errorf("Redis has counted %d", got)
	}
}

// A Redis that forgot what was used has the limit left, beside what is in hand.
func TestALeaseTellsOfNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	l := &leasing{Store: s, t: t, redis: r}
	h, other := hit("k", leased(1000, 500), 1), hit("other", perYear(1000), 1)
	l.lease(h)
	for hand(s, h).left < 20 {
		l.lease(h)
		decide(t, s, h)
	}
	r.MustDo(t, "FLUSHALL")
	before, _ := s.Leases()
	await(t, "it has taken more of the forgetful Redis", func() bool {
		for _, d := range [][]limiter.Decision{decide(t, s, h), decide(t, s, h, other)} {
			if d[0].Remaining > 1000 {
				t.Errorf("of a limit of 1000 remain %d", d[0].Remaining)
			}
		}
		after, _ := s.Leases()
		return after.Takes > before.Takes+1
	})
}

// A hundred thousand keys that come once cost what they cost without leases.
func TestColdKeysOfALeasedRuleCostNoMore(t *testing.T) {
	t.Parallel()
	l := newLeasing(t, Options{})
	const keys = 100_000
	limit := leased(1000, 100)
	done := make(chan bool)
	for w := range 50 {
		go func() {
			defer func() { done <- true }()
			for i := range keys / 50 {
				if d, err := l.Decide(context.Background(), []limiter.Hit{hit(fmt.Sprint(w, " ", i), limit, 1)}); err != nil || !d[0].Allowed || d[0].Remaining != 999 {
					t.Errorf("%+v, %v", d, err)
					return
				}
			}
		}()
	}
	for range 50 {
		<-done
	}
	if n := calls(t, l.redis, "evalsha"); n != keys {
		t.Errorf("%d keys were asked for in %d calls", keys, n)
	}
	if counts, held := l.Leases(); counts != (LeaseCounts{}) || held != 0 {
		t.Errorf("%+v, %d in hand", counts, held)
	}
}
