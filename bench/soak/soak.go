// Package soak runs Weir for a long time under a mixed load, with rules that change
// every few seconds, and judges whether anything grows, drifts or becomes slower.
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/bench/proc"
)

// Options are how long and how much.
type Options struct {
	Weir, Redis string        // executables
	Ports       *proc.Ports   // from which the servers take theirs
	Length      time.Duration // under load
	Rate        int           // requests a second, over all servers; open loop
	InFlight    int           // requests at once, at most
	RuleChanges time.Duration // between two changes of the rules
	Restarts    int           // of Redis, evenly spread
	Out         string        // a folder for profiles and samples; it is there only after a finding
	Progress    io.Writer     // for a line a minute
}

// Check returns an error that says what of the options makes no sense.
func (o *Options) Check() error {
	switch {
	case o.Length < 10*time.Second:
		return fmt.Errorf("length %v: want 10s at least, for there is nothing to see in less", o.Length)
	case o.Rate < 10 || o.Rate > 1_000_000:
		return fmt.Errorf("rate %d: want 10 to 1000000 a second", o.Rate)
	case o.InFlight < 1 || o.InFlight > 100_000:
		return fmt.Errorf("in flight %d: want 1 to 100000", o.InFlight)
	case o.RuleChanges < 500*time.Millisecond:
		return fmt.Errorf("a change of rules every %v: want 500ms at least, for Weir waits until files are at rest", o.RuleChanges)
	case o.Restarts < 0 || time.Duration(o.Restarts)*20*time.Second > o.Length:
		return fmt.Errorf("%d restarts in %v: want 20s for each", o.Restarts, o.Length)
	}
	return nil
}

// settled is how long a run must be for the bounds to be as they are; shorter ones
// have wider bounds, for memory has not settled.
const (
	settled   = 10 * time.Minute
	loose     = 1.5
	redisBack = 3 * time.Second
)

// soak is one run.
type soak struct {
	opts           Options
	dir            string // of servers' logs and rules
	rules          folder
	redisAddr      string
	redis, servers proc.Group
	weirs          []*weir

	due, newValues, generation  atomic.Int64
	requests, changes, restarts atomic.Int64
	skipped                     atomic.Int64 // requests that were due, but not sent
	checked, unchecked          atomic.Int64
	latencies                   histogram
	faults                      faults
	windows                     windows
	samples                     []Sample
}

// Run runs servers under load, and returns what is wrong: nothing, if all is well.
// An error means that it could not be seen.
func Run(ctx context.Context, o Options) (found []string, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	s := &soak{opts: o}
	if s.dir, err = os.MkdirTemp("", "weir-soak-"); err != nil {
		return nil, fmt.Errorf("a folder for the servers: %w", err)
	}
	defer os.RemoveAll(s.dir)
	if err := s.prepare(); err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	idle, err := s.look(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	if err := s.underLoad(ctx); err != nil {
		return nil, errors.Join(err, s.keepLogs())
	}
	if err := s.profiles(ctx, "end"); err != nil {
		return nil, err
	}
	found, err = s.judge(ctx, idle)
	switch {
	case err != nil:
		return nil, errors.Join(err, s.keepLogs())
	case len(found) == 0:
		return nil, os.RemoveAll(o.Out)
	}
	return found, errors.Join(s.keepLogs(), s.keepSamples())
}

// prepare makes the folders.
func (s *soak) prepare() error {
	s.rules = folder{filepath.Join(s.dir, "rules")}
	if err := os.RemoveAll(s.opts.Out); err != nil {
		return fmt.Errorf("profiles of an earlier run: %w", err)
	}
	for _, dir := range []string{s.rules.path, s.opts.Out} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("a folder: %w", err)
		}
	}
	return errors.Join(s.rules.write("fixed.yaml", fixedRules), s.rules.change(0))
}

// underLoad runs all that goes on at the same time, for the length of the run, and
// ends all when one of them fails.
func (s *soak) underLoad(ctx context.Context) error {
	// Not a deadline: Weir would be told of it, and answer the last requests by it.
	over := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(s.opts.Length, cancel).Stop()
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { s.drive(ctx); return nil }, s.askSteadily, s.changeRules, s.scrape, s.watch, s.checks, s.restartsOfRedis,
	} {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(append(all, over.Err())...)
}

// scrape asks for what Prometheus and operators ask for, every few seconds.
func (s *soak) scrape(ctx context.Context) error {
	for pause(ctx, 2*time.Second) {
		for _, w := range s.weirs {
			for _, path := range []string{"/metrics", "/rules", "/v1/top", "/v1/stats", "/readyz"} {
				if _, err := proc.Get(ctx, "http://"+w.http+path); err != nil && ctx.Err() == nil {
					s.faults.add(fmt.Sprintf("%s, %s: %v", w.name, path, err))
				}
			}
		}
	}
	return nil
}

