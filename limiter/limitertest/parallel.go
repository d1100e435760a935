package limitertest

import (
	"context"
	"sync"
	"sync/atomic"

	"weir/limiter"
)

// parallel calls f n times at once.
func parallel(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			f(i)
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
}

func testParallelExact(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		l.Requests = 10
		if l.Algorithm == limiter.TokenBucket {
			l.Burst = 10
		}
		if l.Algorithm == limiter.LeakyBucket {
			l.Queue = 9
		}
		var admitted atomic.Int64
		parallel(200, func(int) {
			if d, err := s.store.Decide(context.Background(), []limiter.Hit{hit("k", l, 1)}); err != nil {
				s.Error(err)
			} else if d[0].Allowed {
				admitted.Add(1)
			}
		})
		if admitted.Load() != 10 {
			s.Errorf("200 at once on a limit of 10 admitted %d", admitted.Load())
		}
	})
}

// testParallelAllOrNothing sends requests over two of three keys, in every
// order, so that a store that locks them as they come would stand still.
func testParallelAllOrNothing(s *suite) {
	limits := map[string]limiter.Limit{"a": perHour(40), "b": perHour(30), "c": perHour(20)}
	pairs := []string{"ab", "ba", "bc", "cb", "ca", "ac"}
	var charged [128]atomic.Uint64
	parallel(240, func(i int) {
		pair := pairs[i%len(pairs)]
		x, y := pair[:1], pair[1:]
		hits := []limiter.Hit{hit(x, limits[x], 1), hit(y, limits[y], 1)}
		d, err := s.store.Decide(context.Background(), hits)
		if err != nil {
			s.Error(err)
		} else if limiter.Passes(hits, d) {
			charged[x[0]].Add(1)
			charged[y[0]].Add(1)
		}
	})
	for key, l := range limits {
		admitted := charged[key[0]].Load()
		if admitted > l.Requests {
			s.Errorf("%s: a limit of %d admitted %d", key, l.Requests, admitted)
		}
		if d := s.decide(hit(key, l, 0))[0]; d.Remaining+admitted != l.Requests {
			s.Errorf("%s: %d left of %d after admitting %d: a refused request was charged", key, d.Remaining, l.Requests, admitted)
		}
	}
}
