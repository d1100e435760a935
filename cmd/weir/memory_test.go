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
		remark        string
		live, scanned uint64 // MB
		want          int
	}{
		{"nothing", 0, 0, 800},
		{"a few MB, which may have many times as much", 5, 4, 800},
		{"the largest of these", 10, 10, 800},
		{"beyond, the garbage stays at 80 MB", 12, 11, 600},
		{"100,000 rules", 34, 30, 200},
		{"half a million counters", 30, 5, 100},
		{"a million", 54, 5, 50},
		{"the same if all of it is looked at", 54, 54, 100},
		{"ten million", 510, 5, 50},
		{"with very many rules beside", 900, 600, 50},
		{"all of it is looked at", 4096, 4096, 100},
		{"the measures are not of one instant", 4096, 5000, 100},
	} {
		if got := gcPercent(x.live<<20, x.scanned<<20); got != x.want {
			t.Errorf("%s (%d MB live, %d of them to look at): %d %%, want %d", x.remark, x.live, x.scanned, got, x.want)
		}
	}
}
