package stats

import (
	"testing"
	"time"
)

func TestMedianIsOneOfTheValues(t *testing.T) {
	for _, x := range []struct {
		remark string
		values []float64
		want   float64
	}{
		{"none", nil, 0},
		{"one", []float64{7}, 7},
		{"odd, unsorted", []float64{9, 1, 5}, 5},
		{"even: the upper one", []float64{4, 1, 3, 2}, 3},
	} {
		if got := Median(x.values); got != x.want {
			t.Errorf("%s: %v, want %v", x.remark, got, x.want)
		}
	}
}

func TestPercentileIsTheLatencyOfThatShare(t *testing.T) {
	var sorted []time.Duration
	for i := range 1001 {
		sorted = append(sorted, time.Duration(i))
	}
	for _, x := range []struct {
		q    float64
		want time.Duration
	}{{0, 0}, {.5, 500}, {.9, 900}, {.99, 990}, {.999, 999}, {1, 1000}} {
		if got := Percentile(sorted, x.q); got != x.want {
			t.Errorf("%v: %d, want %d", x.q, got, x.want)
		}
	}
	if got := Percentile(nil, .99); got != 0 {
		t.Errorf("of none: %v", got)
	}
	if got := Percentile(sorted[7:8], .999); got != 7 {
		t.Errorf("of one: %d", got)
	}
}

// Noise that doubles one round must not show in the ratio.
func TestRatiosArePairwise(t *testing.T) {
	for _, x := range []struct {
		remark string
		as, bs []float64
		want   Spread
	}{
		{"a slow round slows both", []float64{10, 20, 10}, []float64{40, 80, 40}, Spread{.25, .25, .25}},
		{"the spread is of the quotients", []float64{1, 2, 9}, []float64{1, 1, 3}, Spread{2, 1, 3}},
		{"a round without its pair", []float64{1, 2}, []float64{1}, Spread{1, 1, 1}},
		{"nothing to divide by", []float64{1, 4}, []float64{0, 2}, Spread{2, 2, 2}},
		{"none", nil, nil, Spread{}},
	} {
		if got := Ratios(x.as, x.bs); got != x.want {
			t.Errorf("%s: %v, want %v", x.remark, got, x.want)
		}
	}
}
