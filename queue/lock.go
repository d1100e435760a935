package queue

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// lockLife is how long a worker has a queue without renewing its lock: after that
// another takes over. A worker that was only slow finds out before it lets the next
// request depart (depart.lua).
const lockLife = 3 * time.Second

var errLockLost = errors.New("another worker has the queue")

// A worker changes a lock only if it is its own.
var (
	renewScript   = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	releaseScript = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func (w *Worker) takeLock(ctx context.Context, a *About) (bool, error) {
	return w.q.client.SetNX(ctx, a.lock(), w.name, lockLife).Result()
}

// renew keeps the lock until the running context ends, and returns early if it is
// lost. A Redis that does not answer may still have it.
func (w *Worker) renew(ctx, running context.Context, a *About) {
	for sleep(running, lockLife/5) {
		n, err := renewScript.Run(ctx, w.q.client, []string{a.lock()}, w.name, lockLife.Milliseconds()).Int64()
		if err == nil && n == 0 {
			w.log.Warn("lost the lock of a queue; another worker may have it", "queue", a.Name())
			return
		}
	}
}

func (w *Worker) releaseLock(a *About) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = releaseScript.Run(ctx, w.q.client, []string{a.lock()}, w.name).Err() // else it expires
}
