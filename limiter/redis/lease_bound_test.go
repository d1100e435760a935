package redis

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// What leases promise of the limit, over several instances.

// tally counts what passes by window. What passes while one ends may be of either.
type tally struct {
	mu              sync.Mutex
	surely, perhaps map[int64]int
}

func (c *tally) count(before, after time.Time, window time.Duration) {
	first, last := before.UnixNano()/int64(window), after.UnixNano()/int64(window)
	c.mu.Lock()
	defer c.mu.Unlock()
	if first == last {
		c.surely[first]++
	}
	c.perhaps[first]++
	if first != last {
		c.perhaps[last]++
	}
}

func TestInstancesWithLeasesNeverAdmitMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	for _, c := range []struct {
		remark string
		window time.Duration
		limit  uint64
		pause  time.Duration // between hits: by long ones leases are in hand when windows end
	}{
		{"more than there is", time.Second, 5000, 0},
		{"leases at the end of short windows", 200 * time.Millisecond, 2000, 300 * time.Microsecond},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			h := hit(c.remark, limiter.Limit{Requests: c.limit, Window: limiter.Window{Length: c.window}, Lease: 500}, 1)
			passed := &tally{surely: map[int64]int{}, perhaps: map[int64]int{}}
			begin := time.Now()
			var calling sync.WaitGroup
			for range 3 {
				s := open(t, r.Addr, Options{KeyPrefix: "shared:", DenyCache: DefaultDenyCache}, nil)
				for range 4 {
					calling.Go(func() {
						for before := begin; before.Sub(begin) < 3500*time.Millisecond; {
							before = time.Now()
							d, err := s.Decide(context.Background(), []limiter.Hit{h})
							if err != nil {
								t.Error(err)
								return
							}
							if d[0].Allowed {
								passed.count(before, time.Now(), c.window)
							}
							if wait := min(d[0].RetryAfter, time.Millisecond); wait > 0 || c.pause > 0 {
								time.Sleep(max(wait, c.pause))
							}
						}
					})
				}
				t.Cleanup(func() { counts, _ := s.Leases(); t.Logf("%+v", counts) })
			}
			calling.Wait()
			first := begin.UnixNano() / int64(c.window)
			last := time.Now().UnixNano() / int64(c.window)
			for w := first; w <= last; w++ {
				if n := passed.surely[w]; n > int(c.limit) {
					t.Errorf("in window %d of %v a limit of %d let %d pass", w-first, c.window, c.limit, n)
				}
				whole := w > first && w < last
				if n := passed.perhaps[w]; whole && c.pause == 0 && n < int(c.limit)*9/10 {
					t.Errorf("in window %d of %v only %d of %d passed", w-first, c.window, n, c.limit)
				}
			}
			t.Logf("in each window: %v", passed.surely)
		})
	}
}

// An instance that is killed takes with it what it had in hand, no more.
func TestAKilledInstanceLeavesNoMoreThanItsLeaseUnused(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	h := killedHit()
	limit := h.Limit.Requests
	victim := exec.Command(os.Args[0], "-test.run=^TestTheInstanceThatIsKilled$")
	victim.Env = append(os.Environ(), "WEIR_TEST_KILLED="+r.Addr)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	stores := []*Store{open(t, r.Addr, Options{KeyPrefix: "shared:"}, nil), open(t, r.Addr, Options{KeyPrefix: "shared:"}, nil)}
	var others atomic.Uint64
	spend := func(most int) {
		var calling sync.WaitGroup
		for _, s := range stores {
			calling.Go(func() {
				for n := 0; n < most && decide(t, s, h)[0].Allowed; n++ {
					others.Add(1)
				}
			})
		}
		calling.Wait()
	}
	var killed uint64
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() != "passed" {
			continue
		}
		if killed++; killed == 1000 {
			spend(2000)
			if err := victim.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("after %d hits the instance ended by itself: %v", killed, err)
	}
	await(t, "all that is left is spent", func() bool {
		before := others.Load()
		spend(int(limit))
		for _, s := range stores {
			if _, held := s.Leases(); held > 0 {
				return false
			}
		}
		return others.Load() == before
	})
	total := killed + others.Load()
	t.Logf("of %d passed %d of the killed instance and %d of the others", limit, killed, others.Load())
	if total > limit {
		t.Errorf("a limit of %d let %d pass", limit, total)
	}
	if total+h.Limit.Lease+1 < limit { // one may have passed that was not told any more
		t.Errorf("of a limit of %d passed %d; a killed instance with leases of %d left more unused", limit, total, h.Limit.Lease)
	}
}

func killedHit() limiter.Hit { return hit("k", leased(200_000, 1000), 1) }

// TestTheInstanceThatIsKilled is no test, but the process of the one above.
func TestTheInstanceThatIsKilled(t *testing.T) {
	addr := os.Getenv("WEIR_TEST_KILLED")
	if addr == "" {
		t.Skip("it is run by another test")
	}
	s := open(t, addr, Options{KeyPrefix: "shared:"}, nil)
	for decide(t, s, killedHit())[0].Allowed {
		fmt.Println("passed")
	}
}

// While Redis is away an instance spends what it has in hand, and then what it knows
// to be left: what Redis had counted, leases too, is not admitted again.
func TestWithoutRedisALeaseIsSpentFirstAndTheLimitOnceMoreAtMost(t *testing.T) {
	t.Parallel()
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, testenv.RedisOptions{})
			s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 200 * time.Millisecond, Events: Events{Failed: ignored}})
			l := &leasing{Store: s, t: t, redis: r}
			h := hit("k", leased(300, 100), 1)
			l.lease(h)
			left := uint64(0)
			await(t, "several are in hand", func() bool {
				for hand(s, h).left < 4 {
					decide(t, s, h)
				}
				held := hand(s, h)
				left = held.left
				return held.asked == 0 && held.left >= 4
			})
			counted := used(t, r, s, h)
			outage.away(t, r)
			before := time.Now()
			for range left {
				if d := decide(t, s, h)[0]; !d.Allowed || d.Origin != limiter.OriginStore {
					t.Errorf("in hand: %+v", d)
				}
			}
			if took := time.Since(before); took > 150*time.Millisecond {
				t.Errorf("%d hits in hand waited %v for a Redis that is away", left, took)
			}
			passed := uint64(0)
			for decide(t, s, h)[0].Allowed {
				passed++
			}
			if passed > 300-counted {
				t.Errorf("Redis had counted %d of 300, and %d more passed", counted, passed)
			}
			outage.back(t, r)
			await(t, "Redis decides again", s.Healthy)
		})
	}
}

func TestLeasesOnACluster(t *testing.T) {
	t.Parallel()
	c := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	s := openCluster(t, c, Options{KeyPrefix: "leased:"})
	var hits []limiter.Hit
	for i := range 6 {
		hits = append(hits, hit(fmt.Sprint("k", i), leased(100_000, 100), 1))
	}
	const requests = 2000
	for range requests {
		if d := decide(t, s, hits...); !limiter.Passes(hits, d) {
			t.Fatalf("%+v", d)
		}
	}
	counts, _ := s.Leases()
	t.Logf("%+v", counts)
	if counts.Spent < requests*6/2 {
		t.Errorf("of %d hits, leases covered %d", requests*6, counts.Spent)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	other := openCluster(t, c, Options{KeyPrefix: "leased:"})
	for _, h := range hits {
		if d := decide(t, other, hit(string(h.Key), h.Limit, 0))[0]; d.Remaining != 100_000-requests {
			t.Errorf("%s: %d remain after %d", h.Key, d.Remaining, requests)
		}
	}
}
