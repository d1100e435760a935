package soak

import (
	"math"
	"sync/atomic"
	"time"
)

// histogram counts latencies from 1 µs to some 80 s, in steps of 2 %. It may be
// used by many at once.
type histogram struct{ buckets [920]atomic.Int64 }

const step = 1.02

func (h *histogram) add(d time.Duration) {
	i := int(math.Log(max(1, float64(d)/1e3)) / math.Log(step))
	h.buckets[min(i, len(h.buckets)-1)].Add(1)
}

// take returns what was counted, and begins anew.
func (h *histogram) take() (counts [920]int64, all int64) {
	for i := range h.buckets {
		counts[i] = h.buckets[i].Swap(0)
		all += counts[i]
	}
	return counts, all
}

// percentile is the latency at or below which a share q (0 to 1) lies; 0 of none.
func percentile(counts [920]int64, all int64, q float64) time.Duration {
	need := int64(math.Ceil(q * float64(all)))
	for i, n := range counts {
		need -= n
		if all > 0 && need <= 0 {
			return time.Duration(1e3 * math.Pow(step, float64(i+1)))
		}
	}
	return 0
}
