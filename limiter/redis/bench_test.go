package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// BenchmarkDecide is the store's share of a decision, Redis's own aside, with 64
// requests under way. CPU is what counts; ns/op is throughput's inverse.
func BenchmarkDecide(b *testing.B) {
	redis := testenv.StartRedis(b, testenv.RedisOptions{})
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("hits=%d", n), func(b *testing.B) {
			s := open(b, redis.Addr, Options{Timeout: time.Second}, nil)
			limit := limiter.Limit{Requests: 100_000, Window: limiter.Window{Length: time.Hour}}
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				hits := make([]limiter.Hit, n)
				for pb.Next() {
					for i := range hits {
						hits[i] = limiter.Hit{Key: fmt.Appendf(hits[i].Key[:0], "0123456789abcdef%d", rand.IntN(10_000)), Limit: limit, Cost: 1}
					}
					if _, err := s.Decide(context.Background(), hits); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
