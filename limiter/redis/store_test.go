package redis

import (
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

func TestRedisKeepsTheContract(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	limitertest.Run(t, limitertest.Options{New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
		return open(t, redis.Addr, Options{Options: opts}, now)
	}})
}

// Each trace ends before the year 2255, when a time in µs passes 2^53.
func TestLuaAgreesWithThePureFunctions(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	store := func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
		return open(t, redis.Addr, Options{Options: opts}, now)
	}
	for a := range limiter.Algorithm(5) {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(10) {
				limitertest.Replay(t, limitertest.ReplayOptions{
					New: store, Steps: 2000, Seed: seed, Algorithms: []limiter.Algorithm{a}, ChargeEach: seed%4 == 3,
				})
			}
		})
	}
	t.Run("all", func(t *testing.T) {
		limitertest.Replay(t, limitertest.ReplayOptions{New: store, Steps: 10_000})
	})
}
