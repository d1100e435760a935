package main

import "testing"

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
