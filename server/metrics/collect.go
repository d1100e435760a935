package metrics

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// collector gives a scrape what is counted here. What a scrape asks of others
// answers at once.
type collector struct{ *Metrics }

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for i, d := range c.descs {
		if c.own(i) {
			descs <- d
		}
	}
}

// own tells whether the metric is not a collector of its own.
func (c collector) own(which int) bool {
	switch which {
	case decisionDuration, storeDuration, heldDuration, shed, storeFailures, queueIngested:
		return false
	}
	return true
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.follow(c.opts.Rules.Current())
	s := scrape{c.Metrics, to}
	s.requests()
	s.gauge(heldRequests, float64(c.Held()))
	s.gauge(inFlight, float64(c.InFlight()))
	s.count(healedKeys, c.healed.Load())
	s.count(droppedCounters, c.dropped.Load())
	s.count(turnedAway, c.full.Load())
	s.storeState()
	s.rulesState()
	for _, q := range c.Queues() {
		domain, rule := text(q.Domain), text(q.Rule)
		s.gauge(queueWaiting, float64(q.Waiting), domain, rule)
		s.gauge(queueCapacity, float64(q.Capacity), domain, rule)
		s.gauge(queueFailed, float64(q.Failed), domain, rule)
	}
	if f := c.certificate.Load(); f != nil {
		s.gauge(certificateNotAfter, seconds((*f)()))
	}
	s.gauge(buildInfo, 1, text(c.opts.Version), goVersion())
}

type scrape struct {
	*Metrics
	to chan<- prometheus.Metric
}

func (s *scrape) send(which int, kind prometheus.ValueType, value float64, labels ...string) {
	metric, err := prometheus.NewConstMetric(s.descs[which], kind, value, labels...)
	if err != nil { // a label that is not valid: none is
		metric = prometheus.NewInvalidMetric(s.descs[which], err)
	}
	s.to <- metric
}

func (s *scrape) gauge(which int, value float64, labels ...string) {
	s.send(which, prometheus.GaugeValue, value, labels...)
}

func (s *scrape) count(which int, n uint64, labels ...string) {
	s.send(which, prometheus.CounterValue, float64(n), labels...)
}

// requests are told of as soon as there was one: of a rule that nobody met there is
// nothing, and of one that was met ok and over_limit at least, so that the first
// refusal is seen to be an increase.
func (s *scrape) requests() {
	s.mu.Lock()
	met := make([]*ruleCounters, 0, len(s.rules))
	for _, c := range s.rules {
		met = append(met, c)
	}
	domains := make([]*domainCounters, 0, len(s.domains))
	for _, d := range s.domains {
		domains = append(domains, d)
	}
	s.mu.Unlock()
	for _, c := range met {
		for o := range c.all {
			if n := c.all[o].Load(); n > 0 || outcome(o) == outcomeOK || outcome(o) == outcomeOverLimit {
				s.count(decisions, n, c.name.domain, c.name.rule, outcomeNames[o])
			}
		}
		s.count(countersBegun, c.begun.Load(), c.name.domain, c.name.rule)
		s.descriptors(c)
	}
	for _, d := range domains {
		for code := range d.codes {
			if n := d.codes[code].Load(); n > 0 || code == 0 || code == codeOverLimit {
				s.count(requests, n, d.name, codeNames[code])
			}
		}
	}
}

func (s *scrape) descriptors(c *ruleCounters) {
	c.each.mu.RLock()
	defer c.each.mu.RUnlock()
	tell := func(descriptor string, t *tally) {
		for o := range t {
			if n := t[o].Load(); n > 0 {
				s.count(descriptorHits, n, c.name.domain, c.name.rule, descriptor, outcomeNames[o])
			}
		}
	}
	for descriptor, t := range c.each.known {
		tell(descriptor, t)
	}
	tell(otherValue, &c.each.other)
}

func (s *scrape) storeState() {
	f := s.store.Load()
	if f == nil { // it is not open yet
		return
	}
	state := (*f)()
	s.gauge(storeUp, number(state.Up))
	s.gauge(breakerOpen, number(state.BreakerOpen))
	s.gauge(counters, float64(state.Counters))
	s.gauge(countersMax, float64(state.MaxCounters))
	s.gauge(sweepLock, state.SweepLock.Seconds())
	s.gauge(denyCached, float64(state.DenyCached))
	l := &state.Leases
	s.gauge(leases, float64(l.Held))
	s.count(leaseHits, l.Taken, "taken")
	s.count(leaseHits, l.Spent, "spent")
	s.count(leaseHits, l.Returned, "returned")
	s.count(leaseHits, l.Lost, "lost")
	s.count(leaseTakes, l.Takes, "taken")
	s.count(leaseTakes, l.TakesRefused, "refused")
	s.count(leaseTakes, l.TakesFailed, "failed")
}

func (s *scrape) rulesState() {
	status := s.opts.Rules.Status()
	s.gauge(rulesInfo, 1, status.Version)
	s.gauge(rulesCount, float64(status.Rules))
	s.gauge(domainsCount, float64(status.Domains))
	s.gauge(rulesLoaded, seconds(status.LoadedAt))
	told := map[string]bool{}
	for name, source := range status.Sources {
		label := sourceLabel(name)
		if told[label] { // two that differ in their passwords
			continue
		}
		told[label] = true
		if !source.AsOf.IsZero() {
			s.gauge(sourceAsOf, seconds(source.AsOf), label)
		}
		s.count(reloads, source.Reloads, label, "success")
		s.count(reloads, source.Failures, label, "failure")
		s.gauge(reloadSuccessful, number(source.LastError == ""), label)
	}
}

// sourceLabel is the name of a source without a password.
func sourceLabel(name string) string {
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		if err != nil {
			scheme, _, _ := strings.Cut(name, "://")
			return text(scheme + "://…")
		}
		name = u.Redacted()
	}
	return text(name)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func statusText(status int) string { return strconv.Itoa(status) }
