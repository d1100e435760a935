package chaos

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	weirv1 "weir/api/weir/v1"
)

const (
	calm          = time.Second      // before the first fault, and after the last
	recovery      = 3 * time.Second  // after the last fault all is as before
	rate          = 300              // requests a second
	loosened      = 10 * time.Second // until what was held for bad clients is let go
	routines      = 60               // goroutines more than before, at most
	resident      = 160 << 20        // bytes of memory more than before, at most
	findingsShown = 20
)

// outcome is what became of a schedule.
type outcome struct {
	plan      *plan
	figures   figures
	recovered time.Duration
	slow      int // pings of Redis meanwhile that were slow, as the machine was busy
	found     []string
	counts    map[string]int
	peak      int64 // resident bytes of an instance, at the end of the faults
}

// run runs a schedule.
func (p *plan) run(t *testing.T) outcome {
	t.Helper()
	w := newWorld(t, p)
	defer w.alive()
	wall := w.begin.Round(0)
	ctx, stop := context.WithCancel(t.Context())
	var loading sync.WaitGroup
	loading.Go(func() { w.load(ctx, rate) })
	loading.Go(func() { w.watch(ctx.Done()) })
	w.sleep(calm)
	for _, in := range w.instances {
		in.goroutines, in.resident = w.goroutines(in), in.residentNow()
	}
	w.runFaults()
	out := outcome{plan: p}
	out.recovered, out.slow = w.recover()
	w.sleep(calm)
	stop()
	loading.Wait()
	for _, in := range w.instances {
		out.peak = max(out.peak, in.residentNow())
	}
	w.calmAgain()
	w.keysEnd()
	w.logs()
	var found []string
	out.figures, found = judge(&w.history, wall)
	out.found = slices.Concat(w.problem, found)
	if more := len(out.found) - findingsShown; more > 0 {
		out.found = append(out.found[:findingsShown], fmt.Sprintf("and %d more", more))
	}
	out.counts = maps.Clone(w.counts.n)
	if len(out.found) > 0 {
		out.found = append(out.found, "done: "+w.told())
	}
	return out
}

