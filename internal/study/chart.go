package study

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Sizes of charts, in their own units.
const (
	chartWidth  = 880
	plotTop     = 56
	plotHeight  = 330
	legendSpace = 20 // a line of it
	rowHeight   = 36
)

const chartStyle = `
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600 }
    .small { font-size: 11px; fill: #57606a }
    .grid { stroke: #d0d7de }
    .known { stroke: #57606a; stroke-dasharray: 2 3 }
    .ground { fill: #ffffff }
    .line { fill: none; stroke-width: 2.2 }
    .c0 { stroke: #1a7f37; fill: #1a7f37 } .c1 { stroke: #0969da; fill: #0969da } .c2 { stroke: #cf222e; fill: #cf222e }
    .c3 { stroke: #9a6700; fill: #9a6700 } .c4 { stroke: #8250df; fill: #8250df }
    .line.c0, .line.c1, .line.c2, .line.c3, .line.c4 { fill: none }
    .line.c1 { stroke-dasharray: 9 4 } .line.c2 { stroke-dasharray: 4 3 } .line.c3 { stroke-dasharray: 12 3 3 3 } .line.c4 { stroke-dasharray: 2 4 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .grid { stroke: #3d444d }
      .known { stroke: #9198a1 }
      .ground { fill: #0d1117 }
      .c0 { stroke: #3fb950; fill: #3fb950 } .c1 { stroke: #58a6ff; fill: #58a6ff } .c2 { stroke: #ff7b72; fill: #ff7b72 }
      .c3 { stroke: #d29922; fill: #d29922 } .c4 { stroke: #bc8cff; fill: #bc8cff }
    }
  `

// axis maps values to places. Of a logarithmic one, what is under its least tick lies at
// its beginning.
type axis struct {
	label string
	ticks []tick // from the least to the greatest, which are its ends
	log   bool
}

type tick struct {
	at    float64
	label string
}

// place is where a value lies on an axis that is so long.
func (a *axis) place(value, length float64) float64 {
	low, high := a.ticks[0].at, a.ticks[len(a.ticks)-1].at
	value = min(max(value, low), high)
	if a.log {
		return length * math.Log(value/low) / math.Log(high/low)
	}
	return length * (value - low) / (high - low)
}

// percents are the ticks of a logarithmic axis of shares in percent, from 10^-from on.
func percents(from int) (ticks []tick) {
	for e := -from; e <= 2; e++ {
		at := math.Pow10(e)
		ticks = append(ticks, tick{at, fmt.Sprintf("%g %%", at)})
	}
	ticks[0].label = "≤ " + ticks[0].label
	return ticks
}

// series is a line of a chart.
type series struct {
	name   string
	style  int // c0 to c4: of an algorithm the same in all charts
	points [][2]float64
}

// lineChart draws lines, named below the plot. Lines that lie on each other are told
// apart by their dashes.
func lineChart(title string, x, y axis, lines []series) string {
	const left, width = 84.0, chartWidth - 84.0 - 30
	bottom := float64(plotTop + plotHeight)
	var b strings.Builder
	for _, t := range x.ticks {
		at := left + x.place(t.at, width)
		grid(&b, at, at, plotTop, bottom)
		label(&b, at, bottom+16, "middle", t.label)
	}
	for _, t := range y.ticks {
		at := bottom - y.place(t.at, plotHeight)
		grid(&b, left, left+width, at, at)
		label(&b, left-8, at+4, "end", t.label)
	}
	label(&b, left+width/2, bottom+36, "middle", x.label)
	label(&b, 16, plotTop-12, "start", y.label)
	for i, l := range lines {
		at := bottom + 60 + float64(i*legendSpace)
		fmt.Fprintf(&b, "  <line class=\"line c%d\" x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\"/><text x=\"%g\" y=\"%g\">%s</text>\n",
			l.style, left, left+40, at-4, at-4, left+50, at, html.EscapeString(l.name))
		fmt.Fprintf(&b, "  <polyline class=\"line c%d\" points=\"", l.style)
		for n, p := range l.points {
			if n > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%.1f,%.1f", left+x.place(p[0], width), bottom-y.place(p[1], plotHeight))
		}
		b.WriteString("\"/>\n")
	}
	return frame(title, int(bottom)+64+len(lines)*legendSpace, b.String())
}

// dotChart draws a row for each name, with a dot of each series at its value; known is
// a value that others have published, with what to say of it.
func dotChart(title string, x axis, names []string, dots [][]float64, dotNames []string, known tick) string {
	const left, width = 110.0, chartWidth - 110.0 - 30
	bottom := float64(plotTop + 14 + len(names)*rowHeight)
	var b strings.Builder
	for _, t := range x.ticks {
		at := left + x.place(t.at, width)
		grid(&b, at, at, plotTop, bottom)
		label(&b, at, bottom+16, "middle", t.label)
	}
	at := left + x.place(known.at, width)
	fmt.Fprintf(&b, "  <line class=\"known\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%.1f\"/>\n", at, at, plotTop-6, bottom)
	label(&b, at, plotTop-10, "middle", known.label)
	label(&b, left+width/2, bottom+36, "middle", x.label)
	for row, name := range names {
		y := plotTop + 14 + float64(row*rowHeight) + rowHeight/2 - 7
		fmt.Fprintf(&b, "  <text x=\"%g\" y=\"%g\" text-anchor=\"end\">%s</text>\n", left-12, y+4, html.EscapeString(name))
		grid(&b, left, left+width, y, y)
		for i := range dots {
			dot(&b, i, left+x.place(dots[i][row], width), y+float64(8*i-4*(len(dots)-1))) // side by side where values are alike
		}
	}
	for i, name := range dotNames {
		y := bottom + 60 + float64(i*legendSpace)
		dot(&b, i, left+6, y-4)
		fmt.Fprintf(&b, "  <text x=\"%g\" y=\"%g\">%s</text>\n", left+20, y, html.EscapeString(name))
	}
	return frame(title, int(bottom)+64+len(dotNames)*legendSpace, b.String())
}

// dot is a circle, a square or a diamond, so that they are told apart without colours too.
func dot(b *strings.Builder, i int, x, y float64) {
	switch i {
	case 0:
		fmt.Fprintf(b, "  <circle class=\"c1\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", x, y)
	case 1:
		fmt.Fprintf(b, "  <rect class=\"c2\" x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\"/>\n", x-4, y-4)
	default:
		fmt.Fprintf(b, "  <path class=\"c3\" d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\"/>\n", x, y-6)
	}
}

func grid(b *strings.Builder, x1, x2, y1, y2 float64) {
	fmt.Fprintf(b, "  <line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x1, x2, y1, y2)
}

func label(b *strings.Builder, x, y float64, anchor, text string) {
	fmt.Fprintf(b, "  <text class=\"small\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(text))
}

func frame(title string, height int, body string) string {
	title = html.EscapeString(title)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
  <style>%s</style>
  <rect class="ground" width="100%%" height="100%%" rx="6"/>
  <text class="title" x="16" y="26">%s</text>
%s</svg>
`, chartWidth, height, title, chartStyle, title, body)
}
