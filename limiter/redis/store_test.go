package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

var prefixes atomic.Int64 // each store has keys of its own

// open returns a store on the Redis, with a clock of the test's if now is given.
func open(t testing.TB, addr string, opts Options, now func() time.Time) *Store {
	t.Helper()
	opts.URL, opts.Now = "redis://"+addr, now
	opts.KeyPrefix = fmt.Sprintf("test%d:", prefixes.Add(1))
	if opts.Timeout == 0 {
		opts.Timeout = 5 * time.Second // a shared machine may pause
	}
	opts.Local = limiter.NewStandby(limiter.MemoryOptions{Now: now})
	opts.Logger = slog.New(slog.NewTextHandler(testLog{t}, nil))
	if opts.Events.Failed == nil {
		opts.Events.Failed = func(err error) { t.Errorf("Redis did not decide: %v", err) }
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if !s.Healthy() {
		t.Fatal("Redis is not reached")
	}
	return s
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

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
