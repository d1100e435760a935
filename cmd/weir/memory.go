package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Bounds of the garbage collector's percentage, and the garbage that a heap may
// hold however small it is. A few MB live with 100 of garbage cost 3 to 5 % less
// CPU under load than with GOGC=400; a million counters must not be multiplied.
const (
	leastGCPercent  = 100
	mostGCPercent   = 800
	garbageAllowed  = 128 << 20 // bytes
	gcPercentPeriod = 10 * time.Second
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
	tick := time.NewTicker(gcPercentPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		if p := gcPercent(sample[0].Value.Uint64()); p != percent {
			percent = p
			debug.SetGCPercent(p)
		}
	}
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
