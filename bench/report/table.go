package report

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"weir/bench/load"
	"weir/bench/stats"
)

// Table is a scenario as a table of Markdown, its columns aligned for a
// terminal too.
func (s *Scenario) Table() string {
	head := []string{"", "requests/s", "p50", "p90", "p99", "p99.9", "CPU µs/request, server + Redis", "MB resident, server + Redis"}
	for _, against := range s.Against {
		head = append(head, "CPU, times "+against, "requests/s, times", "p99, times")
	}
	rows := [][]string{append(head, "counted right")}
	for i := range s.Rows {
		rows = append(rows, s.cells(&s.Rows[i]))
	}
	text := markdown(rows)
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Note != "" {
			text += "\n" + r.Label + ": " + r.Note + "\n"
		}
	}
	for _, why := range s.Skipped {
		text += "\nNot run: " + why + "\n"
	}
	return text
}

func (s *Scenario) cells(r *Row) []string {
	latency := func(f func(load.Result) time.Duration) string {
		return milliseconds(r.median(func(x load.Result) float64 { return float64(f(x)) }))
	}
	cells := []string{
		r.Label,
		thousands(r.median(load.Result.Rate)),
		latency(func(x load.Result) time.Duration { return x.P50 }),
		latency(func(x load.Result) time.Duration { return x.P90 }),
		latency(func(x load.Result) time.Duration { return x.P99 }),
		latency(func(x load.Result) time.Duration { return x.P999 }),
		"–", megabytes(r.ServerRSS),
	}
	if r.CPUKnown {
		cells[6] = fmt.Sprintf("%.1f", r.ServerCPU())
	}
	if r.HasRedis && r.CPUKnown {
		cells[6] += fmt.Sprintf(" + %.1f", r.RedisCPU())
		cells[7] += " + " + megabytes(r.RedisRSS)
	}
	for _, against := range s.Against {
		cells = append(cells, r.compare(s.Find(against))...)
	}
	return append(cells, r.counted())
}

// compare divides round by round: CPU, throughput, p99.
func (r *Row) compare(other *Row) []string {
	if other == nil || other == r {
		return []string{"–", "–", "–"}
	}
	ratio := func(f func(load.Result) float64) string { return spread(stats.Ratios(r.column(f), other.column(f))) }
	cells := []string{"–", ratio(load.Result.Rate), ratio(func(x load.Result) float64 { return float64(x.P99) })}
	if r.CPUKnown && other.CPUKnown {
		cells[0] = ratio(load.Result.CPU)
	}
	return cells
}

func (r *Row) counted() string {
	var failed int64
	for _, x := range r.Rounds {
		failed += x.Failed
	}
	text := r.Unchecked
	if c := r.Counted; c != nil {
		if text = fmt.Sprintf("%d of %d", c.Right, c.Looked); c.Silent {
			text = "does not tell"
		}
	}
	if r.Standby > 0 {
		text += fmt.Sprintf("; %s decided without Redis, which was late", thousands(float64(r.Standby)))
	}
	if failed > 0 {
		text += fmt.Sprintf("; %d requests failed", failed)
	}
	return text
}

func spread(s stats.Spread) string {
	if s == (stats.Spread{}) {
		return "–"
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max)
}

func thousands(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func milliseconds(ns float64) string {
	ms := ns / 1e6
	return fmt.Sprintf("%.*f ms", max(0, min(2, 1-int(math.Floor(math.Log10(max(ms, 0.01)))))), ms)
}

func megabytes(bytes int64) string {
	if bytes == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", float64(bytes)/1e6)
}

// markdown is a table whose first row is its head; what is not in the first
// column is set to the right.
func markdown(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 2)
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprintf(&b, "| %s%s", cell, pad)
			} else {
				fmt.Fprintf(&b, " | %s%s", pad, cell)
			}
		}
		b.WriteString(" |\n")
		if n == 0 {
			for i, w := range widths {
				if i == 0 {
					b.WriteString("|" + strings.Repeat("-", w+2))
				} else {
					b.WriteString("|" + strings.Repeat("-", w+1) + ":")
				}
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}
