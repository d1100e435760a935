package limiter_test

import (
	"encoding/binary"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"weir/limiter"
)

// benchLimits are the five, with so much room an hour that nothing is refused
// for long.
func benchLimits(n uint64) []limiter.Limit {
	return []limiter.Limit{fixed(n, time.Hour), tokens(n, time.Hour, n), leaky(n, time.Hour, n-1), slidingLog(n, time.Hour), slidingCounter(n, time.Hour)}
}

func benchKeys(n int) []limiter.Key {
	keys := make([]limiter.Key, n)
	for i := range keys {
		keys[i] = limiter.Key("0123456789abcdef" + strconv.Itoa(i))
	}
	return keys
}

// One hit on one of ten thousand counters.
func BenchmarkDecide(b *testing.B) {
	keys := benchKeys(10_000)
	for _, l := range benchLimits(limiter.MaxLogLimit) {
		b.Run(l.Algorithm.String(), func(b *testing.B) {
			benchDecide(b, func(i int, h []limiter.Hit) { h[0] = on("", l, 1); h[0].Key = keys[i%len(keys)] }, 1)
		})
	}
}

// The same where every counter is full.
func BenchmarkDecideRefused(b *testing.B) {
	keys := benchKeys(10_000)
	for _, l := range benchLimits(1) {
		b.Run(l.Algorithm.String(), func(b *testing.B) {
			benchDecide(b, func(i int, h []limiter.Hit) { h[0] = on("", l, 1); h[0].Key = keys[i%len(keys)] }, 1)
		})
	}
}

// Three hits on three counters, and on one.
func BenchmarkDecideThreeHits(b *testing.B) {
	keys, l := benchKeys(10_000), fixed(limiter.MaxRequests, time.Hour)
	for _, c := range []struct {
		name string
		step int
	}{{"three_keys", 1}, {"one_key", 0}} {
		b.Run(c.name, func(b *testing.B) {
			benchDecide(b, func(i int, h []limiter.Hit) {
				for j := range h {
					h[j] = on("", l, 1)
					h[j].Key = keys[(i+j*c.step)%len(keys)]
				}
			}, 3)
		})
	}
}

func benchDecide(b *testing.B, fill func(i int, h []limiter.Hit), hits int) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	h := make([]limiter.Hit, hits)
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		fill(i, h)
		if _, err := m.Decide(ctx, h); err != nil {
			b.Fatal(err)
		}
	}
}

// All processors at once, on many counters and on one.
func BenchmarkDecideParallel(b *testing.B) {
	keys, l := benchKeys(10_000), fixed(limiter.MaxRequests, time.Hour)
	for _, n := range []int{len(keys), 1} {
		b.Run(strconv.Itoa(n)+"_counters", func(b *testing.B) {
			m := limiter.NewMemory(limiter.MemoryOptions{})
			var begin atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				h := hits(on("", l, 1))
				for i := int(begin.Add(1)) * 1009; pb.Next(); i++ {
					h[0].Key = keys[i%n]
					if _, err := m.Decide(b.Context(), h); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// A million counters, each with one hit: reports bytes a counter, and the time
// of a sweep that finds nothing.
func BenchmarkMillionCounters(b *testing.B) {
	const counters = 1_000_000
	for _, l := range benchLimits(10) {
		b.Run(l.Algorithm.String(), func(b *testing.B) {
			var bytes, sweep float64
			for b.Loop() {
				m := limiter.NewMemory(limiter.MemoryOptions{MaxCounters: counters})
				before, h := heap(), hits(on("12345678", l, 1))
				for i := range uint64(counters) {
					binary.LittleEndian.PutUint64(h[0].Key, i)
					if _, err := m.Decide(b.Context(), h); err != nil {
						b.Fatal(err)
					}
				}
				bytes = float64(heap()-before) / counters
				start := time.Now()
				m.Sweep()
				sweep = float64(time.Since(start).Milliseconds())
				if m.Len() != counters {
					b.Fatalf("it holds %d", m.Len())
				}
			}
			b.ReportMetric(bytes, "B/counter")
			b.ReportMetric(sweep, "ms/sweep")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
