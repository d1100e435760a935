// Package metrics counts what the server does, and serves it to Prometheus. It is
// a folder of its own so that the client of Prometheus stays out of the code that
// decides.
//
// Labels are bounded by the rules: what clients send makes no series, but for rules
// that ask for it, and of those no more than Options.MaxValues.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/rules"
)

// Options configures Metrics. Rules is required; the zero value of the rest is its
// default.
type Options struct {
	Rules     *rules.Live
	Version   string       // of the program
	NearRatio float64      // above which share of a limit what passes is near it; 0: DefaultNearRatio
	MaxValues int          // descriptors that detailed_metric and value_to_metric tell apart at most; 0: DefaultMaxValues; below 0: none
	Logger    *slog.Logger // of faults in a scrape; nil: none

	ChargeEach bool // a limit is charged though another refuses the request, see limiter.Options
}

// Defaults of Options.
const (
	DefaultNearRatio = 0.8
	DefaultMaxValues = 1000
)

// Metrics counts. All methods may be called on nil, which counts nothing, and are
// safe for concurrent use.
type Metrics struct {
	opts     Options
	base     time.Time // monotonic times are since then, and over 0
	registry *prometheus.Registry
	descs    [catalogSize]*prometheus.Desc

	decided, stored, held histogram
	_                     [64]byte // what each request writes is apart from what each reads
	inFlight, holding     atomic.Int64
	_                     [64]byte
	healed, dropped, full atomic.Uint64

	table  atomic.Pointer[table]
	none   *domainCounters // of domains without rules
	values atomic.Int64    // descriptors told apart, of all rules

	mu         sync.Mutex // of what follows
	rules      map[ruleName]*ruleCounters
	domains    map[string]*domainCounters
	gone       tally // of domains that are there no more
	goneErrors uint64

	shed, failures, ingested *prometheus.CounterVec

	store        atomic.Pointer[func() StoreState]
	certificate  atomic.Pointer[func() time.Time]
	queues       atomic.Pointer[func(context.Context) ([]QueueState, error)]
	queueStates  atomic.Pointer[[]QueueState]
	queuesWanted chan struct{} // a signal that there are some to be asked
}

// histogram is prometheus.Histogram without what is not needed.
type histogram interface{ Observe(seconds float64) }

// Buckets in seconds. The 20 ms are Envoy's default timeout of a rate limit call,
// the 10 ms that of --store-timeout.
var (
	decisionBuckets = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 250e-3, 1}
	heldBuckets     = []float64{1e-3, 5e-3, 10e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30, 60}
)

// New returns metrics that have counted nothing yet.
func New(opts Options) *Metrics {
	if opts.NearRatio == 0 {
		opts.NearRatio = DefaultNearRatio
	}
	if opts.MaxValues == 0 {
		opts.MaxValues = DefaultMaxValues
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{
		opts: opts, base: time.Now().Add(-1), registry: prometheus.NewRegistry(),
		rules: map[ruleName]*ruleCounters{}, domains: map[string]*domainCounters{},
		queuesWanted: make(chan struct{}, 1),
	}
	for i, d := range catalog {
		m.descs[i] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	m.decided = m.newHistogram(decisionDuration, decisionBuckets)
	m.stored = m.newHistogram(storeDuration, decisionBuckets)
	m.held = m.newHistogram(heldDuration, heldBuckets)
	m.shed, m.failures, m.ingested = m.newCounters(shed), m.newCounters(storeFailures), m.newCounters(queueIngested)
	m.registry.MustRegister(collector{m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.none = m.domain(noDomain)
	for m.table.Load() == nil { // rules may change meanwhile
		m.follow(opts.Rules.Current())
	}
	return m
}

func (m *Metrics) newHistogram(which int, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: catalog[which].Name, Help: catalog[which].Help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	})
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) newCounters(which int) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: catalog[which].Name, Help: catalog[which].Help}, catalog[which].Labels)
	m.registry.MustRegister(c)
	return c
}

// maxScrapes is how many scrapes run at once; more are answered 503. Who does not read
// its answer in time is cut off, lest it keep the place from others.
const (
	maxScrapes    = 4
	slowestScrape = 10 * time.Second // Prometheus waits no longer unless it is told to
)

// Handler serves the metrics. It asks nothing of the store or of any other server.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return http.NotFoundHandler()
	}
	scrapes := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: &scrapeLog{log: m.opts.Logger}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowestScrape)) // of this answer; a test's writer may have none
		scrapes.ServeHTTP(w, r)
	})
}

// scrapeLog tells of failed scrapes, once in a while: each has many errors, and anyone
// may break one off.
type scrapeLog struct {
	log  *slog.Logger
	last atomic.Int64
}

const scrapeLogInterval = 10 * time.Second

func (l *scrapeLog) Println(v ...any) {
	now := time.Now().UnixNano()
	if last := l.last.Load(); now-last >= int64(scrapeLogInterval) && l.last.CompareAndSwap(last, now) {
		l.log.Warn("a scrape of the metrics failed", "err", fmt.Sprint(v...))
	}
}

// How often Run looks for other rules, and asks for the queues.
const (
	rulesInterval  = time.Second
	queuesInterval = 5 * time.Second
)

