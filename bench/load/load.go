// Package load sends the same load to servers of Envoy's RateLimitService (and
// to gubernator, which speaks its own protocol) and measures what comes back.
//
// Closed loop: so many workers send their next request when the last one is
// answered; the figure is throughput. Open loop: so many requests a second are
// due at fixed times, and a latency counts from the moment at which a request
// was due, so that a stall is not hidden.
package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/bench/proc"
	"weir/bench/stats"
)

// Load is what is asked, and how fast.
type Load struct {
	Domain      string  // of each request
	Entry       string  // the key of a descriptor's one entry
	Prefix      string  // of the entry's value, before its number: loads that differ in it share no counters
	Values      int     // how many different values: 1 is one hot key
	Zipf        float64 // over 1: values are drawn by Zipf's law with this s; 0: all alike
	Descriptors int     // of each request, with values in succession
	InFlight    int     // requests in flight; in the open loop: at most
	Rate        int     // requests a second, open loop; 0: closed loop
}

// Check returns an error that says what of a load makes no sense.
func (l *Load) Check() error {
	switch {
	case l.Values < 1 || l.Values > 10_000_000:
		return fmt.Errorf("values %d: want 1 to 10000000", l.Values)
	case l.Zipf != 0 && !(l.Zipf > 1 && l.Zipf <= 100):
		return fmt.Errorf("zipf %v: want 0 (all values alike) or over 1", l.Zipf)
	case l.Descriptors < 1 || l.Descriptors > 100:
		return fmt.Errorf("descriptors %d: want 1 to 100", l.Descriptors)
	case l.InFlight < 1 || l.InFlight > 100_000:
		return fmt.Errorf("in flight %d: want 1 to 100000", l.InFlight)
	case l.Rate < 0 || l.Rate > 10_000_000:
		return fmt.Errorf("rate %d: want 0 (closed loop) to 10000000 a second", l.Rate)
	}
	return nil
}

// Asker asks one server. It may be used by many workers at once.
type Asker interface {
	// Ask sends the request of a value, on the connection of a worker, and tells
	// whether it was refused.
	Ask(ctx context.Context, worker, value int) (over bool, err error)
	// Look tells the limit of a value's first descriptor and what is left of it,
	// without counting; told is false where the server does not say.
	Look(ctx context.Context, value int) (limit, remaining uint64, told bool, err error)
}

// Processes are those whose CPU a request costs.
type Processes struct{ Server, Redis []int }

// Target is a server under one load. What was admitted is counted over all
// drives.
type Target struct {
	load      Load
	asker     Asker
	processes Processes
	admitted  []atomic.Int64 // by value: the hits that were answered OK
	failed    atomic.Int64
	begin     time.Time
}

// NewTarget is the server that asker asks, under that load. Without processes
// nothing is said of CPU.
func NewTarget(l Load, asker Asker, p Processes) (*Target, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return &Target{load: l, asker: asker, processes: p, admitted: make([]atomic.Int64, l.Values), begin: time.Now()}, nil
}

// Result is what one drive measured.
type Result struct {
	Requests  int64         `json:"requests"`         // answered
	Over      int64         `json:"over,omitempty"`   // refused
	Failed    int64         `json:"failed,omitempty"` // no answer, or an error
	Seconds   float64       `json:"seconds"`
	P50       time.Duration `json:"p50_ns"`
	P90       time.Duration `json:"p90_ns"`
	P99       time.Duration `json:"p99_ns"`
	P999      time.Duration `json:"p999_ns"`
	ServerCPU float64       `json:"server_cpu_us"` // µs a request
	RedisCPU  float64       `json:"redis_cpu_us"`  // µs a request, of all masters together
}

// Rate is requests answered a second.
func (r Result) Rate() float64 { return float64(r.Requests) / r.Seconds }

// CPU is the server's and Redis's µs a request.
func (r Result) CPU() float64 { return r.ServerCPU + r.RedisCPU }

// Drive loads the target for that long. The order of values is the same in each
// drive. It is an error if no request at all is answered.
func (t *Target) Drive(ctx context.Context, length time.Duration) (Result, error) {
	before, err := t.cpu()
	if err != nil {
		return Result{}, err
	}
	d := drive{target: t, length: length, start: time.Now(), latencies: make([][]time.Duration, t.load.InFlight)}
	var wg sync.WaitGroup
	for w := range t.load.InFlight {
		wg.Go(func() { d.latencies[w] = d.worker(ctx, w) })
	}
	wg.Wait()
	seconds := time.Since(d.start).Seconds()
	after, err := t.cpu()
	if err := errors.Join(err, ctx.Err()); err != nil {
		return Result{}, err
	}
	all := slices.Concat(d.latencies...)
	slices.Sort(all)
	r := Result{
		Requests: int64(len(all)), Over: d.over.Load(), Failed: d.failed.Load(), Seconds: seconds,
		P50: stats.Percentile(all, .5), P90: stats.Percentile(all, .9), P99: stats.Percentile(all, .99), P999: stats.Percentile(all, .999),
	}
	t.failed.Add(r.Failed)
	if r.Requests == 0 {
		return Result{}, fmt.Errorf("none of %d requests was answered: %v", r.Failed, d.fault.Load())
	}
	r.ServerCPU = (after[0] - before[0]) * 1e6 / float64(r.Requests)
	r.RedisCPU = (after[1] - before[1]) * 1e6 / float64(r.Requests)
	return r, nil
}

// cpu is the seconds that the server and its Redis have used so far.
func (t *Target) cpu() (used [2]float64, err error) {
	for i, pids := range [][]int{t.processes.Server, t.processes.Redis} {
		for _, pid := range pids {
			seconds, err := proc.CPUSeconds(pid)
			if err != nil {
				return used, err
			}
			used[i] += seconds
		}
	}
	return used, nil
}

// drive is one drive while it lasts.
type drive struct {
	target       *Target
	length       time.Duration
	start        time.Time
	due          atomic.Int64 // requests that were due so far, in the open loop
	over, failed atomic.Int64
	fault        atomic.Value // the last error
	latencies    [][]time.Duration
}

func (d *drive) worker(ctx context.Context, w int) []time.Duration {
	t := d.target
	next := Values(t.load, uint64(w))
	latencies := make([]time.Duration, 0, 1<<12)
	for {
		due := time.Now()
		if t.load.Rate > 0 {
			due = d.start.Add(time.Duration(d.due.Add(1)) * time.Second / time.Duration(t.load.Rate))
		}
		if due.Sub(d.start) >= d.length || !until(ctx, due) {
			return latencies
		}
		v := next()
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		over, err := t.asker.Ask(call, w, v)
		cancel()
		switch {
		case ctx.Err() != nil:
			return latencies
		case err != nil:
			d.failed.Add(1)
			d.fault.Store(err.Error())
			continue // it says nothing of what an answer takes
		case over:
			d.over.Add(1)
		default:
			for i := range t.load.Descriptors {
				t.admitted[(v+i)%t.load.Values].Add(1)
			}
		}
		latencies = append(latencies, time.Since(due))
	}
}

// until waits for a time, and is false if the context ends before.
func until(ctx context.Context, due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Values returns the values that a worker asks about, one a call. The same
// worker asks about the same ones in each drive.
func Values(l Load, worker uint64) func() int {
	random := rand.New(rand.NewPCG(worker, 42))
	if l.Zipf > 1 && l.Values > 1 {
		z := rand.NewZipf(random, l.Zipf, 1, uint64(l.Values-1))
		return func() int { return int(z.Uint64()) }
	}
	return func() int { return random.IntN(l.Values) }
}
