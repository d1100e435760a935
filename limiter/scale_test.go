package limiter

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// begun is a store with so many counters of a limit, all of which end at the same
// time; and how long the slowest decision took, which made its table grow.
func begun(t *testing.T, counters int, limit Limit, now func() time.Time) (m *Memory, slowest time.Duration) {
	t.Helper()
	m = NewMemory(MemoryOptions{MaxCounters: counters, Now: now})
	h := []Hit{{Key: make(Key, 24), Limit: limit, Cost: 1}}
	for i := range counters {
		binary.LittleEndian.PutUint64(h[0].Key, uint64(i))
		begin := time.Now()
		if _, err := m.Decide(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	if m.Len() != counters {
		t.Fatalf("it holds %d counters, want %d", m.Len(), counters)
	}
	return m, slowest
}

// smallLimits are those whose counters have no log.
func smallLimits() []Limit {
	hour := Window{Length: time.Hour}
	return []Limit{
		{Requests: 1000, Window: hour},
		{Requests: 1000, Window: hour, Algorithm: TokenBucket, Burst: 1000},
		{Requests: 1000, Window: hour, Algorithm: LeakyBucket, Queue: 1000},
		{Requests: 1000, Window: hour, Algorithm: SlidingWindowCounter},
	}
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func TestACounterTakesFewBytes(t *testing.T) {
	const counters, most = 100_000, 64
	for _, limit := range smallLimits()[:2] {
		before := liveHeap()
		m, _ := begun(t, counters, limit, time.Now)
		if each := (liveHeap() - before) / counters; each > most {
			t.Errorf("%v: %d bytes a counter, want %d at most", limit.Algorithm, each, most)
		}
		runtime.KeepAlive(m)
	}
}

func TestASweepTellsForHowLongItHeldALockAndHoldsNoneForLong(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	m, _ := begun(t, 100_000, smallLimits()[0], func() time.Time { return now })
	if held := m.SweepLock(); held != 0 {
		t.Errorf("before the first sweep: %v", held)
	}
	now = now.Add(2 * time.Hour)
	begin := time.Now()
	m.Sweep()
	whole := time.Since(begin)
	held := m.SweepLock()
	// A single lock for all would be held for nearly the whole of it. The rest is
	// for a machine that has other things to do.
	if held <= 0 || held > whole/2 && held > 20*time.Millisecond {
		t.Errorf("a sweep of %v held a lock for %v", whole, held)
	}
	if m.Len() != 0 {
		t.Errorf("it holds %d counters", m.Len())
	}
}

func TestAPeakIsRememberedForOneToTwoMinutes(t *testing.T) {
	var p peak
	for _, step := range []struct {
		remark   string
		at, note time.Duration // note 0: nothing
		want     time.Duration
	}{
		{"nothing yet", 0, 0, 0},
		{"the first", time.Second, 5, 5},
		{"a shorter one", 2 * time.Second, 3, 5},
		{"the next minute", 61 * time.Second, 4, 5},
		{"its end", 119 * time.Second, 0, 5},
		{"the first one's is over", 120 * time.Second, 0, 4},
		{"nothing for long", 10 * time.Minute, 0, 0},
		{"again", 10 * time.Minute, 1, 1},
		{"a clock that two read in turn", 9 * time.Minute, 2, 2},
	} {
		if step.note > 0 {
			p.note(step.at, step.note)
		}
		if got := p.read(step.at); got != step.want {
			t.Errorf("%s: %v, want %v", step.remark, got, step.want)
		}
	}
}

func TestScaleOfCounters(t *testing.T) {
	if os.Getenv("WEIR_SCALE") == "" {
		t.Skip("it takes a while, and 2 GB: make scale")
	}
	for _, counters := range []int{1_000_000, 10_000_000} {
		for _, limit := range smallLimits() {
			now := time.Unix(1_000_000, 0)
			before, begin := liveHeap(), time.Now()
			m, slowest := begun(t, counters, limit, func() time.Time { return now })
			took := time.Since(begin)
			each := (liveHeap() - before) / int64(counters)
			growth := longestGrowth(m)
			nothing, _ := sweepHolds(m, now)
			ended, longest := sweepHolds(m, now.Add(4*time.Hour))
			t.Logf("%d × %v: %d bytes each, made in %v each, the slowest in %v; growing holds a lock for %v, a sweep that finds nothing for %v, one that finds all for %v (at most %v)",
				counters, limit.Algorithm, each, took/time.Duration(counters), slowest, growth, nothing, ended, longest)
			if each > 64 || nothing > time.Millisecond || ended > time.Millisecond || growth > time.Millisecond {
				t.Error("want 64 bytes and 1 ms at most")
			}
		}
	}
}

// sweepHolds sweeps, and returns for how long that held locks: 99 in 100 for less
// than the first, since the rest also waited for the processor, and the longest.
func sweepHolds(m *Memory, now time.Time) (most, longest time.Duration) {
	var holds []time.Duration
	for i := range m.shards {
		for j := range tables {
			holds = append(holds, m.shards[i].sweep(j, now.UnixMicro()/expiryUnit, &m.count))
		}
	}
	slices.Sort(holds)
	return holds[len(holds)*99/100], holds[len(holds)-1]
}

// longestGrowth grows the largest tables once more, and returns the median of how
// long that took: the longest would be how long others had the processor.
func longestGrowth(m *Memory) time.Duration {
	largest := &m.shards[0].tables[0]
	for i := range m.shards {
		for j := range m.shards[i].tables {
			if t := &m.shards[i].tables[j]; len(t.slots) > len(largest.slots) {
				largest = t
			}
		}
	}
	var took [9]time.Duration
	for i := range took {
		copied := table{slots: largest.slots, n: largest.n}
		begin := time.Now()
		copied.resize(copied.n + copied.n/4 + 4)
		took[i] = time.Since(begin)
	}
	slices.Sort(took[:])
	return took[len(took)/2]
}
