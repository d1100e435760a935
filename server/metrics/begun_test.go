package metrics

import (
	"testing"

	"weir/limiter"
	"weir/rules"
)

// Each takes room in the store: who makes values up shows here, whatever the store.
func TestCountersThatBeginAreCountedByRule(t *testing.T) {
	for _, x := range []struct {
		d      limiter.Decision
		want   float64
		remark string
	}{
		{limiter.Decision{Allowed: true, Remaining: 4}, 1, "nothing else is used"},
		{limiter.Decision{Allowed: true, Remaining: 4, Origin: limiter.OriginLocal}, 1, "in this process, for Redis is away"},
		{limiter.Decision{Allowed: true, Remaining: 3}, 0, "it was there before"},
		{limiter.Decision{Remaining: 4}, 0, "it refuses, and holds nothing new"},
		{limiter.Decision{Allowed: true, Remaining: 4, Origin: limiter.OriginOpen}, 0, "no room: turned away"},
	} {
		c := newCounting(t, "rules: [{name: r, match: {a: \"*\"}, limit: 5, window: 60s}]", Options{})
		c.ask("default", "a=1", x.d)
		if got := c.series("weir_counters_begun")[`weir_counters_begun_total{domain="default",rule="r"}`]; got != x.want {
			t.Errorf("%+v: %v began, want %v (%s)", x.d, got, x.want, x.remark)
		}
	}
}

// What one limit refuses charges none, so that no counter of the others begins.
func TestNothingBeginsInARequestThatIsRefused(t *testing.T) {
	for _, each := range []bool{false, true} {
		c := newCounting(t, `rules: [{name: all, match: {all: "1"}, limit: 5, window: 60s}, {name: one, match: {a: "*"}, limit: 5, window: 60s}]`, Options{ChargeEach: each})
		req := rules.Request{Domain: "default", Descriptors: []rules.Descriptor{{Entries: []rules.Entry{{Key: "all", Value: "1"}}}, {Entries: []rules.Entry{{Key: "a", Value: "2"}}}}}
		var plan rules.Plan
		set := c.live.Current()
		set.Plan(&req, &plan)
		r := c.Begin()
		r.Asking()
		r.Decided(set, &req, &plan, []limiter.Decision{{}, {Allowed: true, Remaining: 4}}, false)
		r.End("default", 0, true)
		want := 0.0
		if each { // then it is charged
			want = 1
		}
		if got := c.series("weir_counters_begun")[`weir_counters_begun_total{domain="default",rule="one"}`]; got != want {
			t.Errorf("charging each: %v: %v began, want %v", each, got, want)
		}
	}
}
