package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/chaos"
	"weir/internal/testenv"
	"weir/limiter"
)

// A command whose answer was lost may have been run: it is charged once.
func TestACommandWhoseAnswerWasLostIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		scheme string
		start  func(t *testing.T) *chaos.Proxy
	}{
		{"one Redis", "redis://", func(t *testing.T) *chaos.Proxy {
			return startProxy(t, testenv.StartRedis(t, testenv.RedisOptions{}).Addr)
		}},
		{"cluster", "redis+cluster://", startClusterProxy},
	} {
		for _, silent := range []bool{false, true} {
			name := c.name + ", connection cut"
			if silent {
				name = c.name + ", connection silent"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var failures atomic.Int32
				p := c.start(t)
				s := openURL(t, Options{URL: c.scheme + p.Addr(), Timeout: 200 * time.Millisecond, Events: Events{Failed: func(error) { failures.Add(1) }}})
				h := hit("k", perYear(10), 1)
				if d := decide(t, s, h); d[0].Remaining != 9 {
					t.Fatalf("%d remain of 10 after one hit", d[0].Remaining)
				}
				p.Lose(1, silent)
				if d := decide(t, s, h); !d[0].Allowed || d[0].Remaining != 8 {
					t.Errorf("the answer was lost, and the failure policy says %+v", d[0])
				}
				if p.Lost() == 0 {
					t.Fatal("nothing was lost")
				}
				var seen uint64
				await(t, "Redis decides again", func() bool {
					before := failures.Load()
					seen = decide(t, s, hit("k", h.Limit, 0))[0].Remaining
					return failures.Load() == before && s.Healthy()
				})
				if seen != 8 {
					t.Errorf("%d remain of 10 after two hits, one of whose answers was lost", seen)
				}
			})
		}
	}
}

// startClusterProxy starts a cluster of one node, which is known by the proxy's
// address.
func startClusterProxy(t *testing.T) *chaos.Proxy {
	addr := testenv.FreeAddr(t)
	p := startProxy(t, addr)
	_, port, _ := net.SplitHostPort(p.Addr())
	node := testenv.StartRedis(t, testenv.RedisOptions{Addr: addr, Args: []string{
		"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(testenv.FreePort(t)), "--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port,
	}})
	node.MustDo(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	await(t, "the cluster is whole", func() bool {
		_, err := node.Do("SET", "key", "value")
		return err == nil
	})
	return p
}

// NOSCRIPT says that a script was not run, so it is sent again.
func TestScriptsThatRedisForgotAreLoadedAgainUnderLoad(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	const callers, each = 16, 200
	limit := perYear(callers * each)
	done := make(chan struct{})
	var flushing, calling sync.WaitGroup
	flushes := 0
	flushing.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := r.Do("SCRIPT", "FLUSH"); err != nil {
					t.Error(err)
					return
				}
				flushes++
				time.Sleep(2 * time.Millisecond) // load, not a wait
			}
		}
	})
	for range callers {
		calling.Go(func() {
			for range each {
				d, err := s.Decide(context.Background(), []limiter.Hit{hit("k", limit, 1), hit("j", limit, 1)})
				if err != nil || !d[0].Allowed || !d[1].Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	calling.Wait()
	close(done)
	flushing.Wait()
	if d := decide(t, s, hit("k", limit, 0), hit("j", limit, 0)); d[0].Remaining != 0 || d[1].Remaining != 0 {
		t.Errorf("after all hits of the limits, %d and %d remain", d[0].Remaining, d[1].Remaining)
	}
	if flushes < 3 {
		t.Errorf("only %d times were the scripts forgotten", flushes)
	}
	t.Logf("forgotten %d times", flushes)
}
