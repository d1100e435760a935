package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// failover is a master that is killed under load.
type failover struct {
	rate   int           // requests a second, whether answered or not (an open loop)
	before time.Duration // the master is killed after it
	after  time.Duration // load goes on so long after the failover
	kill   func()
	await  func() // waits for the next master

	failed, outages atomic.Int64
}

func (f *failover) events() Events {
	return Events{Failed: func(error) { f.failed.Add(1) }, Breaker: func(open bool) {
		if open {
			f.outages.Add(1)
		}
	}}
}

// run puts load on the store and kills the master. No request may fail, and the
// limit may be exceeded only by what the instance decided alone and what the
// master had not told its replica.
func (f *failover) run(t *testing.T, s *Store) {
	t.Helper()
	const limit, others = 2000, 30
	hot := hit("hot", perYear(limit), 1)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var sent, admitted, errs atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	ask := func(h limiter.Hit) {
		begin := time.Now()
		d, err := s.Decide(context.Background(), []limiter.Hit{h})
		elapsed := time.Since(begin)
		mu.Lock()
		took = append(took, elapsed)
		mu.Unlock()
		switch {
		case err != nil:
			errs.Add(1)
			t.Errorf("a caller is told %v", err)
		case d[0].Allowed && h.Key[0] == 'h':
			admitted.Add(1)
		}
	}
	load.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		begin := time.Now()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for n := sent.Load(); n < int64(time.Since(begin).Seconds()*float64(f.rate)); n = sent.Add(1) {
				h := hot
				if n%2 == 1 {
					h = hit(fmt.Sprint("other ", n%others), hot.Limit, 1)
				}
				load.Go(func() { ask(h) })
			}
		}
	})
	await(t, "load has run for a while", func() bool { return sent.Load() >= int64(f.before.Seconds()*float64(f.rate)) })
	killed := time.Now()
	admittedBefore := admitted.Load()
	f.kill()
	f.await()
	promoted := time.Since(killed)
	await(t, "Redis decides again", s.Healthy)
	healthy := time.Since(killed)
	resume := sent.Load()
	await(t, "load has run for a while", func() bool { return sent.Load()-resume >= int64(f.after.Seconds()*float64(f.rate)) })
	stop()
	load.Wait()

	slices.Sort(took)
	t.Logf("%d requests, %d failed at Redis, %d errors; the next master after %v, healthy after %v", sent.Load(), f.failed.Load(), errs.Load(),
		promoted.Round(time.Millisecond), healthy.Round(time.Millisecond))
	t.Logf("of a limit of %d, %d were admitted before the kill and %d in all; median %v, p99 %v, longest %v", limit, admittedBefore, admitted.Load(),
		took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond), took[len(took)-1].Round(time.Microsecond))
	lag := int64(f.rate) / 5 // what a master may not have told its replica: as asynchronous as on a busy machine
	if n, most := admitted.Load(), limit+f.outages.Load()*(limit-admittedBefore)+lag; n < limit || n > most {
		t.Errorf("%d were admitted by a limit of %d, want no fewer, and at most %d: for each of %d outages what was left of it, and what was not replicated",
			n, limit, most, f.outages.Load())
	}
	if longest := took[len(took)-1]; longest > s.opts.Timeout+500*time.Millisecond {
		t.Errorf("a call took %v; the timeout is %v", longest, s.opts.Timeout)
	}
	for n := range uint64(20) { // exact again
		if d := decide(t, s, hit("fresh", hot.Limit, 1)); d[0].Remaining != limit-1-n {
			t.Errorf("after the failover, hit %d of a fresh counter leaves %d", n+1, d[0].Remaining)
		}
	}
}

func TestSentinelFailoverUnderLoadFailsNoCaller(t *testing.T) {
	t.Parallel()
	sentinel := testenv.StartSentinel(t, testenv.SentinelOptions{})
	f := failover{rate: 2000, before: time.Second, after: 2 * time.Second}
	f.kill = func() { sentinel.Master(t).Kill() }
	f.await = func() { sentinel.Master(t) }
	f.run(t, openURL(t, Options{URL: "redis+sentinel://" + sentinel.Addrs() + "/" + sentinel.Name, Timeout: 100 * time.Millisecond, Events: f.events()}))
}

func TestClusterFailoverUnderLoadFailsNoCaller(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{Replicas: 1})
	f := failover{rate: 2000, before: time.Second, after: 2 * time.Second}
	s := openURL(t, Options{URL: "redis+cluster://" + cluster.Addrs(), Timeout: 100 * time.Millisecond, Events: f.events()})
	key := s.naming.Counter(limiter.Key("hot"), nil)
	f.kill = func() { cluster.Master(t, key).Kill() }
	f.await = func() { cluster.AwaitFailover(t, key) }
	f.run(t, s)
}
