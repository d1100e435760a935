package limiter

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkLearn is what every decision by another store costs the standby.
func BenchmarkLearn(b *testing.B) {
	s := NewStandby(MemoryOptions{})
	hits := []Hit{{Limit: Limit{Requests: 100_000, Window: Window{Length: time.Hour}}, Cost: 1}}
	decisions := []Decision{{Allowed: true, Remaining: 7}}
	keys := make([]Key, 10_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "0123456789abcdef%d", i)
	}
	now := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		hits[0].Key = keys[i%len(keys)]
		s.Learn(hits, decisions, now)
	}
}
