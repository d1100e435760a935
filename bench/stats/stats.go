// Package stats has the few figures that a benchmark is told by.
package stats

import (
	"slices"
	"time"
)

// Median is the middle of the values, the upper one of two; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Percentile is the value below or at which a share q (0 to 1) of the sorted
// latencies lies; 0 of none.
func Percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// Spread is a median with the least and the greatest value.
type Spread struct{ Median, Min, Max float64 }

// Of is the spread of the values; zero of none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median(values), slices.Min(values), slices.Max(values)}
}

// Ratios divides pair by pair, a round of one by the same round of the other,
// and returns the spread of the quotients. What slows a whole round down, slows
// both of a pair, and falls out. Rounds that only one of them has, and those in
// which the divisor is 0, are left out.
func Ratios(as, bs []float64) Spread {
	var quotients []float64
	for i := range min(len(as), len(bs)) {
		if bs[i] != 0 {
			quotients = append(quotients, as[i]/bs[i])
		}
	}
	return Of(quotients)
}

// Sum adds the values.
func Sum(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}
