package metrics

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"weir/limiter"
	"weir/rules"
)

func TestDescriptorsAreToldForRulesThatAskForIt(t *testing.T) {
	m := newCounting(t, `
domain: d
descriptors:
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        descriptors:
          - key: subject
            value_to_metric: true
            rate_limit: {unit: day, requests_per_unit: 5}
  - key: file
    value: img/*
    value_to_metric: true
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: page
    value: doc/*
    value_to_metric: true
    rate_limit: {unit: day, requests_per_unit: 5}
rules:
  - {name: network, match: {flat: x, remote_address: "*"}, limit: 5, window: 1h, value_to_metric: true}
  - {match: {plain: "*"}, limit: 5, window: 1h}
`, Options{})
	for _, x := range []struct{ entries, want, remark string }{
		{"detailed=1", "detailed=1", "all values, whatever the levels say"},
		{"route=a method=GET subject=s", "route=a, method=*, subject=s", "the values of the levels that say so"},
		{"page=doc/1", "page=doc/1", "the whole value, not the wildcard"},
		{"flat=x remote_address=2001:db8::1", "flat=x, remote_address=2001:db8::/64", "an address as its network"},
	} {
		m.ask("d", x.entries, passed)
		found := false
		for series := range m.series("weir_descriptor_hits_total") {
			found = found || strings.Contains(series, fmt.Sprintf("descriptor=%q", x.want))
		}
		if !found {
			t.Errorf("%s is not told as %s: %s", x.entries, x.want, x.remark)
		}
	}
	m.ask("d", "plain=1", passed)
	m.ask("d", "file=img/1", passed) // shares a counter, and is told as one: as the rule
	if got := m.series("weir_descriptor_hits_total"); len(got) != 4 {
		t.Errorf("there are %d series, want 4: %v", len(got), sortedKeys(got))
	}
	m.ask("d", "detailed=1", limiter.Decision{})
	if n := m.series("weir_descriptor_hits_total")[`weir_descriptor_hits_total{descriptor="detailed=1",domain="d",outcome="over_limit",rule="detailed=*"}`]; n != 1 {
		t.Errorf("refused %v times, want 1", n)
	}
}

