package main

import (
	"runtime"
	"testing"
	"time"
)

func TestEachCollectionIsTold(t *testing.T) {
	collected := make(chan struct{}, 1)
	for range 3 {
		whenCollected(collected)
		for told, tries := false, 0; !told; tries++ {
			if tries == 100 {
				t.Fatal("a collection was not told")
			}
			runtime.GC()
			select {
			case <-collected:
				told = true
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

func TestTheHeapIsNotMultipliedByItsGarbage(t *testing.T) {
	for _, x := range []struct {
		live uint64
		want int
	}{
		{0, 800}, {5 << 20, 800}, {16 << 20, 800}, {17 << 20, 400}, {60 << 20, 200}, {120 << 20, 100}, {4 << 30, 100},
	} {
		if got := gcPercent(x.live); got != x.want {
			t.Errorf("%d MB live: %d %%, want %d", x.live>>20, got, x.want)
		}
	}
}
