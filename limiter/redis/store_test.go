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
	for remark, spare := range map[string]uint64{"": plainSpare, "plain commands to the end": 0} {
		t.Run(remark, func(t *testing.T) {
			limitertest.Run(t, limitertest.Options{New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
				s := open(t, redis.Addr, Options{Options: opts}, now)
				s.spare = spare
				return s
			}})
		})
	}
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
	t.Run("plain commands to the end", func(t *testing.T) {
		for seed := range uint64(10) {
			limitertest.Replay(t, limitertest.ReplayOptions{
				New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
					s := open(t, redis.Addr, Options{Options: opts}, now)
					s.spare = 0
					return s
				}, Steps: 2000, Seed: seed, Algorithms: []limiter.Algorithm{limiter.FixedWindow},
			})
		}
	})
	t.Run("all", func(t *testing.T) {
		limitertest.Replay(t, limitertest.ReplayOptions{New: store, Steps: 10_000})
	})
}
