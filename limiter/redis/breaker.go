package redis

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// breaker keeps requests from a Redis that fails. It opens after several
// failures in a row; while it is open, a probe asks now and then, and the first
// answer closes it.
type breaker struct {
	probe   func(context.Context) error
	changed func(open bool, cause error)

	failures atomic.Int32 // in a row
	open     atomic.Bool
	wake     chan error
}

// failuresToOpen is how many failures in a row open the breaker. At 2,000
// requests a second, about twenty are under way when the first one times out.
const failuresToOpen = 5

// Waits between probes: doubled after each, with jitter.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
)

func newBreaker(probe func(context.Context) error, changed func(open bool, cause error)) *breaker {
	return &breaker{probe: probe, changed: changed, wake: make(chan error, 1)}
}

func (b *breaker) isOpen() bool { return b.open.Load() }

func (b *breaker) succeeded() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}

func (b *breaker) failed(err error) {
	if b.failures.Add(1) >= failuresToOpen {
		b.trip(err)
	}
}

// trip opens the breaker.
func (b *breaker) trip(err error) {
	if b.open.CompareAndSwap(false, true) {
		b.changed(true, err)
		b.wake <- err
	}
}

// run probes while the breaker is open, until the context ends.
func (b *breaker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		for wait := firstProbe; ; wait = min(2*wait, lastProbe) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait/2 + rand.N(wait)):
			}
			if b.probe(ctx) == nil {
				break
			}
		}
		b.failures.Store(0)
		b.open.Store(false)
		b.changed(false, nil)
	}
}
