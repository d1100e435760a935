package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// exceeds tells how admissions exceed a limit by the definition of its algorithm,
// whatever the instants are at which they were decided; empty: they need not.
func exceeds(p policy, all []admission, wall time.Time) string {
	switch p.algorithm {
	case "token_bucket", "leaky_bucket":
		rate := float64(p.limit) / p.window.Seconds()
		return exceedsIn(all, func(length time.Duration) float64 { return float64(p.burst) + rate*length.Seconds() + 1 })
	case "sliding_window_log":
		return exceedsIn(all, func(length time.Duration) float64 {
			if length < p.window-time.Millisecond {
				return float64(p.limit)
			}
			return float64(p.limit) * float64(2+length/p.window)
		})
	}
	return exceedsWindows(p, all, wall)
}

// exceedsIn compares what was surely admitted in each interval with what may be.
func exceedsIn(all []admission, most func(length time.Duration) float64) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b admission) int { return cmp.Compare(a.end, b.end) })
	for i := range all {
		from := all[i].start
		var sum uint64
		for _, a := range all { // by end: each ends an interval
			if a.start < from {
				continue
			}
			sum += a.cost
			if length := a.end - from; float64(sum) > most(length) {
				return fmt.Sprintf("%d passed in %v from %.3fs on, and %.1f may", sum, length, from.Seconds(), most(length))
			}
		}
	}
	return ""
}

// exceedsWindows is exceeds for windows that begin when the wall clock says.
func exceedsWindows(p policy, all []admission, wall time.Time) string {
	index := func(at time.Duration) int64 { return wall.Add(at).UnixNano() / int64(p.window) }
	surely := map[int64]uint64{}
	var sure []admission
	for _, a := range all {
		if w := index(a.start - skew); w == index(a.end+skew) {
			surely[w] += a.cost
			sure = append(sure, a)
		}
	}
	for w, sum := range surely {
		if sum > p.limit {
			return fmt.Sprintf("%d passed in window %d of %v, and %d may", sum, w, p.window, p.limit)
		}
	}
	if p.algorithm != "sliding_window_counter" {
		return ""
	}
	for _, last := range sure { // at its instant, the window before counts in part
		w := index(last.end)
		gone := float64(wall.Add(last.end).UnixNano()%int64(p.window)) / float64(p.window)
		sum := float64(surely[w-1]) * (1 - gone)
		for _, a := range sure {
			if index(a.start) == w && a.end < last.start {
				sum += float64(a.cost)
			}
		}
		if sum+float64(last.cost) > float64(p.limit)+2 {
			return fmt.Sprintf("%.1f were used at %.3fs, and %d may", sum+float64(last.cost), last.end.Seconds(), p.limit)
		}
	}
	return ""
}

// skew is by how much the clocks of this process and of Redis may differ: they are
// one, read at different instants.
const skew = time.Millisecond
