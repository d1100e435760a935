package report

import (
	"fmt"
	"html"
	"math"
	"os"
	"strings"
)

// Sizes of the chart, in its own units.
const (
	chartWidth = 880
	labelWidth = 250
	barsWidth  = 520
	rowHeight  = 22
	barHeight  = 14
	panelSpace = 46 // above a panel, for its title
)

const chartStyle = `
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 }
    .small { font-size: 11px; fill: #57606a }
    .grid { stroke: #d0d7de }
    .server { fill: #2f6fb3 }
    .redis { fill: #d07a2d }
    .ground { fill: #ffffff }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .grid { stroke: #3d444d }
      .server { fill: #5a9be0 }
      .redis { fill: #e39a56 }
      .ground { fill: #0d1117 }
    }
  `

// WriteChart draws the CPU a request costs, of server and of Redis, as SVG.
func (r *Results) WriteChart(path string) error {
	if err := os.WriteFile(path, []byte(r.chart()), 0o644); err != nil { //nolint:gosec // a chart is to be seen by all
		return fmt.Errorf("chart: %w", err)
	}
	return nil
}

// chart has a panel for each scenario in which CPU was measured, all on one
// scale.
func (r *Results) chart() string {
	var b strings.Builder
	y, most := 64, 0.0
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Rows {
			row := &r.Scenarios[i].Rows[j]
			most = max(most, row.ServerCPU()+row.RedisCPU())
		}
	}
	step := gridStep(most)
	scale := barsWidth / max(step, math.Ceil(most/step)*step)
	for i := range r.Scenarios {
		y = panel(&b, &r.Scenarios[i], y, scale, step)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="CPU time a request costs, by server, scenario and part">
  <style>%s</style>
  <rect class="ground" width="100%%" height="100%%" rx="6"/>
  <text class="title" x="16" y="26">CPU time a request costs (µs, the median round; shorter is better)</text>
  <rect class="server" x="16" y="38" width="12" height="12"/><text class="small" x="34" y="48">server</text>
  <rect class="redis" x="86" y="38" width="12" height="12"/><text class="small" x="104" y="48">Redis</text>
  <text class="small" x="150" y="48">%s</text>
%s</svg>
`, chartWidth, y+16, chartStyle, html.EscapeString(fmt.Sprintf("%s, %d cores, %s", r.Machine.CPU, r.Machine.Cores, r.Machine.Date)), b.String())
}

// gridStep is a round number, of which the greatest value has five or so.
func gridStep(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, m := range []float64{1, 2, 5} {
		if most/(m*power) <= 6 {
			return m * power
		}
	}
	return 10 * power
}

// panel draws a scenario below y and returns where it ends.
func panel(b *strings.Builder, s *Scenario, y int, scale, step float64) int {
	bars := 0
	for i := range s.Rows {
		if s.Rows[i].CPUKnown {
			bars++
		}
	}
	if bars == 0 {
		return y
	}
	top := y + panelSpace
	bottom := top + bars*rowHeight
	fmt.Fprintf(b, "  <text class=\"title\" x=\"16\" y=\"%d\">%s</text>\n", top-22, html.EscapeString(s.Title))
	for x := 0.0; x*scale <= barsWidth+0.5; x += step {
		at := labelWidth + x*scale
		fmt.Fprintf(b, "  <line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text class=\"small\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", at, at, top-4, bottom, at, top-8, x)
	}
	for i := range s.Rows {
		row := &s.Rows[i]
		if !row.CPUKnown {
			continue
		}
		server, redis := row.ServerCPU()*scale, row.RedisCPU()*scale
		fmt.Fprintf(b, "  <text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", labelWidth-10, top+12, html.EscapeString(row.Label))
		fmt.Fprintf(b, "  <rect class=\"server\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", labelWidth, top+1, server, barHeight)
		if row.HasRedis {
			fmt.Fprintf(b, "<rect class=\"redis\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", labelWidth+server, top+1, redis, barHeight)
		}
		fmt.Fprintf(b, "<text class=\"small\" x=\"%.1f\" y=\"%d\">%.1f</text>\n", labelWidth+server+redis+6, top+12, row.ServerCPU()+row.RedisCPU())
		top += rowHeight
	}
	return bottom
}