// checks looks at new counters a few times, every minute at least.
func (s *soak) checks(ctx context.Context) error {
	for n := 0; pause(ctx, min(time.Minute, s.opts.Length/4)); n++ {
		s.checkExactly(ctx, n)
	}
	return nil
}

func (s *soak) restartsOfRedis(ctx context.Context) error {
	for range s.opts.Restarts {
		if !pause(ctx, s.opts.Length/time.Duration(s.opts.Restarts+1)) {
			return nil
		}
		if err := s.restartRedis(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// watch takes samples, 120 in a run or one every 15 s, and prints a line a minute.
func (s *soak) watch(ctx context.Context) error {
	interval := min(15*time.Second, max(500*time.Millisecond, s.opts.Length/120))
	begin, last, told, half := time.Now(), time.Now(), time.Now(), false
	for pause(ctx, interval-time.Since(last)) {
		since := time.Since(last)
		from := last
		last = time.Now()
		sample, err := s.look(ctx, begin)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the run is over
		case err != nil && s.restarts.Load()%2 == 1: // Redis is away: we ended it
			continue
		case err != nil:
			return err
		}
		counts, all := s.latencies.take()
		sample.Rate = float64(s.requests.Swap(0)) / since.Seconds()
		sample.P50, sample.P99, sample.P999 = percentile(counts, all, .5), percentile(counts, all, .99), percentile(counts, all, .999)
		if n := len(s.samples); n > 0 && standbyOf(s.samples[n-1]) < standbyOf(sample) {
			s.windows.except(span{from.Add(-interval), time.Now(), false})
		}
		s.samples = append(s.samples, sample)
		if time.Since(told) >= min(time.Minute, s.opts.Length/8) {
			told = time.Now()
			s.tell(sample)
		}
		if !half && time.Since(begin) > s.opts.Length/2 {
			half = true
			if err := s.profiles(ctx, "half"); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func standbyOf(s Sample) (sum float64) {
	for _, p := range s.Processes {
		sum += p.Standby
	}
	return sum
}

// look takes a sample, without the requests.
func (s *soak) look(ctx context.Context, begin time.Time) (Sample, error) {
	sample := Sample{At: time.Since(begin)}
	for _, w := range s.weirs {
		p, err := w.look(ctx)
		if err != nil {
			return sample, err
		}
		sample.Processes = append(sample.Processes, p)
	}
	memory, err1 := proc.AskRedis(ctx, s.redisAddr, "INFO memory")
	keys, err2 := proc.AskRedis(ctx, s.redisAddr, "DBSIZE")
	if err := errors.Join(err1, err2); err != nil {
		return sample, err
	}
	_, rest, _ := strings.Cut(memory, "used_memory:")
	_, err1 = fmt.Sscan(rest, &sample.RedisMemory)
	_, err2 = fmt.Sscan(keys, &sample.RedisKeys)
	return sample, errors.Join(err1, err2)
}

// tell prints a line, of the servers side by side.
func (s *soak) tell(x Sample) {
	row := func(of func(Process) float64) string {
		var parts []string
		for _, p := range x.Processes {
			parts = append(parts, fmt.Sprintf("%.0f", of(p)))
		}
		return strings.Join(parts, "+")
	}
	fmt.Fprintf(s.opts.Progress, "%6s  %.0f/s  p50 %v p99 %v p99.9 %v  RSS %s MB  heap %s MB  goroutines %s  fds %s  series %s  counters %s  Redis %.1f MB %.0f keys  rules changed %d  checked %d (+%d)  skipped %d  errors %d\n",
		x.At.Round(time.Second), x.Rate, short(x.P50), short(x.P99), short(x.P999),
		row(func(p Process) float64 { return p.RSS / mb }), row(func(p Process) float64 { return p.Heap / mb }),
		row(func(p Process) float64 { return p.Goroutines }), row(func(p Process) float64 { return p.Files }), row(func(p Process) float64 { return p.Series }),
		row(func(p Process) float64 { return p.Counters }), x.RedisMemory/mb, x.RedisKeys, s.changes.Load(), s.checked.Load(), s.unchecked.Load(), s.skipped.Load(), s.faults.count())
}

// short leaves three digits or so.
func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}

func (s *soak) keepSamples() error {
	text, err := json.Marshal(s.samples)
	if err != nil {
		return fmt.Errorf("keep samples: %w", err)
	}
	return writeFile(filepath.Join(s.opts.Out, "samples.json"), text)
}

// keepLogs keeps what the servers printed.
func (s *soak) keepLogs() error {
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, path := range logs {
		text, err1 := os.ReadFile(path)
		err = errors.Join(err, err1, writeFile(filepath.Join(s.opts.Out, filepath.Base(path)), text))
	}
	return err
}

func writeFile(path string, text []byte) error {
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("keep what was found: %w", err)
	}
	return nil
}
