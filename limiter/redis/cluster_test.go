package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// openCluster returns a store on the cluster.
func openCluster(t *testing.T, c *testenv.RedisCluster, opts Options) *Store {
	t.Helper()
	opts.URL = "redis+cluster://" + c.Addrs()
	return openURL(t, opts)
}

func TestAClusterKeepsTheContract(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	limitertest.Run(t, limitertest.Options{
		New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
			return openCluster(t, cluster, Options{Options: opts, Now: now})
		},
	})
}

// All or nothing is left to the tests around: there, a part that passes by itself
// cannot know what another refuses, and says of hits that share a counter what is
// so for the part.
func TestAClusterThatChargesEachAgreesWithThePureFunctions(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	limitertest.Replay(t, limitertest.ReplayOptions{Steps: 5_000, ChargeEach: true, New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
		return openCluster(t, cluster, Options{Options: opts, Now: now})
	}})
}

// Requests over several slots charge and give back: the limit is never exceeded,
// and in the end nothing is left charged that was refused.
func TestAClusterIsNeverOverTheLimitAndGivesBack(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	var stores []*Store
	for range 3 {
		stores = append(stores, openCluster(t, cluster, Options{KeyPrefix: "shared:"}))
	}
	for _, l := range perAlgorithm(20, limiter.MaxWindow) {
		name := l.Algorithm.String()
		tight, wide := hit(name+" tight", l, 1), hit(name+" wide", perYear(1000), 1)
		other := hit(name+" other", perYear(10), 1)
		var admitted, both atomic.Int64
		var calling sync.WaitGroup
		for i := range 120 {
			calling.Go(func() {
				hits := []limiter.Hit{wide, tight}
				if i%2 == 1 {
					hits = []limiter.Hit{tight, other, wide}
				}
				d, err := stores[i%3].Decide(context.Background(), hits)
				if err != nil {
					t.Error(err)
				} else if limiter.Passes(hits, d) {
					admitted.Add(1)
					both.Add(int64(i % 2))
				}
			})
		}
		calling.Wait()
		n := admitted.Load()
		t.Logf("%s: of 20, %d were admitted", name, n)
		if n > 20 {
			t.Errorf("%s: a limit of 20 admitted %d", name, n)
		}
		d := decide(t, stores[0], hit(name+" wide", wide.Limit, 0), hit(name+" other", other.Limit, 0), hit(name+" tight", l, 0))
		if d[0].Remaining != uint64(1000-n) || d[1].Remaining != uint64(10-both.Load()) || d[2].Remaining != uint64(20-n) {
			t.Errorf("%s: after %d and %d admitted, %d, %d and %d remain", name, n, both.Load(), d[0].Remaining, d[1].Remaining, d[2].Remaining)
		}
	}
}

// A key's slot is what Redis says it is.
func TestSlotsAreRedisClusters(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{Args: []string{"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(testenv.FreePort(t))}})
	for _, key := range []string{"", "a", "123456789", NewNaming("", nil).Counter(limiter.Key("k"), nil), "{a}b", "x{a}b", "{}a", "{a", "a}b{c}", "{a}{b}", "\x00\xff"} {
		if got, want := fmt.Sprint(slotOf(key)), r.MustDo(t, "CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("key %q is in slot %s, want %s", key, got, want)
		}
	}
}
