package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Bounds of the garbage collector's percentage, and the garbage that a heap may
// hold however small it is. A few MB live with 100 of garbage cost 3 to 5 % less
// CPU under load than with GOGC=400; a million counters must not be multiplied.
const (
	leastGCPercent = 100
	mostGCPercent  = 800
	garbageAllowed = 128 << 20 // bytes
)

// tuneMemory adapts the garbage collector to the heap until the context ends,
// unless the environment has its own mind (GOGC). GOMEMLIMIT is respected.
func tuneMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := mostGCPercent
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
		if p := gcPercent(sample[0].Value.Uint64()); p != percent {
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

// gcPercent is how much garbage a heap with so many live bytes may hold, in
// percent of them: in steps, so that it seldom changes.
func gcPercent(live uint64) int {
	percent := mostGCPercent
	for percent > leastGCPercent && live*uint64(percent)/100 > garbageAllowed {
		percent /= 2
	}
	return percent
}
