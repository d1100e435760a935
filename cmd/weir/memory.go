package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// garbageAllowed is the garbage in bytes that a heap may hold, however little of it
// lives. A few MB live with many of garbage cost 3 to 5 % less CPU under load than with
// GOGC=400; a million counters must not be multiplied.
const garbageAllowed = 80 << 20

// gcPercents are those in use: few, so that the percentage seldom changes.
var gcPercents = [...]int{800, 600, 400, 300, 200, 150, 100, 75, leastGCPercent}

const leastGCPercent = 50

// tuneMemory adapts the garbage collector to the heap until the context ends,
// unless the environment has its own mind (GOGC). GOMEMLIMIT is respected.
func tuneMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	percent := gcPercents[0]
	debug.SetGCPercent(percent)
	collected := make(chan struct{}, 1)
	for {
		// After each collection, and not by the clock: a burst of large requests would
		// multiply the heap long before the next tick.
		whenCollected(collected)
		select {
		case <-ctx.Done():
			return
		case <-collected:
		}
		metrics.Read(sample)
		if p := gcPercent(sample[0].Value.Uint64(), sample[1].Value.Uint64()); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
	}
}

// whenCollected sends a signal once garbage was collected again.
func whenCollected(signal chan<- struct{}) {
	garbage := new([32]byte) // too large to share its place with others
	runtime.AddCleanup(garbage, func(signal chan<- struct{}) {
		select {
		case signal <- struct{}{}:
		default:
		}
	}, signal)
}

// gcPercent is how much garbage a heap with so many live bytes may hold, in percent
// of them: half of what lives, and as much as the collector has to look at of it,
// which is what a collection costs. Counters have no pointers to look at: collecting
// costs little beside them, so they take from what is allowed, twice their size.
func gcPercent(live, scanned uint64) int {
	scanned = min(scanned, live)
	allowed := max(live/2, scanned)
	if unseen := 2 * (live - scanned); unseen < garbageAllowed {
		allowed = max(allowed, garbageAllowed-unseen)
	}
	for _, percent := range gcPercents {
		if live*uint64(percent)/100 <= allowed {
			return percent
		}
	}
	return leastGCPercent
}
