package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"weir/limiter"
	"weir/rules"
)

// counting is metrics of rules that a test may change.
type counting struct {
	testing.TB
	*Metrics
	live *rules.Live
}

func newCounting(t testing.TB, text string, opts Options) *counting {
	t.Helper()
	c := &counting{TB: t, live: rules.NewLive(rules.LiveOptions{})}
	c.load(text)
	opts.Rules = c.live
	c.Metrics = New(opts)
	return c
}

// load puts rules into force.
func (c *counting) load(text string) {
	c.Helper()
	if err := c.live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte(text)})); err != nil {
		c.Fatal(err)
	}
}

// ask has a request counted whose hits are all decided so.
func (c *counting) ask(domain, entries string, d limiter.Decision) {
	c.askOf(c.live.Current(), domain, entries, d)
}

func (c *counting) askOf(set *rules.Set, domain, entries string, d limiter.Decision) {
	req := rules.Request{Domain: domain, Descriptors: []rules.Descriptor{{}}}
	for _, word := range strings.Fields(entries) {
		key, value, _ := strings.Cut(word, "=")
		req.Descriptors[0].Entries = append(req.Descriptors[0].Entries, rules.Entry{Key: key, Value: value})
	}
	c.count(set, &req, d)
}

func (c *counting) count(set *rules.Set, req *rules.Request, d limiter.Decision) {
	var plan rules.Plan
	set.Plan(req, &plan)
	r := c.Begin()
	if len(plan.Hits) > 0 {
		r.Asking()
		r.Decided(set, req, &plan, slices.Repeat([]limiter.Decision{d}, len(plan.Hits)), false)
	}
	r.End(req.Domain, 0, !d.Allowed)
}

// passed is a decision that leaves much.
var passed = limiter.Decision{Allowed: true, Remaining: 1 << 40}

// series are what a scrape has of some metrics, such as
// `weir_requests_total{code="ok",domain="a"}`; of a histogram the number of its
// observations.
func (c *counting) series(prefixes ...string) map[string]float64 {
	c.Helper()
	found := map[string]float64{}
	for _, family := range c.families() {
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(family.GetName(), p) }) {
			continue
		}
		for _, metric := range family.Metric {
			name := family.GetName()
			if len(metric.Label) > 0 {
				var labels []string
				for _, l := range metric.Label {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				name += "{" + strings.Join(labels, ",") + "}"
			}
			found[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func (c *counting) families() []*dto.MetricFamily {
	c.Helper()
	families, err := c.registry.Gather()
	if err != nil {
		c.Fatal(err)
	}
	return families
}

// want checks the series that are not 0, each as `labels value` in a line.
func (c *counting) want(name string, lines ...string) {
	c.Helper()
	got := []string{}
	for series, value := range c.series(name) {
		if value != 0 {
			got = append(got, fmt.Sprintf("%s %v", strings.TrimPrefix(series, name), value))
		}
	}
	slices.Sort(got)
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		c.Errorf("%s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
