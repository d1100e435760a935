package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/limiter"
	"weir/rules"
)

// Report is what would have been refused: of a log by the rule sets that it was replayed
// against, or of a server's requests so far by its rules in shadow.
type Report struct {
	Title     string      `json:"title"`
	About     []string    `json:"about,omitempty"` // what it is of, in lines
	Warnings  []string    `json:"warnings,omitempty"`
	Log       any         `json:"log,omitempty"` // what was made of its lines
	From      time.Time   `json:"from"`
	To        time.Time   `json:"to"`
	Requests  uint64      `json:"requests"`
	PerSecond *Peak       `json:"peak_second,omitempty"`
	PerMinute *Peak       `json:"peak_minute,omitempty"`
	AtMost    float64     `json:"at_most,omitempty"` // the share that the tightest limits may refuse
	Sets      []SetReport `json:"sets"`
}

// SetReport is a rule set.
type SetReport struct {
	Name        string       `json:"name"`
	Version     string       `json:"version,omitempty"`
	Matched     uint64       `json:"matched"` // requests that met a limit
	Refused     uint64       `json:"refused"` // requests
	Share       float64      `json:"share"`   // of all requests
	Shadow      uint64       `json:"would_be_refused"`
	Held        uint64       `json:"held"`
	LongestHeld float64      `json:"longest_held_seconds"`
	Rules       []RuleReport `json:"rules"`
	Unmet       int          `json:"rules_not_met"`
	Series      []Bucket     `json:"series,omitempty"`
	Suggestion  string       `json:"suggestion,omitempty"` // rules to begin with
}

// RuleReport is a rule that requests met.
type RuleReport struct {
	Domain          string          `json:"domain"`
	Rule            string          `json:"rule"`
	Place           string          `json:"place"`
	Mode            string          `json:"mode"` // enforced, shadow or quota
	Asked           uint64          `json:"asked"`
	Refused         uint64          `json:"refused"` // in shadow: would have been
	Share           float64         `json:"share"`
	Since           *time.Time      `json:"since,omitempty"`
	Counters        uint64          `json:"counters,omitempty"`
	CountersRefused uint64          `json:"counters_refused,omitempty"`
	MostRefused     []CounterReport `json:"most_refused,omitempty"`
	Busiest         []CounterReport `json:"busiest,omitempty"`
	Limits          []LimitReport   `json:"limits,omitempty"`
}

// CounterReport is one of a rule's counters, such as a client's.
type CounterReport struct {
	Name      string  `json:"name"`
	Asked     uint64  `json:"asked,omitempty"`
	Refused   uint64  `json:"refused"`
	AtMost    uint64  `json:"refused_at_most,omitempty"` // where only about so many is known
	Share     float64 `json:"share,omitempty"`
	PerSecond uint32  `json:"peak_second,omitempty"`
	PerMinute uint32  `json:"peak_minute,omitempty"`
}

// LimitReport is a limit of a rule, and what others in its place would have done.
type LimitReport struct {
	Limit      string            `json:"limit"`
	Asked      uint64            `json:"asked,omitempty"`
	Refused    uint64            `json:"refused"`
	Share      float64           `json:"share"`
	Algorithms []AlgorithmReport `json:"algorithms,omitempty"`
	Tightest   *TightestReport   `json:"tightest,omitempty"`
}

// AlgorithmReport is an algorithm at the limit's number and window, as if there were no
// other limit.
type AlgorithmReport struct {
	Algorithm   string  `json:"algorithm"`
	Limit       string  `json:"limit,omitempty"`
	Own         bool    `json:"own"` // the rule has it
	Impossible  string  `json:"impossible,omitempty"`
	Refused     uint64  `json:"refused"`
	Share       float64 `json:"share"`
	Counters    uint64  `json:"counters_refused"`
	Held        uint64  `json:"held"`
	LongestHeld float64 `json:"longest_held_seconds"`
}

// TightestReport is the least limit that refuses no more than it may.
type TightestReport struct {
	Requests uint64  `json:"requests,omitempty"`
	Limit    string  `json:"limit,omitempty"`
	Refused  uint64  `json:"refused"`
	Share    float64 `json:"share"`
	None     string  `json:"none,omitempty"`
}

func limitText(l limiter.Limit) string { return rules.LimitText(l) }

func share(of, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return float64(of) / float64(all)
}

// Report tells what was found. No request may be added after it.
func (s *Simulation) Report() (*Report, error) {
	perSecond, perMinute := s.second.result(), s.minute.result()
	out := &Report{
		Title: "weir simulate", From: s.from.UTC(), To: s.to.UTC(), Requests: s.requests,
		PerSecond: &perSecond, PerMinute: &perMinute, AtMost: s.opts.AtMost,
	}
	for _, r := range s.replays {
		set, err := r.report(s.requests)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		out.Sets = append(out.Sets, *set)
	}
	return out, nil
}

