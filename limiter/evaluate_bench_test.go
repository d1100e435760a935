package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

// Each algorithm alone, without a store around it: one hit on one state, a
// millisecond after the last.
func BenchmarkEvaluate(b *testing.B) {
	for _, l := range benchLimits(1000) {
		b.Run(l.Algorithm.String(), func(b *testing.B) {
			h, index := hits(on("key", l, 1)), []int{0}
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			slots := make([]limiter.Slot, 1)
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				slots[0] = limiter.Slot{State: slots[0].State}
				limiter.Evaluate(h, index, slots, now, limiter.Options{})
			}
		})
	}
}
