package report

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"weir/bench/load"
	"weir/bench/stats"
)

// A page has generated parts between these lines; NAME is a scenario's id, or
// machine, scripts, parts, model.
const (
	beginMark = "<!-- bench NAME -->"
	endMark   = "<!-- end -->"
)

// WritePage replaces what stands between the markers of a page by what was
// measured. Parts that were not measured stay as they are; a marker without an
// end, or of an unknown name, is an error, and nothing is written.
func (r *Results) WritePage(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	text, err := r.fill(string(src))
	if err != nil {
		return fmt.Errorf("page %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // a page is to be read by all
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// parts are what was measured, by the name of its marker.
func (r *Results) parts() map[string]string {
	parts := map[string]string{
		"machine": r.machine(), "scripts": r.scripts(), "parts": r.byPart(), "model": r.model(),
	}
	for i := range r.Scenarios {
		parts[r.Scenarios[i].ID] = r.Scenarios[i].Table()
	}
	return parts
}

func (r *Results) fill(page string) (string, error) {
	prefix, suffix, _ := strings.Cut(beginMark, "NAME")
	parts := r.parts()
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, prefix)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, ok := strings.Cut(rest, suffix)
		old, after, closed := strings.Cut(rest, endMark)
		if !ok || strings.Contains(name, "\n") || !closed || strings.Contains(old, prefix) {
			return "", fmt.Errorf("the marker %s%.20s… has no %s", prefix, name, endMark)
		}
		text, measured := parts[name]
		switch {
		case !measured && !slices.Contains(ScenarioIDs, name):
			return "", fmt.Errorf("the marker of %q is none of a part of the results", name)
		case measured && text != "":
			old = "\n\n" + strings.TrimSpace(text) + "\n\n"
		}
		out.WriteString(prefix + name + suffix + old + endMark)
		page = after
	}
}

// ScenarioIDs are the scenarios of the matrix, in its order.
var ScenarioIDs = []string{"stores", "algorithms", "descriptors", "zipf", "hot", "refused", "open", "cluster", "unlimited"}

func (r *Results) machine() string {
	m, s := r.Machine, r.Settings
	peer := ""
	if m.Peer != "" {
		peer = ", envoyproxy/ratelimit " + m.Peer
	}
	return fmt.Sprintf(`Measured on %s, commit %s (weir %s%s): %s, %d cores, %s, %s, Redis %s.
%d rounds of %v s for each row, %d requests in flight over %d connections; the whole run took %d minutes.`,
		m.Date, m.Commit, m.Weir, peer, m.CPU, m.Cores, m.Kernel, m.Go, m.Redis, s.Rounds, s.Seconds, s.InFlight, s.Conns, m.Minutes)
}

func (r *Results) scripts() string {
	if len(r.Scripts) == 0 {
		return ""
	}
	var hits []int
	head := []string{"algorithm"}
	for _, s := range r.Scripts {
		if !slices.Contains(hits, s.Hits) {
			hits = append(hits, s.Hits)
			head = append(head, strings.Replace(fmt.Sprintf("%d hits, µs", s.Hits), "1 hits", "1 hit", 1))
		}
	}
	rows := [][]string{head}
	for _, s := range r.Scripts {
		i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == s.Algorithm })
		if i < 0 {
			i = len(rows)
			rows = append(rows, append([]string{s.Algorithm}, slices.Repeat([]string{"–"}, len(hits))...))
		}
		rows[i][1+slices.Index(hits, s.Hits)] = fmt.Sprintf("%.1f", s.Micros)
	}
	return markdown(rows)
}

// byPart takes a decision apart by subtraction, round by round.
func (r *Results) byPart() string {
	s := r.Find("unlimited")
	if s == nil {
		return ""
	}
	bare, memory, redis := s.Find("weir-memory, no limit"), s.Find("weir-memory, limited"), s.Find("weir-redis, limited")
	if bare == nil || memory == nil || redis == nil || !bare.CPUKnown {
		return ""
	}
	server := func(x load.Result) float64 { return x.ServerCPU }
	minus := func(a, b *Row) string {
		as, bs := a.column(server), b.column(server)
		var rest []float64
		for i := range min(len(as), len(bs)) {
			rest = append(rest, as[i]-bs[i])
		}
		return fmt.Sprintf("%.1f", stats.Median(rest))
	}
	return markdown([][]string{
		{"part", "CPU µs/request"},
		{"gRPC, decoding, matching, an answer with nothing in it", fmt.Sprintf("%.1f", bare.ServerCPU())},
		{"deciding in memory, status and headers of the answer", minus(memory, bare)},
		{"Redis instead of memory: hashing the key, the client, system calls", minus(redis, memory)},
		{"Redis itself", fmt.Sprintf("%.1f", redis.RedisCPU())},
	})
}

// model is what the measured costs come to where cores are not shared.
func (r *Results) model() string {
	c := r.Find("cluster")
	if c == nil {
		return ""
	}
	rows := [][]string{{"", "server, µs of CPU a decision (S)", "Redis, µs of CPU a decision (R)", "one server core at most", "the masters at most", "server cores that the masters can feed"}}
	for i := range c.Rows {
		row := &c.Rows[i]
		s, redis := row.ServerCPU(), row.RedisCPU()
		if !row.CPUKnown || s == 0 || redis == 0 {
			continue
		}
		masters := float64(max(1, row.Masters))
		rows = append(rows, []string{
			row.Label, fmt.Sprintf("%.1f", s), fmt.Sprintf("%.1f", redis),
			thousands(1e6/s) + "/s", thousands(masters*1e6/redis) + "/s", fmt.Sprintf("%.1f", masters*s/redis),
		})
	}
	if len(rows) == 1 {
		return ""
	}
	return markdown(rows)
}
