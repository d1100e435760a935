package main

import (
	"time"

	"weir/bench/load"
)

// Windows are so long that they do not turn while it runs, limits so high that
// nothing is refused but where a scenario is about refusals: then a look at a
// counter shows whether all that was admitted was counted. envoyproxy/ratelimit
// has no 28 days; its month is 30.
const (
	weirRules = `domain: bench
descriptors:
  - key: fixed_window
    rate_limit: {unit: day, unit_multiplier: 28, requests_per_unit: 4000000000}
  - key: refused
    rate_limit: {unit: day, unit_multiplier: 28, requests_per_unit: 5}
  - key: sliding_window_counter
    algorithm: sliding_window_counter
    rate_limit: {unit: day, unit_multiplier: 28, requests_per_unit: 10000}
  - key: sliding_window_log
    algorithm: sliding_window_log
    rate_limit: {unit: day, unit_multiplier: 28, requests_per_unit: 10000}
  - key: token_bucket
    algorithm: token_bucket
    rate_limit: {unit: day, unit_multiplier: 28, requests_per_unit: 10000}
  - key: leaky_bucket # it holds requests, and would hold them for minutes at such a rate
    algorithm: leaky_bucket
    rate_limit: {unit: hour, requests_per_unit: 1000000}
`
	leasedRules = `domain: bench
rules:
  - match: {leased: "*"}
    limit: 4000000000
    window: 672h
    accuracy: {lease: 1000}
`
	envoyproxyRules = `domain: bench
descriptors:
  - key: fixed_window
    rate_limit: {unit: month, requests_per_unit: 4000000000}
  - key: refused
    rate_limit: {unit: month, requests_per_unit: 5}
`
	limitadorLimits = `- {namespace: bench, max_value: 4000000000, seconds: 2419200, conditions: [], variables: ["descriptors[0].fixed_window"]}
`
	leaseSize = 1000
	window    = 28 * 24 * time.Hour
)

// scenario is one question, put to several servers in turn.
type scenario struct {
	id, title string
	against   []string // labels of the rows that the others are compared with
	rows      []row
}

// row is a server under a load.
type row struct {
	server    string
	label     string // empty: the server's name
	load      load.Load
	meaning   load.Meaning
	unchecked string // why its counters cannot be looked at; empty: they are
	note      string
}

func (r row) name() string {
	if r.label != "" {
		return r.label
	}
	return r.server
}

// matrix is the standard one. Each of its loads differs from the first
// scenario's in one thing.
func matrix(p Programs, inFlight int) []scenario {
	base := load.Load{Domain: "bench", Entry: "fixed_window", Values: 10_000, Descriptors: 1, InFlight: inFlight}
	peer := []string{"envoyproxy"}
	with := func(change func(*load.Load), servers ...string) (rows []row) {
		l := base
		change(&l)
		for _, s := range servers {
			rows = append(rows, row{server: s, load: l})
		}
		return rows
	}
	three := []string{"envoyproxy", "weir-redis", "weir-memory"}
	stores := with(func(*load.Load) {}, append(three, others(p)...)...)

	scenarios := []scenario{
		{id: "stores", title: "One fixed window, 10,000 keys alike", against: peer, rows: stores},
		{id: "algorithms", title: "Each algorithm, 10,000 keys", against: peer, rows: algorithms(base)},
		{id: "descriptors", title: "Three descriptors a request, a limit each", against: peer,
			rows: with(func(l *load.Load) { l.Descriptors = 3 }, three...)},
		{id: "zipf", title: "10,000 keys by Zipf's law (s = 1.1)", against: peer,
			rows: with(func(l *load.Load) { l.Zipf = 1.1 }, three...)},
		{id: "hot", title: "One hot key that passes", against: []string{"envoyproxy", "weir-memory"},
			rows: append(with(func(l *load.Load) { l.Values = 1 }, three...), leased(base, p)...)},
		{id: "refused", title: "One hot key that is refused", against: peer,
			rows: with(func(l *load.Load) { l.Values, l.Entry = 1, "refused" }, "envoyproxy", "envoyproxy, local cache", "weir-redis", "weir-memory")},
		{id: "open", title: "5,000 requests a second, however fast they are answered", against: peer,
			rows: with(func(l *load.Load) { l.Rate = 5000 }, three...)},
		{id: "cluster", title: "Redis Cluster, 10,000 keys", against: []string{"weir-redis"},
			rows: with(func(*load.Load) {}, "weir-redis", "weir-cluster-1", "weir-cluster-2", "weir-cluster-3")},
		{id: "unlimited", title: "A request that no rule limits, and one that a rule does", against: []string{"weir-memory, limited"}, rows: unlimited(base)},
	}
	for _, s := range scenarios {
		for i := range s.rows {
			s.rows[i].load.Prefix = s.id + "-" // no counter of another scenario
		}
	}
	return scenarios
}

// others are the peers that are driven if they are given.
func others(p Programs) (servers []string) {
	if p.Limitador != "" {
		servers = append(servers, "limitador-memory", "limitador-redis", "limitador-cached")
	}
	if p.Gubernator != "" {
		servers = append(servers, "gubernator")
	}
	return servers
}

func algorithms(base load.Load) []row {
	rows := []row{{server: "envoyproxy", load: base}}
	for _, store := range []string{"redis", "memory"} {
		for _, algorithm := range []string{"fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket", "leaky_bucket"} {
			r := row{server: "weir-" + store, label: store + ", " + algorithm, load: base}
			r.load.Entry = algorithm
			switch algorithm {
			case "token_bucket", "sliding_window_counter":
				r.meaning.Refill = window
			case "leaky_bucket":
				r.unchecked = "drains at once"
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func leased(base load.Load, p Programs) []row {
	if !p.leases {
		return nil
	}
	r := row{server: "weir-redis", label: "weir-redis, leased", load: base, meaning: load.Meaning{Slack: leaseSize}}
	r.load.Values, r.load.Entry = 1, "leased"
	return []row{r}
}

// unlimited is what a decision is taken apart by (report's byPart reads it).
func unlimited(base load.Load) []row {
	none := base
	none.Entry = "unlimited"
	return []row{
		{server: "envoyproxy", label: "envoyproxy, no limit", load: none, unchecked: "nothing to count"},
		{server: "weir-memory", label: "weir-memory, no limit", load: none, unchecked: "nothing to count"},
		{server: "weir-memory", label: "weir-memory, limited", load: base},
		{server: "weir-redis", label: "weir-redis, limited", load: base},
	}
}
