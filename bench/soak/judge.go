package soak

import (
	"fmt"
	"slices"
	"time"

	"weir/bench/stats"
)

// Process is what a server of Weir held at one time.
type Process struct {
	RSS        float64 `json:"rss"`        // bytes
	Heap       float64 `json:"heap"`       // bytes that live, after a collection
	Goroutines float64 `json:"goroutines"` //
	Files      float64 `json:"files"`      // open file descriptors
	Series     float64 `json:"series"`     // of /metrics
	Counters   float64 `json:"counters"`   // in memory
	Standby    float64 `json:"standby"`    // hits that were decided without the store, so far
}

// Sample is what was seen at one time; requests and latencies are those since the
// sample before.
type Sample struct {
	At          time.Duration `json:"at"` // since the start
	Rate        float64       `json:"rate"`
	P50         time.Duration `json:"p50"`
	P99         time.Duration `json:"p99"`
	P999        time.Duration `json:"p999"`
	Processes   []Process     `json:"processes"`
	RedisMemory float64       `json:"redis_memory"` // bytes
	RedisKeys   float64       `json:"redis_keys"`
}

// Bound is how much more something may be at the end of the second half than at
// its beginning: the greater of both.
type Bound struct {
	More  float64 // so much more
	Share float64 // or so much of what it was, as a share
}

// measure is something that must not grow.
type measure struct {
	name  string
	unit  float64 // what it is divided by to be told
	label string  // of the unit
	bound Bound
	saw   bool // goes up and down like a saw: its teeth are judged
	of    func(Process) float64
}

const mb = 1 << 20

// measures have bounds that a busy machine keeps: what lives goes up and down by
// some, and a process keeps memory that it may need again.
var measures = []measure{
	{"RSS", mb, " MB", Bound{16 * mb, 0.20}, true, func(p Process) float64 { return p.RSS }},
	{"live heap", mb, " MB", Bound{3 * mb, 0.15}, false, func(p Process) float64 { return p.Heap }},
	{"goroutines", 1, "", Bound{50, 0.15}, false, func(p Process) float64 { return p.Goroutines }},
	{"open files", 1, "", Bound{20, 0.15}, false, func(p Process) float64 { return p.Files }},
	{"series of /metrics", 1, "", Bound{40, 0.05}, false, func(p Process) float64 { return p.Series }},
	{"counters in memory", 1, "", Bound{2000, 0.50}, false, func(p Process) float64 { return p.Counters }},
}

// Slower is how many times as long the slowest of a thousand may take in the last
// quarter as in the first, where that is over a tenth of a second.
const (
	slower      = 5
	slowerFloor = 100 * time.Millisecond
	fewest      = 16 // samples that can be judged
)

// Judge says what has grown in the second half, and whether the slowest requests
// have become slower. Names are those of the servers; loose is by how much bounds
// are widened (1: not), for what runs so short that it does not settle.
func Judge(samples []Sample, names []string, loose float64) []string {
	if len(samples) < fewest {
		return []string{fmt.Sprintf("%d samples are too few to judge by: want %d", len(samples), fewest)}
	}
	var found []string
	half := samples[len(samples)/2:]
	check := func(who string, m measure, of func(Sample) float64) {
		if m.saw {
			of = teeth(half, of)
		}
		if begin, growth := trend(half, of); growth > loose*max(m.bound.More, m.bound.Share*begin) {
			found = append(found, fmt.Sprintf("%s: %s grew by %.1f%s in %v, from %.1f%s", who, m.name,
				growth/m.unit, m.label, (half[len(half)-1].At-half[0].At).Round(time.Second), begin/m.unit, m.label))
		}
	}
	for i, name := range names {
		for _, m := range measures {
			check(name, m, func(s Sample) float64 { return m.of(s.Processes[i]) })
		}
	}
	check("Redis", measure{name: "memory", unit: mb, label: " MB", bound: Bound{3 * mb, 0.20}}, func(s Sample) float64 { return s.RedisMemory })
	check("Redis", measure{name: "keys", unit: 1, bound: Bound{2000, 0.20}}, func(s Sample) float64 { return s.RedisKeys })

	quarter := len(samples) / 4
	first, last := slowest(samples[:quarter]), slowest(samples[len(samples)-quarter:])
	if last > slowerFloor && float64(last) > loose*slower*float64(first) {
		found = append(found, fmt.Sprintf("p99.9 was %v in the first quarter, and %v in the last", first.Round(10*time.Microsecond), last.Round(10*time.Microsecond)))
	}
	return found
}

// tooth is how many samples surely have a tooth of a saw in them.
const tooth = 5

// teeth is of each sample the most that it and those after it had.
func teeth(samples []Sample, of func(Sample) float64) func(Sample) float64 {
	most := make(map[time.Duration]float64, len(samples))
	for i := range samples {
		for _, s := range samples[min(i, max(0, len(samples)-tooth)):min(i+tooth, len(samples))] {
			most[samples[i].At] = max(most[samples[i].At], of(s))
		}
	}
	return func(s Sample) float64 { return most[s.At] }
}

// trend draws a line through the samples by the median of the slopes between all
// pairs of them, which no few outliers can tilt, and returns where it begins and by
// how much it rises.
func trend(samples []Sample, of func(Sample) float64) (begin, growth float64) {
	var slopes []float64
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			if dt := (b.At - a.At).Seconds(); dt > 0 {
				slopes = append(slopes, (of(b)-of(a))/dt)
			}
		}
	}
	slope := stats.Median(slopes)
	origin := samples[0].At
	var starts []float64
	for _, s := range samples {
		starts = append(starts, of(s)-slope*(s.At-origin).Seconds())
	}
	return stats.Median(starts), slope * (samples[len(samples)-1].At - origin).Seconds()
}

// slowest is the median of the samples' p99.9: one stall of the machine does not
// decide.
func slowest(samples []Sample) time.Duration {
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s.P999)
	}
	slices.Sort(all)
	return stats.Percentile(all, .5)
}
