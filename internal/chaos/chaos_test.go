package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWeirKeepsItsPromisesWhateverHappens is the short form.
func TestWeirKeepsItsPromisesWhateverHappens(t *testing.T) {
	t.Parallel()
	if os.Getenv("CHAOS") != "" {
		t.Skip("the long form runs")
	}
	for _, seed := range []uint64{3, 7} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			out := newPlan(seed, 5*time.Second, false).run(t)
			t.Log(out.line())
			if len(out.found) > 0 {
				t.Errorf("%s\n%s", out.plan, strings.Join(out.found, "\n"))
			}
		})
	}
}

// TestSchedules is the long form, for `make chaos`.
func TestSchedules(t *testing.T) {
	if os.Getenv("CHAOS") == "" {
		t.Skip("`make chaos` runs it")
	}
	schedules, length := number(t, "CHAOS", 200), time.Duration(number(t, "CHAOS_SECONDS", 20))*time.Second
	first := uint64(number(t, "CHAOS_SEED", int(rand.Uint32()>>1)))
	fmt.Printf("%d schedules of %v from seed %d on\n", schedules, length, first)
	clocks := faketime() != ""
	if !clocks {
		fmt.Println("Redis's clock is not set: there is no libfaketime (Debian: apt-get install libfaketime)")
	}
	all := &results{begin: time.Now(), of: schedules}
	t.Cleanup(all.table)
	for i := range uint64(schedules) {
		t.Run(fmt.Sprint("seed ", first+i), func(t *testing.T) {
			t.Parallel()
			out := newPlan(first+i, length, clocks).run(t)
			all.add(out)
			if len(out.found) > 0 {
				t.Errorf("again: make chaos CHAOS=1 CHAOS_SEED=%d CHAOS_SECONDS=%d\n%s%s", first+i, int(length.Seconds()), out.plan, strings.Join(out.found, "\n"))
			}
		})
	}
}

func number(t *testing.T, name string, unset int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s is %q, and should be a whole number", name, text)
	}
	return n
}

// line tells of a schedule.
func (o *outcome) line() string {
	f := o.figures
	verdict := "well"
	if len(o.found) > 0 {
		verdict = "FOUND " + o.found[0]
	}
	return fmt.Sprintf("seed %d (%v): %d faults, %d answers: %d passed, %d refused, %d errors; %d verdicts by Redis, %d without; over by %d of %d allowed; as before after %v; %s",
		o.plan.seed, o.plan.setting, len(o.plan.faults), f.answers, f.admitted, f.refused, f.errors, f.byStore, f.byLocal, f.over, f.bound, o.recovered.Round(time.Millisecond), verdict)
}

// results are those of all schedules.
type results struct {
	mu    sync.Mutex
	begin time.Time
	of    int
	all   []outcome
}

func (r *results) add(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
	fmt.Printf("%d/%d %s\n", len(r.all), r.of, o.line())
}

// table is printed at the end.
func (r *results) table() {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := map[string]int{}
	var total figures
	var worst, over outcome
	var peak int64
	found, busy := 0, 0
	var busiest time.Duration
	for _, o := range r.all {
		for what, n := range o.counts {
			done[what] += n
		}
		f := o.figures
		total.answers += f.answers
		total.admitted += f.admitted
		total.refused += f.refused
		total.errors += f.errors
		total.byStore += f.byStore
		total.byLocal += f.byLocal
		if o.slow > 0 {
			busy++
			busiest = max(busiest, o.recovered)
		} else if o.recovered > worst.recovered {
			worst = o
		}
		if f.over > over.figures.over {
			over = o
		}
		peak = max(peak, o.peak)
		if len(o.found) > 0 {
			found++
		}
	}
	fmt.Printf("\n%d schedules in %v\n", len(r.all), time.Since(r.begin).Round(time.Second))
	for _, what := range slices.Sorted(maps.Keys(done)) {
		fmt.Printf("  %7d %s\n", done[what], what)
	}
	fmt.Printf("answers: %d, of which %d passed, %d were refused, %d were errors that are named\n", total.answers, total.admitted, total.refused, total.errors)
	fmt.Printf("verdicts: %d with Redis, %d without it\n", total.byStore, total.byLocal)
	if worst.plan != nil {
		fmt.Printf("slowest to be as before: %v after the last fault (seed %d)\n", worst.recovered.Round(time.Millisecond), worst.plan.seed)
	}
	if busy > 0 {
		fmt.Printf("in %d schedules the machine was too busy to tell: a ping of Redis took over half of --store-timeout while they recovered; slowest of those: %v\n", busy, busiest.Round(time.Millisecond))
	}
	if over.plan != nil {
		fmt.Printf("most over a limit in outages and losses: %d, of %d that are allowed (seed %d)\n", over.figures.over, over.figures.bound, over.plan.seed)
	}
	fmt.Printf("largest instance: %d MB\n", peak>>20)
	fmt.Printf("schedules with findings: %d\n", found)
}
