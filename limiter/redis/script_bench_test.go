package redis

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// BenchmarkScript reports what a script costs Redis itself, in µs of its CPU a
// call, as Redis accounts it, and a plain command (see plain.go).
func BenchmarkScript(b *testing.B) {
	server := testenv.StartRedis(b, testenv.RedisOptions{})
	for a := range limiter.Algorithm(5) {
		for _, n := range []int{1, 3} {
			b.Run(fmt.Sprintf("%v/hits=%d", a, n), func(b *testing.B) {
				s := open(b, server.Addr, Options{Timeout: time.Second}, nil)
				s.spare = math.MaxUint64 // scripts only
				l := limiter.Limit{Requests: 1000, Window: limiter.Window{Length: time.Hour}, Algorithm: a}
				switch a {
				case limiter.TokenBucket:
					l.Burst = l.Requests
				case limiter.LeakyBucket:
					l.Queue = l.Requests
				}
				benchmarkCommand(b, s, l, n, "evalsha")
			})
		}
	}
	b.Run("incrby/hits=1", func(b *testing.B) {
		s := open(b, server.Addr, Options{Timeout: time.Second}, nil)
		l := limiter.Limit{Requests: 1_000_000, Window: limiter.Window{Length: time.Hour}}
		for i := range 1000 {
			decide(b, s, limiter.Hit{Key: fmt.Appendf(nil, "key %d", i), Limit: l, Cost: 1})
		}
		benchmarkCommand(b, s, l, 1, "incrby")
	})
}

// benchmarkCommand reports what the command costs Redis for so many hits of the limit.
func benchmarkCommand(b *testing.B, s *Store, l limiter.Limit, n int, command string) {
	ctx := context.Background()
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
	b.ReportMetric(microsPerCall(b, s, command), "redis-µs/op")
}

// microsPerCall is Redis's time for a command.
func microsPerCall(b *testing.B, s *Store, command string) float64 {
	info, err := s.pipe.client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
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
	b.Fatalf("no %s in commandstats", command)
	return 0
}
