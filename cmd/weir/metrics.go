package main

import (
	"context"
	"math"
	"net/http"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"weir/limiter"
	"weir/limiter/redis"
	"weir/queue"
	"weir/server"
	"weir/server/metrics"
)

// metricsFlags are the flags of the metrics.
type metricsFlags struct {
	on        choice
	nearRatio float64
	maxValues int
}

func (m *metricsFlags) addFlags(f *pflag.FlagSet) {
	m.on = choice{[]string{"on", "off"}, "on"}
	f.Var(&m.on, "metrics", "serve metrics for Prometheus at /metrics of --http-addr")
	f.Float64Var(&m.nearRatio, "near-limit-ratio", metrics.DefaultNearRatio, "above which share of a limit what passes counts as near_limit in the metrics: over 0, 1 at most")
	f.IntVar(&m.maxValues, "metrics-max-values", metrics.DefaultMaxValues, "descriptors that the metrics tell apart at most, for rules with detailed_metric or value_to_metric; the rest is (other)")
}

func (m *metricsFlags) complete() error {
	switch {
	case m.nearRatio <= 0, m.nearRatio > 1, math.IsNaN(m.nearRatio):
		return usagef("--near-limit-ratio %v: it is over 0, and 1 at most", m.nearRatio)
	case m.maxValues < 0:
		return usagef("--metrics-max-values %d: it is 0 at least", m.maxValues)
	}
	return nil
}

// metrics go to nobody by themselves here. With DISABLE_STATS none are served
// either, whatever the other settings say, as there.
func (e *compatEnv) metrics() {
	if e.given("NEAR_LIMIT_RATIO") {
		e.set("near-limit-ratio", e.get("NEAR_LIMIT_RATIO"), "NEAR_LIMIT_RATIO")
	}
	if !e.has("metrics") && e.isTrue("DISABLE_STATS") {
		e.set("metrics", "off", "DISABLE_STATS")
	}
	switch on := e.flags.Lookup("metrics"); {
	case on != nil && on.Value.String() == "off":
	case e.isTrue("USE_PROMETHEUS"):
		e.set("metrics-addr", e.get("PROMETHEUS_ADDR"), "PROMETHEUS_ADDR")
		e.set("metrics-path", e.get("PROMETHEUS_PATH"), "PROMETHEUS_PATH")
	case e.isTrue("USE_STATSD"):
		e.notes = append(e.notes, "USE_STATSD is not heeded: "+noStatsd)
	}
}

// open returns the metrics, which follow the rules until the context ends; nil: they
// are off.
func (m *metricsFlags) open(ctx context.Context, background *errgroup.Group, opts metrics.Options, certs *server.Certificates) *metrics.Metrics {
	if m.on.value == "off" {
		return nil
	}
	opts.Version, opts.NearRatio, opts.MaxValues = versionText(), m.nearRatio, orNone(m.maxValues)
	counting := metrics.New(opts)
	if certs != nil {
		counting.WatchCertificate(certs.NotAfter)
	}
	background.Go(func() error { counting.Run(ctx); return nil })
	return counting
}

// handler is nil where there are no metrics.
func (m *metricsFlags) handler(counting *metrics.Metrics) http.Handler {
	if counting == nil {
		return nil
	}
	return counting.Handler()
}

// countMemory has the options' events counted too.
func countMemory(opts *limiter.MemoryOptions, counting *metrics.Metrics) {
	full, dropped := opts.OnFull, opts.OnDropped
	opts.OnFull = func() { counting.CounterTurnedAway(); full() }
	opts.OnDropped = func() { counting.CountersDropped(1); dropped() }
}

// storeEvents counts what becomes of the store.
func storeEvents(counting *metrics.Metrics, health *server.Health) redis.Events {
	return redis.Events{
		Breaker: func(open bool) { health.SetStore(!open) },
		Failed:  func(err error) { counting.StoreFailed(redis.Reason(err)) },
		Waited:  counting.StoreWaited,
		Healed:  counting.StoreHealed,
		Dropped: counting.CountersDropped,
	}
}

// states returns the queues of the rules in force.
func (o *overflow) states(ctx context.Context) ([]metrics.QueueState, error) {
	all, err := o.queues.Overviews(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string]*queue.Overview, len(all))
	for i := range all {
		found[all[i].Tag] = &all[i]
	}
	var states []metrics.QueueState
	for _, r := range o.live.Current().Queues() {
		q := metrics.QueueState{Domain: r.Domain, Rule: r.Label(), Capacity: r.Limits[0].Queue}
		if at := found[o.queues.AboutRule(r).Tag]; at != nil { // else it is not announced yet
			q.Waiting, q.Failed = uint64(at.Waiting), uint64(at.Failed)
		}
		states = append(states, q)
	}
	return states, nil
}
