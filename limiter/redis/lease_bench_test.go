package redis

import (
	"context"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// BenchmarkHotKey is a decision on one hot counter: what Redis decides, what a lease
// covers, and what is in memory anyway.
func BenchmarkHotKey(b *testing.B) {
	redis := testenv.StartRedis(b, testenv.RedisOptions{})
	limit := limiter.Limit{Requests: limiter.MaxRequests, Window: limiter.Window{Length: 24 * time.Hour}}
	leased := limit
	leased.Lease = 10_000
	s := open(b, redis.Addr, Options{Timeout: time.Second}, nil)
	for _, c := range []struct {
		name  string
		store limiter.Store
		limit limiter.Limit
	}{
		{"redis", s, limit},
		{"leased", s, leased},
		{"memory", limiter.NewMemory(limiter.MemoryOptions{}), limit},
	} {
		hits := []limiter.Hit{{Key: limiter.Key("0123456789abcdef" + c.name), Limit: c.limit, Cost: 1}}
		decide := func(b *testing.B) {
			if d, err := c.store.Decide(context.Background(), hits); err != nil || !d[0].Allowed {
				b.Fatal(d, err)
			}
		}
		b.Run(c.name+"/alone", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decide(b)
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					decide(b)
				}
			})
		})
	}
	counts, _ := s.Leases()
	b.Logf("%+v", counts)
}