// told is what was done, and what that did to Redis's data, in the order of time.
func (w *world) told() string {
	var b strings.Builder
	for _, list := range []struct {
		of    string
		spans []span
	}{{"", w.done}, {"lost: ", w.losses}, {"perhaps lost: ", w.tails}, {"clock: ", w.steps}} {
		slices.SortFunc(list.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for _, s := range list.spans {
			fmt.Fprintf(&b, "\n    %6.2fs to %6.2fs %s%s", s.from.Seconds(), s.to.Seconds(), list.of, s.what)
		}
	}
	return b.String()
}

// runFaults does what the plan says, each lane for itself.
func (w *world) runFaults() {
	from := time.Now()
	lanes := map[string][]fault{}
	for _, f := range w.faults {
		lanes[f.lane] = append(lanes[f.lane], f)
	}
	var running sync.WaitGroup
	for lane, faults := range lanes {
		running.Go(func() {
			for _, f := range faults {
				w.sleep(f.at - time.Since(from))
				if w.ctx.Err() != nil {
					return
				}
				w.doing(lane, 1)
				w.do(f)
				w.doing(lane, -1)
			}
		})
	}
	running.Wait()
}

func (w *world) doing(lane string, n int) {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	if w.counts.now == nil {
		w.counts.now = map[string]int{}
	}
	w.counts.now[lane] += n
}

func (w *world) beingDone(lane string) bool {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	return w.counts.now[lane] > 0
}

// oneProbe is the longest from one probe of Weir's breaker to the next (lastProbe
// and half of it, in limiter/redis/breaker.go).
const oneProbe = 1500 * time.Millisecond

// recover waits until all is as before, and returns how long that took, and how
// often Redis was slow meanwhile, to whom asks it directly. Each time gives Weir as
// long again as a probe that failed does.
func (w *world) recover() (last time.Duration, slow int) {
	from := w.since()
	done := make(chan struct{})
	var pinging sync.WaitGroup
	pinging.Go(func() { slow = w.slowPings(done) })
	late := map[int]string{}
	var mu sync.Mutex
	var waiting sync.WaitGroup
	for _, in := range w.instances {
		waiting.Go(func() {
			why := ""
			for n := 0; w.since()-from < 5*recovery; n++ {
				if why = w.well(in, n); why == "" {
					break
				}
				w.sleep(20 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			took := w.since() - from
			last = max(last, took)
			if why != "" || took > recovery {
				late[in.n] = fmt.Sprintf("after %v: %s", took.Round(time.Millisecond), cmp.Or(why, "as before"))
			}
		})
	}
	waiting.Wait()
	close(done)
	pinging.Wait()
	allowed := recovery + time.Duration(slow)*oneProbe + w.stalledNow(from)
	for n, what := range late {
		if last > allowed {
			w.found(fmt.Sprintf("instance %d was not as before %v after the last fault (%d pings of Redis were slow meanwhile); %s", n, recovery, slow, what))
		}
	}
	return last, slow
}

func (w *world) busyNow(from time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy(from, w.since())
}

func (w *world) stalledNow(from time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled(from, w.since())
}

// well says in what an instance is not as it should be; empty: it is.
func (w *world) well(in *instance, try int) string {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	health, err := healthv1.NewHealthClient(in.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "weir.store"})
	if err != nil {
		return err.Error()
	}
	if health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return "weir.store is " + health.GetStatus().String()
	}
	if open, err := w.metric(in, "weir_store_breaker_open"); err != nil || open != 0 {
		return fmt.Sprintf("the breaker's metric is %v (%v)", open, err)
	}
	if !w.inForce(in) {
		return fmt.Sprintf("the rules are not version %d", w.version.Load())
	}
	client := fmt.Sprintf("%d-%d", in.n, try)
	for n := range uint64(5) {
		a := w.ask(in, "", []entry{{"fresh", client}}, 1)
		w.answer(a)
		if a.code != codes.OK || len(a.verdicts) != 1 {
			return fmt.Sprintf("a fresh counter: %v %s", a.code, a.text)
		}
		if v := a.verdicts[0]; v.by != "store" || v.remaining != 99-n {
			return fmt.Sprintf("a fresh counter has %d left after %d of 100, by %s", v.remaining, n+1, v.by)
		}
	}
	return ""
}

// explain names the rule that a version's descriptor finds.
func (w *world) explain(in *instance, version string) (string, error) {
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	resp, err := weirv1.NewWeirServiceClient(in.conn).Explain(ctx, &weirv1.ExplainRequest{Domain: "chaos", Entries: []*weirv1.Entry{{Key: "version", Value: version}}})
	if err != nil {
		return "", err
	}
	return resp.GetRule(), nil
}

func (w *world) goroutines(in *instance) int {
	n, err := w.metric(in, "go_goroutines")
	if err != nil {
		w.found(fmt.Sprintf("instance %d: %v", in.n, err))
	}
	return int(n)
}

// calmAgain looks at goroutines and memory.
func (w *world) calmAgain() {
	for _, in := range w.instances {
		var n int
		var size int64
		for deadline := time.Now().Add(loosened); ; w.sleep(100 * time.Millisecond) {
			n, size = w.goroutines(in), in.residentNow()
			if n <= in.goroutines+routines && size <= in.resident+resident {
				break
			}
			if time.Now().After(deadline) {
				w.found(fmt.Sprintf("instance %d has %d goroutines and %d MB when all is over; before it had %d and %d MB", in.n, n, size>>20, in.goroutines, in.resident>>20))
				break
			}
		}
	}
}

// keysEnd looks for keys in Redis that would never go. What a lost answer may have
// left so is deleted within a second or two (limiter/redis/plain.go).
func (w *world) keysEnd() {
	var text string
	for deadline := time.Now().Add(loosened); ; w.sleep(200 * time.Millisecond) {
		var err error
		text, err = w.master.Do("EVAL", `local found = {}; for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('PTTL', k) == -1 then found[#found+1] = k end end; return found`, "0")
		switch {
		case err != nil:
			w.found("harness: " + err.Error())
			return
		case text == "":
			return
		case time.Now().After(deadline):
			w.found("keys in Redis without a time to live: " + text)
			return
		}
	}
}

// logs looks whether the instances run, and for what no log should have.
func (w *world) logs() {
	for _, in := range w.instances {
		if !in.Runs() {
			w.found(fmt.Sprintf("instance %d has ended by itself", in.n))
		}
		for _, life := range in.outputs {
			for line := range strings.Lines(life.Output()) {
				for _, sign := range []string{"panic", "fatal error", "DATA RACE", "goroutine ", "a script failed on a key"} {
					if strings.Contains(line, sign) {
						w.found(fmt.Sprintf("instance %d logged: %s", in.n, strings.TrimSpace(line)))
					}
				}
			}
		}
	}
}
