package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// BenchmarkScript reports what a script costs Redis itself, in µs of its CPU a
// call, as Redis accounts it.
func BenchmarkScript(b *testing.B) {
	server := testenv.StartRedis(b, testenv.RedisOptions{})
	for a := range limiter.Algorithm(5) {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("%v/hits=%d", a, n), func(b *testing.B) {
				s := open(b, server.Addr, Options{Timeout: time.Second}, nil)
				ctx := context.Background()
				l := limiter.Limit{Requests: 1000, Window: limiter.Window{Length: time.Hour}, Algorithm: a}
				switch a {
				case limiter.TokenBucket:
					l.Burst = l.Requests
				case limiter.LeakyBucket:
					l.Queue = l.Requests
				}
				hits := make([]limiter.Hit, n)
				if err := s.pipe.client.ConfigResetStat(ctx).Err(); err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					for i := range hits {
						hits[i] = limiter.Hit{Key: fmt.Appendf(nil, "key %d", rand.IntN(1000)), Limit: l, Cost: 1, MaxDelay: limiter.NoDeadline}
					}
					if _, err := s.Decide(ctx, hits); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(evalMicros(b, s), "redis-µs/op")
			})
		}
	}
}

// evalMicros is Redis's time in EVALSHA per call.
func evalMicros(b *testing.B, s *Store) float64 {
	info, err := s.pipe.client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			for field := range strings.SplitSeq(strings.TrimSpace(rest), ",") {
				if v, ok := strings.CutPrefix(field, "usec_per_call="); ok {
					var micros float64
					if _, err := fmt.Sscan(v, &micros); err != nil {
						b.Fatal(err)
					}
					return micros
				}
			}
		}
	}
	b.Fatal("no EVALSHA in commandstats")
	return 0
}
