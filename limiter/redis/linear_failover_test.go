package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// together has clients make so many hits each, or hits until one is refused if n is
// 0, and returns how many passed. Those without an answer do not count.
func together(stores []*Store, h limiter.Hit, clients, n int) int {
	var passed atomic.Int64
	var calling sync.WaitGroup
	for i := range clients {
		calling.Go(func() {
			for k := 0; n == 0 || k < n; k++ {
				d, err := stores[i%len(stores)].Decide(context.Background(), []limiter.Hit{h})
				if err == nil && d[0].Allowed {
					passed.Add(1)
				} else if err == nil && n == 0 {
					return
				}
			}
		})
	}
	calling.Wait()
	return int(passed.Load())
}

// What a master admitted and had not told its replica passes once more after the
// failover: so much and no more. With leases, what is in hand then may pass too.
func TestAfterAFailoverAsMuchMorePassesAsTheReplicaMissed(t *testing.T) {
	t.Parallel()
	const limit, missed, lease = 3000, 160, 100
	for _, leases := range []bool{false, true} {
		t.Run(fmt.Sprintf("leases %t", leases), func(t *testing.T) {
			t.Parallel()
			sentinel := testenv.StartSentinel(t, testenv.SentinelOptions{Replicas: 1})
			h := onFailure(limiter.FailError, hit("k", perYear(limit), 1))
			if leases {
				h.Limit.Lease = lease
			}
			var stores []*Store
			for range 2 {
				stores = append(stores, openURL(t, Options{
					URL: "redis+sentinel://" + sentinel.Addrs() + "/" + sentinel.Name, KeyPrefix: "failover:", Timeout: time.Second, Events: Events{Failed: ignored},
				}))
			}
			passed := together(stores, h, 8, 100)
			if passed != 800 {
				t.Fatalf("%d of 800 passed", passed)
			}
			old, replica := sentinel.Nodes[0], sentinel.Nodes[1]
			await(t, "the replica has all", func() bool { return used(t, replica, stores[0], h) == used(t, old, stores[0], h) })
			if err := replica.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			old.MustDo(t, "CLIENT", "KILL", "TYPE", "replica")
			passed += together(stores, h, 8, missed/8)
			old.Kill()
			if err := replica.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if next := sentinel.Master(t); next != replica {
				t.Fatal("another master than the replica")
			}
			for _, s := range stores {
				await(t, "Redis decides again", func() bool {
					if d, err := s.Decide(context.Background(), []limiter.Hit{h}); err == nil && d[0].Allowed {
						passed++
					}
					return s.Healthy()
				})
			}
			passed += together(stores, h, 8, 0)
			t.Logf("of %d passed %d, and the replica missed %d", limit, passed, missed)
			most, least := limit+missed, limit+missed
			if leases {
				most, least = most+2*lease, limit-2*lease // what was taken from the old master is in hand
			}
			if passed > most || passed < least-50 { // some of those under way got no answer
				t.Errorf("%d passed, want %d to %d", passed, least, most)
			}
		})
	}
}

// Several instances with leases on a cluster let no more pass than the limit; after a
// reset the leases of others pass beside it, and no more.
func TestLeasesOnAClusterAreNeverOverTheLimitAndAResetAddsWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	var stores []*Store
	for range 3 {
		stores = append(stores, openCluster(t, c, Options{KeyPrefix: "leased:"}))
	}
	const limit, lease = 5000, 300
	for round := range 3 {
		h := hit(fmt.Sprint("k", round), leased(limit, lease), 1)
		passed := together(stores, h, 9, 200)
		if _, err := stores[0].Reset(t.Context(), []limiter.Counter{{Key: h.Key}}); err != nil {
			t.Fatal(err)
		}
		after := 0
		await(t, "nothing is left", func() bool {
			n := together(stores, h, 9, 0)
			after += n
			return n == 0 && nothingInHand(stores, h)
		})
		t.Logf("%d passed before the reset, and %d of %d after it", passed, after, limit)
		if after > limit+2*lease || after < limit {
			t.Errorf("after a reset a limit of %d with leases of %d let %d pass", limit, lease, after)
		}
		after = 0
		h.Key = limiter.Key(fmt.Sprint("never over ", round))
		await(t, "nothing is left", func() bool {
			n := together(stores, h, 9, 0)
			after += n
			return n == 0 && nothingInHand(stores, h)
		})
		if after != limit {
			t.Errorf("a limit of %d with leases of %d let %d pass", limit, lease, after)
		}
	}
}

func nothingInHand(stores []*Store, h limiter.Hit) bool {
	for _, s := range stores {
		if l := hand(s, h); l.left+l.lent+l.asked > 0 {
			return false
		}
	}
	return true
}

// A calendar's day ends under load: each day has its limit, exactly.
func TestACalendarsDayEndsUnderLoad(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	_, stores := linearStores(t, 3, r.Addr, Options{}, nil)
	const limit = 700
	midnight := time.Now().Truncate(time.Second).Add(3 * time.Second)
	zone := time.FixedZone("here", 86400-int(midnight.Unix()%86400))
	l := limiter.Limit{Requests: limit, Window: limiter.CalendarWindow(limiter.Day, zone)}
	var sums [2][3]atomic.Int64 // of one counter and of two; of the first day, the second, and of either
	var calling sync.WaitGroup
	for i := range 12 {
		calling.Go(func() {
			for before := time.Now(); before.Before(midnight.Add(time.Second)); before = time.Now() {
				hits := []limiter.Hit{hit("one", l, 1)}
				if i%2 == 1 {
					hits = []limiter.Hit{hit("two", l, 1), hit("wide", perYear(1_000_000), 1)}
				}
				day := 2
				d := decide(t, stores[i%3], hits...)
				switch {
				case !before.Before(midnight):
					day = 1
				case time.Now().Before(midnight):
					day = 0
				}
				if limiter.Passes(hits, d) {
					sums[i%2][day].Add(1)
				}
			}
		})
	}
	calling.Wait()
	for i := range sums {
		first, second, either := sums[i][0].Load(), sums[i][1].Load(), sums[i][2].Load()
		if first > limit || second > limit || first+second+either != 2*limit {
			t.Errorf("with %d counters: %d passed on the first day, %d on the second and %d on one of them, of %d each", i+1, first, second, either, limit)
		}
	}
}
