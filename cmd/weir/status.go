package main

import (
	"context"
	"strings"
	"sync"
	"time"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/limiter/redis"
	"weir/queue"
	"weir/rules"
	"weir/server"
)

// statusOf is what the server tells of the rest of serve.
func statusOf(c *serveConfig, p parts) server.Status {
	status := server.Status{
		Version: versionText(),
		Rules: func() rules.LiveStatus {
			status := p.live.Status()
			named := make(map[string]rules.SourceStatus, len(status.Sources))
			for name, s := range status.Sources {
				named[redis.Redact(name)] = s
			}
			status.Sources = named
			return status
		},
		Store: func() *weirv1.StoreStats {
			return &weirv1.StoreStats{
				Name: redis.Redact(c.store), Healthy: p.store.healthy(),
				Counters: uint64(max(0, p.store.held())), MaxCounters: uint64(c.memoryMaxCounters),
			}
		},
	}
	if p.queues.overflow != nil {
		q := &queueLengths{queues: p.queues.queues}
		status.Queues = q.get
	}
	return status
}

// openedCounters is the store that is open.
type openedCounters struct {
	limiter.Store
	redis   *redis.Store // nil: memory
	held    func() int   // counters in this process
	healthy func() bool
	close   func()
}

// queueLengths asks Redis for the lengths of queues, once a second at most, however
// many watch.
type queueLengths struct {
	queues *queue.Queues

	mu    sync.Mutex
	at    time.Time
	known []*weirv1.QueueStats
}

const (
	queueLengthsAge  = time.Second
	queueLengthsWait = 500 * time.Millisecond // then the last known are told
)

func (q *queueLengths) get(ctx context.Context) []*weirv1.QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.at) < queueLengthsAge {
		return q.known
	}
	ctx, cancel := context.WithTimeout(ctx, queueLengthsWait)
	defer cancel()
	all, err := q.queues.Overviews(ctx)
	q.at = time.Now()
	if err != nil {
		return q.known
	}
	q.known = nil
	for _, o := range all {
		q.known = append(q.known, &weirv1.QueueStats{
			Domain: strings.ToValidUTF8(o.Domain, "\uFFFD"), Rule: strings.ToValidUTF8(o.Rule, "\uFFFD"),
			Waiting: uint64(max(0, o.Waiting)), Capacity: o.Limit.Queue, Failed: uint64(max(0, o.Failed)),
		})
	}
	return q.known
}
