package simulate

import (
	"testing"
	"time"
)

// CheckSpool fills a spool beyond its memory and reads it twice.
func CheckSpool(t *testing.T) {
	t.Helper()
	var s spool
	defer s.close()
	const hits = 40_000
	at := func(i int) int64 { return 1_800_000_000_000_000 + int64(i)*1000 }
	for i := range hits {
		cost := uint64(1 + i%3)
		if err := s.add(at(i), uint32(i), cost); err != nil {
			t.Fatal(err)
		}
		if i == hits/3 || i == hits/2 {
			if err := s.spill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		i := 0
		err := s.each(func(when time.Time, counter uint32, cost uint64) {
			if when.UnixMicro() != at(i) || counter != uint32(i) || cost != uint64(1+i%3) {
				t.Fatalf("hit %d: %v %d %d", i, when, counter, cost)
			}
			i++
		})
		if err != nil || i != hits {
			t.Fatalf("%d hits, %v", i, err)
		}
	}
}
