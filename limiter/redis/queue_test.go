package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// setWaiting puts so many requests into a queue.
func setWaiting(t *testing.T, s *Store, overflow limiter.Key, n int64) {
	t.Helper()
	stream := QueueName(s.opts.KeyPrefix, overflow)
	_, err := s.pipe.client.Pipelined(t.Context(), func(p goredis.Pipeliner) error {
		p.Del(t.Context(), stream)
		for range n {
			p.XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, Values: []string{"some", "request"}})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLuaAgreesWithThePureFunctionsWhereARequestMayBeQueued(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	for seed := range uint64(8) {
		var s *Store
		opts := limitertest.ReplayOptions{
			Steps: 2000, Seed: seed, ChargeEach: seed%4 == 3,
			New: func(t *testing.T, opts limiter.Options, now func() time.Time) limiter.Store {
				s = open(t, redis.Addr, Options{Options: opts}, now)
				return s
			},
			SetWaiting: func(t *testing.T, overflow limiter.Key, n int64) { setWaiting(t, s, overflow, n) },
		}
		if seed%2 == 0 {
			opts.Algorithms = []limiter.Algorithm{limiter.LeakyBucket}
		}
		limitertest.Replay(t, opts)
	}
}

func TestAClusterQueuesAndChargesAsOneRedisDoes(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
	clock := limitertest.NewClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	s := openURL(t, Options{URL: "redis+cluster://" + cluster.Addrs(), Now: clock.Now})
	orders := hit("orders", limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.LeakyBucket, Queue: 2}, 1)
	orders.Overflow = limiter.Key("orders' queue")
	day := hit("day", perYear(3), 1)

	d := decide(t, s, orders, day)
	if !d[0].Allowed || d[0].Queued || d[1].Remaining != 2 {
		t.Fatalf("the first departs at once: %+v", d)
	}
	d = decide(t, s, orders, day)
	if !d[0].Queued || d[0].Delay != time.Minute || d[1].Remaining != 1 {
		t.Fatalf("the second waits, and is charged its other limit: %+v", d)
	}
	setWaiting(t, s, orders.Overflow, 2)
	d = decide(t, s, day, orders)
	if d[1].Allowed || d[1].Queued || d[1].RetryAfter != time.Minute || d[0].Remaining != 1 {
		t.Fatalf("the queue is full; nothing is charged: %+v", d)
	}
	setWaiting(t, s, orders.Overflow, 0)
	clock.Add(time.Minute)
	decide(t, s, day) // the last of the day
	d = decide(t, s, orders, day)
	if limiter.Passes([]limiter.Hit{orders, day}, d) || d[0].Queued {
		t.Fatalf("the day's limit refuses: %+v", d)
	}
	if d = decide(t, s, orders); !d[0].Allowed || d[0].Queued {
		t.Fatalf("the departure that was refused is given back: %+v", d)
	}
}
