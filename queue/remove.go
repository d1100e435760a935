package queue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed remove.lua
var removeLua string

var removeScript = goredis.NewScript(removeLua)

// What Remove may fail with, beside ErrUnavailable.
var (
	ErrRuled    = errors.New("its rule is in force")
	ErrNotEmpty = errors.New("it is not empty")
)

// Remove takes an empty queue away, so that no worker looks after it any more. It
// fails with ErrRuled if a server has told of its rule within ruledLife, and with
// ErrNotEmpty. What became of its requests can be asked for as long as ever.
func (q *Queues) Remove(ctx context.Context, a *About) error {
	keys := []string{a.ruled(), a.stream(), a.dead(), a.about()}
	reply, err := removeScript.Run(ctx, q.client, keys).Int64Slice()
	switch {
	case err != nil:
		return unavailable("removing a queue", err)
	case len(reply) != 3:
		return errOddAnswer
	case reply[0] == -1:
		return fmt.Errorf("the queue %s stays: %w, by what a weir serve has said within %v, which would announce it again; remove the rule first", a.Name(), ErrRuled, ruledLife)
	case reply[0] == 0:
		return fmt.Errorf("the queue %s stays: %w, %d wait and %d were given up", a.Name(), ErrNotEmpty, reply[1], reply[2])
	}
	// Last: a queue that is in the index and has no about is not listed, nor in the way.
	if err := q.client.SRem(ctx, q.index(), q.hash(a.Tag)).Err(); err != nil {
		return unavailable("removing a queue", err)
	}
	// A request with a ticket may have come between the two, and begun the queue anew.
	n, err := q.client.Exists(ctx, a.about()).Result()
	if err == nil && n > 0 {
		err = q.client.SAdd(ctx, q.index(), q.hash(a.Tag)).Err()
	}
	if err != nil {
		return unavailable("looking whether a removed queue has begun anew", err)
	}
	return nil
}
