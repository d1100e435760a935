package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

func TestThreeInstancesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var stores []*Store
	for range 3 {
		stores = append(stores, open(t, r.Addr, Options{KeyPrefix: "shared:", DenyCache: DefaultDenyCache}, nil))
	}
	const limit, callers, each = 100, 200, 3
	for _, l := range perAlgorithm(limit, limiter.MaxWindow) {
		for _, several := range []bool{false, true} {
			name := l.Algorithm.String()
			if several {
				name += " and another"
			}
			var admitted atomic.Int64
			var calling sync.WaitGroup
			begin := make(chan struct{})
			for i := range callers {
				calling.Go(func() {
					<-begin
					for range each {
						hits := []limiter.Hit{hit(name, l, 1)}
						if several {
							hits = append(hits, hit("other "+name, perYear(callers*each), 1))
						}
						d, err := stores[i%len(stores)].Decide(context.Background(), hits)
						if err != nil {
							t.Error(err)
						} else if limiter.Passes(hits, d) {
							admitted.Add(1)
						}
					}
				})
			}
			close(begin)
			calling.Wait()
			if n := admitted.Load(); n != limit {
				t.Errorf("%s: %d callers through %d instances were admitted %d times; the limit is %d", name, callers, len(stores), n, limit)
			}
			if several {
				if left := decide(t, stores[0], hit("other "+name, perYear(callers*each), 0))[0].Remaining; left != callers*each-limit {
					t.Errorf("%s: of the other counter %d remain: refused requests were charged", name, left)
				}
			}
		}
	}
}

func TestCountersFarAheadOfTheClockAreDroppedAndTold(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	clock := limitertest.NewClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	var dropped atomic.Int64
	s := open(t, r.Addr, Options{Events: Events{Dropped: func(n int64) { dropped.Add(n) }}}, clock.Now)
	for _, l := range perAlgorithm(3, time.Minute) {
		for _, several := range []bool{false, true} {
			name := l.Algorithm.String()
			hits := []limiter.Hit{hit(name, l, 2)}
			if several {
				name += " and another"
				hits = []limiter.Hit{hit(name, l, 2), hit("other "+name, l, 2)}
			}
			dropped.Store(0)
			decide(t, s, hits...)
			clock.Add(-30 * time.Second)
			if d := decide(t, s, hits...); d[0].Allowed || dropped.Load() != 0 {
				t.Errorf("%s: half a window back: %+v, %d dropped", name, d[0], dropped.Load())
			}
			clock.Add(-10 * time.Minute)
			if d := decide(t, s, hits...); !d[0].Allowed || d[0].Remaining != 1 {
				t.Errorf("%s: ten windows back: %+v", name, d[0])
			}
			if n := dropped.Load(); n != int64(len(hits)) {
				t.Errorf("%s: %d counters were told to be dropped, want %d", name, n, len(hits))
			}
			clock.Add(time.Hour)
		}
	}
}