// report makes the set's part, with the what-ifs.
func (r *replay) report(requests uint64) (*SetReport, error) {
	r.store, r.counters.numbers = nil, nil // what the what-ifs need room for
	defer r.hits.close()
	peaks, err := r.demand()
	if err != nil {
		return nil, err
	}
	tightest, err := r.tightest(r.opts.AtMost, peaks)
	if err != nil {
		return nil, err
	}
	if r.opts.Suggest {
		for i, s := range tightest {
			if s.found {
				r.limits[i].limit, r.limits[i].refused = scaled(s.limit, s.high), s.best.refused
			}
		}
	}
	algorithms, err := r.algorithms(peaks)
	if err != nil {
		return nil, err
	}
	set := &SetReport{
		Name: r.name, Version: r.set.Version(), Matched: r.matched, Refused: r.refused, Share: share(r.refused, requests),
		Shadow: r.shadow, Held: r.held, LongestHeld: r.longest.Seconds(), Series: r.series.result(),
	}
	for rule := range r.set.Rules("") {
		t := &r.tallies[rule.Index()]
		switch {
		case t.asked > 0:
			set.Rules = append(set.Rules, r.rule(rule, t, algorithms, tightest))
		case len(rule.Limits) > 0:
			set.Unmet++
		}
	}
	if r.opts.Suggest {
		set.Suggestion = suggestion(r.set, set.Rules)
	}
	return set, nil
}

func (r *replay) rule(rule *rules.Rule, t *tally, algorithms [][]AlgorithmReport, tightest []*search) RuleReport {
	out := RuleReport{
		Domain: rule.Domain, Rule: rule.Label(), Place: rule.Place(), Mode: ModeOf(rule.Shadow, rule.Quota), Asked: t.asked, Refused: t.refused,
		Share: share(t.refused, t.asked), Counters: t.counters, CountersRefused: t.countersRefused,
		MostRefused: r.ranked(&t.refusing), Busiest: r.ranked(&t.busy),
	}
	for _, i := range t.limits {
		l, s := r.limits[i], tightest[i]
		limit := LimitReport{Limit: limitText(l.limit), Asked: l.asked, Refused: l.refused, Share: share(l.refused, l.asked), Algorithms: algorithms[i], Tightest: &TightestReport{None: s.none}}
		if s.found {
			limit.Tightest = &TightestReport{Requests: s.high, Limit: limitText(scaled(s.limit, s.high)), Refused: s.best.refused, Share: share(s.best.refused, l.asked)}
		}
		out.Limits = append(out.Limits, limit)
	}
	return out
}

// ModeOf names a rule's mode.
func ModeOf(shadow, quota bool) string {
	switch {
	case shadow:
		return "shadow"
	case quota:
		return "quota"
	}
	return "enforced"
}

func (r *replay) ranked(of *ranking) []CounterReport {
	var out []CounterReport
	for _, item := range of.items {
		c := &r.counters.list[item.counter]
		out = append(out, CounterReport{
			Name: item.name, Asked: uint64(c.asked), Refused: uint64(c.refused), Share: share(uint64(c.refused), uint64(c.asked)),
			PerSecond: c.peakOfSeconds, PerMinute: c.peakOfMinutes,
		})
	}
	return out
}

// WriteJSON writes the report as an object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// suggestedWindows are those whose limits are looked for where there are no rules.
var suggestedWindows = []string{"1s", "1m", "1h"}

// SuggestionRules is a rule set to look for limits with: one counter for each address.
func SuggestionRules() string {
	var b strings.Builder
	b.WriteString("rules:\n  - name: by-address\n    match: {remote_address: \"*\"}\n    shadow_mode: true\n    limits:\n")
	for _, w := range suggestedWindows {
		fmt.Fprintf(&b, "      - {limit: %d, window: %s, algorithm: sliding_window_counter}\n", uint64(limiter.MaxRequests), w)
	}
	return b.String()
}

// suggestion is what to begin with: the limits that were found, in shadow.
func suggestion(set *rules.Set, reports []RuleReport) string {
	if len(reports) == 0 || len(set.Domains()) != 1 {
		return ""
	}
	var b strings.Builder
	b.WriteString("rules:\n  - name: by-address\n    match: {remote_address: \"*\"}\n    shadow_mode: true   # look at it live first: weir shadow\n    limits:\n")
	for i, l := range reports[0].Limits {
		if l.Tightest == nil || l.Tightest.Requests == 0 || i >= len(suggestedWindows) {
			continue
		}
		fmt.Fprintf(&b, "      - {limit: %d, window: %s, algorithm: sliding_window_counter}\n", l.Tightest.Requests, suggestedWindows[i])
	}
	return b.String()
}