func TestBeyondTheCapDescriptorsCountTogether(t *testing.T) {
	m := newCounting(t, `
rules:
  - {name: a, match: {a: "*"}, limit: 5, window: 1s, value_to_metric: true}
  - {name: b, match: {b: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{MaxValues: 3})
	for i := range 5 {
		m.ask("default", fmt.Sprintf("a=%d", i), passed)
		m.ask("default", fmt.Sprintf("b=%d", i), passed)
	}
	m.ask("default", "a=0", passed) // it has its place still
	m.want("weir_descriptor_hits_total",
		`{descriptor="a=0",domain="default",outcome="ok",rule="a"} 2`,
		`{descriptor="b=0",domain="default",outcome="ok",rule="b"} 1`,
		`{descriptor="a=1",domain="default",outcome="ok",rule="a"} 1`,
		`{descriptor="(other)",domain="default",outcome="ok",rule="a"} 3`,
		`{descriptor="(other)",domain="default",outcome="ok",rule="b"} 4`)
	m.load(`rules: [{name: b, match: {b: "*"}, limit: 5, window: 1s, value_to_metric: true}]`)
	_ = m.families()
	m.ask("default", "b=9", passed) // the places of a rule that has gone are free
	if n := m.series("weir_descriptor_hits_total")[`weir_descriptor_hits_total{descriptor="b=9",domain="default",outcome="ok",rule="b"}`]; n != 1 {
		t.Error("b=9 is not told")
	}

	none := newCounting(t, `rules: [{name: a, match: {a: "*"}, limit: 5, window: 1s, value_to_metric: true}]`, Options{MaxValues: -1})
	none.ask("default", "a=0", passed)
	none.want("weir_descriptor_hits_total", `{descriptor="(other)",domain="default",outcome="ok",rule="a"} 1`)
}

func TestTheCapHoldsUnderParallelLoad(t *testing.T) {
	const most = 50
	m := newCounting(t, `
rules:
  - {name: a, match: {a: "*"}, limit: 5, window: 1s, value_to_metric: true}
  - {name: b, match: {b: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{MaxValues: most})
	var askers sync.WaitGroup
	for g := range 8 {
		askers.Go(func() {
			for i := range 200 {
				m.ask("default", fmt.Sprintf("%s=%d", []string{"a", "b"}[g%2], i+g%3), passed)
			}
		})
	}
	askers.Wait()
	told, sum := 0, 0.0
	for series, n := range m.series("weir_descriptor_hits_total") {
		sum += n
		if !strings.Contains(series, otherValue) {
			told++
		}
	}
	if told != most || m.values.Load() != most || sum != 1600 {
		t.Errorf("%d descriptors of %d hits are told apart (%d are counted), want %d of 1600", told, int(sum), m.values.Load(), most)
	}
}

func TestLabelsAreValidAndShort(t *testing.T) {
	long := strings.Repeat("é", 1000)
	m := newCounting(t, `
rules:
  - {name: each, match: {a: "*", b: "*"}, limit: 5, window: 1s, detailed_metric: true}
  - {match: {endpoint: `+long+`}, limit: 5, window: 1s}
  - {match: {endpoint: `+long+`x}, limit: 5, window: 1s}
`, Options{})
	ask := func(a, b string) {
		m.count(m.live.Current(), &rules.Request{Domain: "default", Descriptors: []rules.Descriptor{{
			Entries: []rules.Entry{{Key: "a", Value: a}, {Key: "b", Value: b}},
		}}}, passed)
	}
	ask("\xff\xfe", "x\ny\x00")
	ask(long, long)
	ask(long+"1", long) // is cut to the same
	m.ask("default", "endpoint="+long, passed)
	m.ask("default", "endpoint="+long+"x", passed)
	m.ask(long, "a=1", passed)
	names := map[string]bool{}
	for _, family := range m.families() {
		for _, metric := range family.Metric {
			for _, l := range metric.Label {
				if v := l.GetValue(); !utf8.ValidString(v) || len(v) > maxText+len("�") {
					t.Errorf("%s: %d bytes: %q", family.GetName(), len(v), v)
				}
				if family.GetName() == "weir_decisions_total" && l.GetName() == "rule" {
					names[l.GetValue()] = true
				}
			}
		}
	}
	if len(names) != 3 {
		t.Errorf("long paths do not stay apart: %v", names)
	}
	if n := len(m.series("weir_descriptor_hits_total")); n != 2 {
		t.Errorf("%d descriptors, want 2", n)
	}
}

// Unique values of clients make no series, and no memory that stays. A million, which
// takes long with the race detector, was seen to add none: raise values for that.
func TestUniqueValuesAddNothing(t *testing.T) {
	m := newCounting(t, `
rules:
  - {name: plain, match: {user: "*"}, limit: 5, window: 1s}
  - {name: each, match: {client: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{})
	const values = 100_000
	at := 0
	ask := func(n int) {
		var plan rules.Plan
		set := m.live.Current()
		decisions := []limiter.Decision{passed, passed}
		for range n {
			at++
			req := rules.Request{Domain: "default", Descriptors: []rules.Descriptor{
				{Entries: []rules.Entry{{Key: "user", Value: fmt.Sprintf("user %d", at)}}},
				{Entries: []rules.Entry{{Key: "client", Value: fmt.Sprintf("client %d", at)}}},
			}}
			set.Plan(&req, &plan)
			r := m.Begin()
			r.Asking()
			r.Decided(set, &req, &plan, decisions, false)
			r.End(fmt.Sprintf("domain %d", at), 0, false)
		}
	}
	level := func() (series int, heap uint64) {
		for _, family := range m.families() {
			series += len(family.Metric)
		}
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return series, stats.HeapAlloc
	}
	ask(2 * DefaultMaxValues)
	series, heap := level()
	ask(values)
	seriesAfter, heapAfter := level()
	t.Logf("%d series and %d KiB after %d values, %d and %d KiB after %d", series, heap>>10, 2*DefaultMaxValues, seriesAfter, heapAfter>>10, at)
	if seriesAfter != series {
		t.Errorf("series grew from %d to %d", series, seriesAfter)
	}
	if heapAfter > heap+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap, heapAfter)
	}
	if n := len(m.series("weir_descriptor_hits_total")); n != DefaultMaxValues+1 {
		t.Errorf("%d descriptors are told apart, want %d and (other)", n, DefaultMaxValues)
	}
}

// A request must cost next to nothing: no memory at all.
func TestCountingAllocatesNothing(t *testing.T) {
	m := newCounting(t, `
rules:
  - {name: plain, match: {user: "*"}, limit: 5, window: 1s}
  - {name: each, match: {client: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{})
	b := newAsking(m)
	if n := testing.AllocsPerRun(200, b.ask); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// asking is a request that is counted again and again.
type asking struct {
	m         *Metrics
	set       *rules.Set
	req       rules.Request
	plan      rules.Plan
	decisions []limiter.Decision
}

func newAsking(m *counting) *asking {
	a := &asking{m: m.Metrics, set: m.live.Current(), req: rules.Request{Domain: "default", Descriptors: []rules.Descriptor{
		{Entries: []rules.Entry{{Key: "user", Value: "alice"}}},
		{Entries: []rules.Entry{{Key: "client", Value: "browser"}}},
	}}, decisions: []limiter.Decision{passed, passed}}
	a.set.Plan(&a.req, &a.plan)
	return a
}

func (a *asking) ask() {
	r := a.m.Begin()
	r.Asking()
	r.Decided(a.set, &a.req, &a.plan, a.decisions, false)
	r.End(a.req.Domain, 0, false)
}

// BenchmarkRequest is all that metrics add to a request of two limits, one of which
// tells values.
func BenchmarkRequest(b *testing.B) {
	m := newCounting(b, `
rules:
  - {name: plain, match: {user: "*"}, limit: 5, window: 1s}
  - {name: each, match: {client: "*"}, limit: 5, window: 1s, value_to_metric: true}
`, Options{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		a := newAsking(m)
		for pb.Next() {
			a.ask()
		}
	})
}

// BenchmarkScrape is that of 10,000 rules that were all met.
func BenchmarkScrape(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "- {match: {a: v%d}, limit: 5, window: 1s}\n", i)
	}
	m := newCounting(b, text.String(), Options{})
	for i := range 10_000 {
		m.ask("default", fmt.Sprintf("a=v%d", i), passed)
	}
	for b.Loop() {
		m.families()
	}
}
