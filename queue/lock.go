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

// A worker changes a lock only if it is its own. It takes one also from a Redis whose
// memory is full, for it is who empties it: after a script's first write, such as a
// DEL, which is always allowed, Redis lets it write what takes memory.
var (
	lockScript = goredis.NewScript(`if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1`)
	renewScript   = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	releaseScript = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func (w *Worker) takeLock(ctx context.Context, a *About) (bool, error) {
	n, err := lockScript.Run(ctx, w.q.client, []string{a.lock()}, w.name, lockLife.Milliseconds()).Int64()
	return n == 1, err
}

// renew keeps the lock until the context ends, and returns early if it is
// lost. A Redis that does not answer may still have it.
func (w *Worker) renew(ctx context.Context, a *About) {
	for sleep(ctx, lockLife/5) {
		n, err := renewScript.Run(ctx, w.q.client, []string{a.lock()}, w.name, lockLife.Milliseconds()).Int64()
		if err == nil && n == 0 && ctx.Err() == nil {
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
