package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/testenv"
)

func TestTheBreakerOpensAfterFailuresInARowAndClosesByItself(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var failed atomic.Int32
	var mu sync.Mutex
	var changes []bool
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 100 * time.Millisecond, Events: Events{
		Failed: func(error) { failed.Add(1) },
		Breaker: func(open bool) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, open)
		},
	}})
	h := hit("k", perYear(100), 1)
	decide(t, s, h)
	signal(t, r, syscall.SIGSTOP)
	for n := 1; n <= failuresToOpen; n++ {
		if !s.Healthy() {
			t.Errorf("it is open after %d failures", n-1)
		}
		decide(t, s, h)
	}
	if s.Healthy() {
		t.Errorf("it is closed after %d failures in a row", failuresToOpen)
	}
	begin := time.Now()
	for range 1000 {
		decide(t, s, h)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("1000 decisions beside an open breaker took %v: they wait for Redis", took)
	}
	if n := failed.Load(); n != failuresToOpen {
		t.Errorf("%d failures were told of, want %d", n, failuresToOpen)
	}
	signal(t, r, syscall.SIGCONT)
	await(t, "it closes", s.Healthy)
	mu.Lock()
	defer mu.Unlock()
	if len(changes) != 2 || !changes[0] || changes[1] {
		t.Errorf("its changes are %v, want open, then closed", changes)
	}
}

func TestASuccessBetweenFailuresKeepsTheBreakerClosed(t *testing.T) {
	t.Parallel()
	b := newBreaker(nil, func(bool, error) { t.Error("it opened") })
	for range 5 {
		for range failuresToOpen - 1 {
			b.failed(errTimeout)
		}
		b.succeeded()
	}
	if b.isOpen() {
		t.Error("it is open")
	}
}

func TestTheBreakerProbesEverMoreSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var probes atomic.Int32
		var works atomic.Bool
		var b *breaker
		b = newBreaker(func(context.Context) error {
			probes.Add(1)
			if works.Load() {
				return nil
			}
			return errors.New("away")
		}, func(open bool, _ error) {
			if !open && !b.isOpen() {
				t.Error("it may open again before it has told that it closed")
			}
		})
		var running sync.WaitGroup
		running.Go(func() { b.run(ctx) })
		b.trip(errTimeout)
		time.Sleep(time.Second)
		if n := probes.Load(); n < 3 || n > 8 {
			t.Errorf("%d probes in the first second", n)
		}
		probes.Store(0)
		time.Sleep(time.Minute)
		if n := probes.Load(); n < 40 || n > 120 {
			t.Errorf("%d probes in a minute, want about one a second", n)
		}
		works.Store(true)
		time.Sleep(2 * lastProbe)
		if b.isOpen() {
			t.Errorf("it is open %v after Redis came back", 2*lastProbe)
		}

		// A Redis that answers probes and fails all the same.
		probes.Store(0)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for range failuresToOpen {
				b.failed(errTimeout)
			}
		}
		if n := probes.Load(); n > 120 {
			t.Errorf("it closed and opened %d times in a minute", n)
		}
		cancel()
		running.Wait()
	})
}
