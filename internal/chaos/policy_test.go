package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	weirv1 "weir/api/weir/v1"
)

const (
	month = 720 * time.Hour // no schedule is longer, so that it lies in one window, or in two
	fixed = "fixed_window"
)

// policy is one limit of a rule, as the oracle knows it.
type policy struct {
	rule      string
	algorithm string
	limit     uint64 // while the schedule runs, the highest
	window    time.Duration
	burst     uint64 // of a token bucket; of a leaky one its queue and 1
	lease     uint64
	failure   string // on_store_failure
	shadow    bool
	never     bool // the load does not reach it, so that it refuses nobody
	perKey    time.Duration
}

// policies are all limits that the load meets. Those of a month are used up, and
// then other clients come (perKey), so that there is always one to be used up.
var policies = []policy{
	{rule: "small", algorithm: fixed, limit: 8, window: month, perKey: 2 * time.Second},
	{rule: "middle", algorithm: fixed, limit: 130, window: month, perKey: 7 * time.Second},
	{rule: "large", algorithm: fixed, limit: 1_000_000, window: month, never: true},
	{rule: "leased", algorithm: fixed, limit: 400, window: month, lease: 40, perKey: 8 * time.Second},
	{rule: "short", algorithm: fixed, limit: 8, window: time.Second},
	{rule: "token", algorithm: "token_bucket", limit: 8, window: time.Second, burst: 10},
	{rule: "leaky", algorithm: "leaky_bucket", limit: 7, window: time.Second, burst: 4},
	{rule: "log", algorithm: "sliding_window_log", limit: 12, window: 2 * time.Second},
	{rule: "log-kind", algorithm: "sliding_window_log", limit: 12, window: 2 * time.Second},
	{rule: "sliding", algorithm: "sliding_window_counter", limit: 16, window: 2 * time.Second},
	{rule: "tenant", algorithm: fixed, limit: 35, window: month, perKey: 4 * time.Second},
	{rule: "user", algorithm: "token_bucket", limit: 10, window: time.Second, burst: 12},
	{rule: "both", algorithm: fixed, limit: 5, window: time.Second},
	{rule: "both", algorithm: fixed, limit: 25, window: month, perKey: 6 * time.Second},
	{rule: "cost", algorithm: fixed, limit: 250, window: month, perKey: 4 * time.Second},
	{rule: "shadow", algorithm: fixed, limit: 5, window: month, shadow: true, never: true},
	{rule: "denies", algorithm: fixed, limit: 26, window: month, failure: "deny", perKey: 5 * time.Second},
	{rule: "allows", algorithm: fixed, limit: 26, window: month, failure: "allow", perKey: 5 * time.Second},
	{rule: "errs", algorithm: fixed, limit: 26, window: month, failure: "error", perKey: 5 * time.Second},
	{rule: "changing", algorithm: fixed, limit: 26, window: month, perKey: 5 * time.Second},
	{rule: "flood", algorithm: fixed, limit: 10, window: 2 * time.Second},
	{rule: "fresh", algorithm: fixed, limit: 100, window: month},
}

func policyOf(rule, algorithm string, window time.Duration) (policy, bool) {
	i := slices.IndexFunc(policies, func(p policy) bool { return p.rule == rule && p.algorithm == algorithm && p.window == window })
	if i < 0 {
		return policy{}, false
	}
	return policies[i], true
}

