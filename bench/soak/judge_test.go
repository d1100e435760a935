package soak

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// hour is an hour's samples of one server on a noisy machine, with a change made
// to each.
func hour(change func(s *Sample, x float64)) []Sample {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(of, share float64) float64 { return of * (1 + share*(2*random.Float64()-1)) }
	var all []Sample
	for i := range 240 {
		x := float64(i) / 240
		s := Sample{At: time.Duration(i) * 15 * time.Second, P999: time.Duration(noise(float64(20*time.Millisecond), 0.8)), RedisMemory: noise(20*mb, 0.1), RedisKeys: noise(20_000, 0.2)}
		s.Processes = []Process{{RSS: noise(80*mb, 0.15), Heap: noise(15*mb, 0.2), Goroutines: noise(200, 0.4), Files: noise(30, 0.3), Series: noise(900, 0.05), Counters: noise(10_000, 0.3)}}
		if i%40 == 7 { // the machine stalls
			s.P999, s.Processes[0].Goroutines, s.Processes[0].RSS = 3*time.Second, 5000, 300*mb
		}
		if x < 0.3 { // and all of it settles first
			s.Processes[0].RSS *= 0.3 + 2*x
			s.Processes[0].Heap *= 0.3 + 2*x
		}
		change(&s, x)
		all = append(all, s)
	}
	return all
}

func TestWhatGrowsIsFoundAndNoiseIsNot(t *testing.T) {
	for _, x := range []struct {
		remark string
		want   string // the one finding; empty: none
		change func(s *Sample, x float64)
	}{
		{"noise alone", "", func(*Sample, float64) {}},
		{"a heap that grows by 8 MB an hour", "weir: live heap grew", func(s *Sample, x float64) { s.Processes[0].Heap += 8 * mb * x }},
		{"memory beside the heap, 45 MB an hour", "weir: RSS grew", func(s *Sample, x float64) { s.Processes[0].RSS += 45 * mb * x }},
		{"a goroutine stays every 20 s", "weir: goroutines grew", func(s *Sample, x float64) { s.Processes[0].Goroutines += 180 * x }},
		{"a connection stays every minute", "weir: open files grew", func(s *Sample, x float64) { s.Processes[0].Files += 60 * x }},
		{"rules that left stay in the metrics", "weir: series of /metrics grew", func(s *Sample, x float64) { s.Processes[0].Series += 400 * x }},
		{"keys without an end", "Redis: keys grew", func(s *Sample, x float64) { s.RedisKeys += 20_000 * x }},
		{"Redis fills", "Redis: memory grew", func(s *Sample, x float64) { s.RedisMemory += 15 * mb * x }},
		{"slower and slower", "p99.9 was", func(s *Sample, x float64) { s.P999 += time.Duration(x * float64(time.Second)) }},
		{"growth in the first half that has ended", "", func(s *Sample, x float64) { s.Processes[0].Heap += 30 * mb * min(x, 0.5) }},
		{"memory that is given back and taken again, and less often in the end", "", func(s *Sample, x float64) {
			low := 45 + 50*max(0, 2*x-1)
			s.Processes[0].RSS = (low + (105-low)*float64(int(240*x)*37%60)/60) * mb
		}},
		{"what shrinks", "", func(s *Sample, x float64) { s.Processes[0].RSS -= 30 * mb * x }},
		{"slow as ever", "", func(s *Sample, _ float64) { s.P999 *= 100 }},
	} {
		found := Judge(hour(x.change), []string{"weir"}, 1)
		if x.want == "" && len(found) > 0 || x.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], x.want)) {
			t.Errorf("%s: found %q, want %q", x.remark, found, x.want)
		}
	}
}

func TestTooFewSamplesAreNoVerdict(t *testing.T) {
	if found := Judge(hour(func(*Sample, float64) {})[:fewest-1], []string{"weir"}, 1); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

func TestPercentilesAreWithinAStep(t *testing.T) {
	var h histogram
	for i := range 10_000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	counts, all := h.take()
	for _, x := range []struct {
		q    float64
		want time.Duration
	}{{.5, 5 * time.Second}, {.99, 9900 * time.Millisecond}, {.999, 9990 * time.Millisecond}, {0.0001, time.Millisecond}} {
		if got := percentile(counts, all, x.q); got < x.want || float64(got) > float64(x.want)*step*step {
			t.Errorf("%v: %v, want %v", x.q, got, x.want)
		}
	}
	if counts, all = h.take(); all != 0 || percentile(counts, all, .5) != 0 {
		t.Error("it does not begin anew")
	}
	h.add(0)
	h.add(time.Hour)
	if _, all = h.take(); all != 2 {
		t.Error("the shortest and the longest do not count")
	}
}
