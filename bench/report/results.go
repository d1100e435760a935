// Package report keeps what a benchmark measured, and writes it as JSON, as
// tables into a page between markers, and as a chart.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"weir/bench/load"
	"weir/bench/stats"
)

// Results is one run of the benchmark.
type Results struct {
	Machine   Machine    `json:"machine"`
	Settings  Settings   `json:"settings"`
	Scenarios []Scenario `json:"scenarios"`
	Scripts   []Script   `json:"scripts,omitempty"`
}

// Machine is what it ran on, and what ran.
type Machine struct {
	Date    string `json:"date"` // of the end, UTC
	CPU     string `json:"cpu"`
	Cores   int    `json:"cores"` // that the benchmark may use
	Kernel  string `json:"kernel"`
	Go      string `json:"go"`
	Redis   string `json:"redis"`
	Peer    string `json:"envoyproxy_ratelimit"` // the version of envoyproxy/ratelimit; empty: it did not run
	Weir    string `json:"weir"`                 // what `weir version` says
	Commit  string `json:"commit"`
	Minutes int    `json:"minutes"` // that the run took
}

// Settings is how long and how hard.
type Settings struct {
	Rounds   int     `json:"rounds"`
	Seconds  float64 `json:"seconds"` // of one drive
	InFlight int     `json:"in_flight"`
	Conns    int     `json:"connections"`
}

// Scenario is one question, put to several servers in turn.
type Scenario struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Against []string `json:"against"` // the rows that the others are compared with
	Rows    []Row    `json:"rows"`
	Skipped []string `json:"skipped,omitempty"` // what could not run, and why
}

// Row is one server under one load, with a result for each round.
type Row struct {
	Label     string        `json:"label"`
	Server    string        `json:"server"`
	Rounds    []load.Result `json:"rounds"`
	Counted   *load.Counted `json:"counted,omitempty"`      // nil: the limit under this load cannot be looked at
	ServerRSS int64         `json:"server_rss,omitempty"`   // bytes resident when the scenario was over
	RedisRSS  int64         `json:"redis_rss,omitempty"`    // the same of Redis, all masters together
	Unchecked string        `json:"unchecked,omitempty"`    // why not
	Standby   int64         `json:"standby,omitempty"`      // hits that the failure policy decided, because Redis was late: all of this server in the scenario
	CPUKnown  bool          `json:"cpu_known"`              // false: not on Linux
	HasRedis  bool          `json:"has_redis"`              // false: counters are in the server
	Note      string        `json:"note,omitempty"`         // to be said of the row
	Masters   int           `json:"masters,omitempty"`      // of a Redis Cluster
	Rate      int           `json:"offered_rate,omitempty"` // requests a second, open loop
}

// Script is what Redis itself accounts for one call of a script.
type Script struct {
	Algorithm string  `json:"algorithm"`
	Hits      int     `json:"hits"`
	Micros    float64 `json:"us"`
}

func (r *Row) column(f func(load.Result) float64) []float64 {
	var out []float64
	for _, x := range r.Rounds {
		out = append(out, f(x))
	}
	return out
}

func (r *Row) median(f func(load.Result) float64) float64 { return stats.Median(r.column(f)) }

// ServerCPU and RedisCPU are medians, µs a request.
func (r *Row) ServerCPU() float64 {
	return r.median(func(x load.Result) float64 { return x.ServerCPU })
}

// RedisCPU is the median of Redis's µs a request, of all masters together.
func (r *Row) RedisCPU() float64 { return r.median(func(x load.Result) float64 { return x.RedisCPU }) }

// Find is the row of that label; nil: there is none.
func (s *Scenario) Find(label string) *Row {
	for i := range s.Rows {
		if s.Rows[i].Label == label {
			return &s.Rows[i]
		}
	}
	return nil
}

// Find is the scenario of that id; nil: it did not run.
func (r *Results) Find(id string) *Scenario {
	for i := range r.Scenarios {
		if r.Scenarios[i].ID == id {
			return &r.Scenarios[i]
		}
	}
	return nil
}

// ReadFile reads results that WriteFile wrote.
func ReadFile(path string) (*Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("results in %s: %w", path, err)
	}
	return &r, nil
}

// WriteFile writes the results as JSON, each drive on a line of its own.
func (r *Results) WriteFile(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	text := b.Bytes()
	for _, begin := range []string{`{"requests":`, `{"label":`, `{"id":`, `{"algorithm":`, `"settings":`, `"scenarios":`, `"scripts":`} {
		text = bytes.ReplaceAll(text, []byte(begin), []byte("\n"+begin))
	}
	if err := os.WriteFile(path, text, 0o644); err != nil { //nolint:gosec // results are to be read by all
		return fmt.Errorf("results: %w", err)
	}
	return nil
}
