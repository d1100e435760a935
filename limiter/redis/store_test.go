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

func TestLuaAgreesWithThePureFunctions(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	limitertest.Replay(t, limitertest.ReplayOptions{Steps: 10_000, New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
		return open(t, redis.Addr, Options{Options: opts}, now)
	}})
}