// rulesText is the rules, of a version: each has a rule of its own, by which one
// sees that it is in force, and every other the lower limit of "changing".
func rulesText(version int) string {
	var b strings.Builder
	b.WriteString("domain: chaos\nrules:\n")
	line := func(name, rest string) {
		fmt.Fprintf(&b, "  - {name: %s, match: {%s: \"*\"}, %s}\n", name, name, rest)
	}
	for i, p := range policies {
		if i > 0 && policies[i-1].rule == p.rule {
			continue // "both", which is written with its first limit
		}
		limit := p.limit
		if p.rule == "changing" && version%2 == 1 {
			limit /= 2
		}
		window := strings.TrimSuffix(strings.TrimSuffix(p.window.String(), "0s"), "0m") // 720h
		if p.window < time.Minute {
			window = p.window.String()
		}
		rest := fmt.Sprintf("limit: %d, window: %s, algorithm: %s", limit, window, p.algorithm)
		switch {
		case p.algorithm == "token_bucket":
			rest += fmt.Sprintf(", burst: %d", p.burst)
		case p.algorithm == "leaky_bucket":
			rest += fmt.Sprintf(", queue: %d", p.burst-1)
		case p.rule == "log-kind":
			rest += ", count_denied: false"
		case p.rule == "both":
			rest = "limits: [{limit: 5, window: 1s}, {limit: 25, window: 720h}]"
		case p.lease > 0:
			rest += fmt.Sprintf(", accuracy: {lease: %d}", p.lease)
		case p.shadow:
			rest += ", shadow_mode: true"
		}
		if p.failure != "" {
			rest += ", on_store_failure: " + p.failure
		}
		line(p.rule, rest)
	}
	fmt.Fprintf(&b, "  - {name: version-%d, match: {version: \"%d\"}, unlimited: true}\n", version, version)
	return b.String()
}

// entry is one entry of a descriptor, which is all of it here.
type entry struct{ key, value string }

// shape is a request that the load sends again and again.
type shape struct {
	weight int
	rules  []string
	hits   func(r *rand.Rand) uint64
	how    string // Check, or else ShouldRateLimit or /json, which do not tell who decided
}

var shapes = []shape{
	{weight: 6, rules: []string{"small"}},
	{weight: 14, rules: []string{"middle"}},
	{weight: 6, rules: []string{"large"}},
	{weight: 40, rules: []string{"leased"}},
	{weight: 8, rules: []string{"short"}},
	{weight: 8, rules: []string{"token"}},
	{weight: 6, rules: []string{"leaky"}},
	{weight: 6, rules: []string{"log"}},
	{weight: 6, rules: []string{"log-kind"}},
	{weight: 8, rules: []string{"sliding"}},
	{weight: 8, rules: []string{"tenant", "user"}},
	{weight: 4, rules: []string{"both"}},
	{weight: 6, rules: []string{"cost"}, hits: func(r *rand.Rand) uint64 { return 1 + r.Uint64N(20) }},
	{weight: 3, rules: []string{"shadow"}},
	{weight: 5, rules: []string{"denies"}},
	{weight: 5, rules: []string{"allows"}},
	{weight: 5, rules: []string{"errs"}},
	{weight: 5, rules: []string{"changing"}},
	{weight: 3, rules: []string{"large"}, how: "rls"},
	{weight: 3, rules: []string{"large"}, how: "json"},
}

// request is what one of them asks at a time: each rule for the client whose turn
// it is.
func (s *shape) request(r *rand.Rand, at time.Duration) (entries []entry, hits uint64) {
	hits = 1
	if s.hits != nil {
		hits = s.hits(r)
	}
	for _, rule := range s.rules {
		turn := time.Duration(0)
		for _, p := range policies {
			if p.rule == rule && p.perKey > 0 {
				turn = at / p.perKey
			}
		}
		value := fmt.Sprintf("%d", turn)
		if s.how != "" {
			value = s.how
		}
		entries = append(entries, entry{rule, value})
	}
	return entries, hits
}

func checkRequest(entries []entry, hits uint64) *weirv1.CheckRequest {
	req := &weirv1.CheckRequest{Domain: "chaos", Hits: hits}
	for _, e := range entries {
		req.Descriptors = append(req.Descriptors, &weirv1.Descriptor{Entries: []*weirv1.Entry{{Key: e.key, Value: e.value}}})
	}
	return req
}

// What may become of a call but an answer. All else is a finding.
//
//   - UNAVAILABLE, with this text: of a rule whose on_store_failure is error
//     (docs/rules.md, "Fields of a rule"; docs/operations.md, "WeirErrors").
//   - UNAVAILABLE and DEADLINE_EXCEEDED, as the client's own side says it where the
//     instance is killed, stopped, or has just begun: there is no answer then.
//   - 503 of /json by an instance that has no rules yet (docs/operations.md, /readyz).
//   - RESOURCE_EXHAUSTED for a message of more than 4 MiB, 413 for a body of more
//     than 1 MiB (docs/api.md, "A request"), 431 for headers of more than 1 MB.
const textOfPolicy = "on_store_failure is error"