// Run lets go of what rules that are gone had, and keeps the states of queues, until
// the context ends.
func (m *Metrics) Run(ctx context.Context) {
	if m == nil {
		return
	}
	var queues sync.WaitGroup
	defer queues.Wait()
	queues.Go(func() { m.askQueues(ctx) })
	tick := time.NewTicker(rulesInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.follow(m.opts.Rules.Current())
		}
	}
}

// askQueues waits for whoever knows the queues, who may not answer for long: then
// there are no states.
func (m *Metrics) askQueues(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.queuesWanted:
	}
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, queuesInterval)
		states, err := (*m.queues.Load())(asking)
		cancel()
		if err != nil {
			states = nil
		}
		m.queueStates.Store(&states)
		select {
		case <-ctx.Done():
		case <-time.After(queuesInterval):
		}
	}
}

// StoreState is what the store says of itself.
type StoreState struct {
	Up, BreakerOpen       bool
	Counters, MaxCounters int           // in this process
	SweepLock             time.Duration // the longest that a sweep of them has lately held a lock
	DenyCached            int           // refusals that are remembered
	Leases                LeaseState
}

// LeaseState is what became of the hits that were taken in advance.
type LeaseState struct {
	Held                             int    // counters with hits in hand
	Taken, Spent, Returned, Lost     uint64 // hits
	Takes, TakesRefused, TakesFailed uint64 // tries
}

// WatchStore has each scrape call f, which must not wait.
func (m *Metrics) WatchStore(f func() StoreState) {
	if m != nil {
		m.store.Store(&f)
	}
}

// WatchCertificate has each scrape call f, which tells when the certificate that TLS
// shows ends, and must not wait.
func (m *Metrics) WatchCertificate(f func() time.Time) {
	if m != nil {
		m.certificate.Store(&f)
	}
}

// QueueState is a queue of a rule in force.
type QueueState struct {
	Domain, Rule      string // its label
	Waiting, Capacity uint64
	Failed            uint64 // given up
}

// WatchQueues has Run call f every few seconds. An error means that nothing is
// known of the queues now. It is called once at most.
func (m *Metrics) WatchQueues(f func(context.Context) ([]QueueState, error)) {
	if m != nil && m.queues.CompareAndSwap(nil, &f) {
		m.queuesWanted <- struct{}{}
	}
}

// Queues is what was last known of the queues; nothing while nobody answers.
func (m *Metrics) Queues() []QueueState {
	if m == nil {
		return nil
	}
	if states := m.queueStates.Load(); states != nil {
		return *states
	}
	return nil
}

// ExpectStoreFailures begins the counts of these reasons, so that the first failure is
// seen to be an increase.
func (m *Metrics) ExpectStoreFailures(reasons ...string) {
	if m == nil {
		return
	}
	for _, reason := range reasons {
		m.failures.WithLabelValues(reason)
	}
}

// StoreFailed counts a request that the store did not decide. There are only a few
// reasons.
func (m *Metrics) StoreFailed(reason string) {
	if m != nil {
		m.failures.WithLabelValues(reason).Inc()
	}
}

// StoreWaited notes how long such a request waited for the store.
func (m *Metrics) StoreWaited(d time.Duration) {
	if m != nil {
		m.stored.Observe(d.Seconds())
	}
}

// StoreHealed counts keys in the store that began anew.
func (m *Metrics) StoreHealed(keys int64) {
	if m != nil {
		m.healed.Add(uint64(max(0, keys)))
	}
}

// CountersDropped counts counters that were too far ahead of the clock.
func (m *Metrics) CountersDropped(n int64) {
	if m != nil {
		m.dropped.Add(uint64(max(0, n)))
	}
}

// CounterTurnedAway counts a request for whose new counter there was no room.
func (m *Metrics) CounterTurnedAway() {
	if m != nil {
		m.full.Add(1)
	}
}

// Shed counts a request that was refused undecided. There are only a few reasons.
func (m *Metrics) Shed(reason string) {
	if m != nil {
		m.shed.WithLabelValues(reason).Inc()
	}
}

// Ingested counts a request that came for the queue of a rule, by its HTTP status. A
// rule that is not in force is (none).
func (m *Metrics) Ingested(r *rules.Rule, status int) {
	if m == nil {
		return
	}
	domain, rule := noDomain, noDomain
	if r != nil {
		name := nameOf(r)
		domain, rule = name.domain, name.rule
		m.counters(m.opts.Rules.Current(), name) // with which the series goes
	}
	m.ingested.WithLabelValues(domain, rule, statusText(status)).Inc()
}

// InFlight is how many requests are being decided or held now.
func (m *Metrics) InFlight() int64 {
	if m == nil {
		return 0
	}
	return m.inFlight.Load()
}

// Held is how many of them wait for their turn.
func (m *Metrics) Held() int64 {
	if m == nil {
		return 0
	}
	return m.holding.Load()
}

// now is a monotonic time, which costs less to read than that of the day.
func (m *Metrics) now() time.Duration { return time.Since(m.base) }

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

func goVersion() string { return runtime.Version() }

// nearFrom is what must remain of a limit for it not to be near.
func (m *Metrics) nearFrom(capacity int64) uint64 {
	ratio := DefaultNearRatio
	if m != nil {
		ratio = m.opts.NearRatio
	}
	return uint64(capacity - int64(math.Floor(float64(capacity)*ratio)))
}
