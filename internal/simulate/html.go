package simulate

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed page.html
var page string

// WriteHTML writes the report as one page that needs nothing else: no script, no style,
// no font, no network. All that logs and rules say is escaped by the template.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"percent": percent, "clock": clock, "seconds": seconds, "chart": chart, "bar": bar, "most": most, "since": since,
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}
	return t.Execute(w, view{r})
}

// view is what the page shows.
type view struct{ *Report }

// Live tells of the report of a server.
func (v view) Live() bool { return v.PerSecond == nil }

// Several tells of rule sets to be compared.
func (v view) Several() bool { return len(v.Sets) > 1 }

// Line says when requests came, and how many.
func (v view) Line() string { return v.span() + "; " + v.peaks() }

// Worst is the largest share of the sets, which the longest bar stands for.
func (v view) Worst() float64 {
	worst := 0.0
	for i := range v.Sets {
		worst = max(worst, v.Sets[i].Share)
	}
	return worst
}

// Sizes of the chart, in its own units.
const (
	chartWidth  = 720
	chartHeight = 160
)

// column is a bucket as the chart has it: passed above refused and would-be refused.
type column struct {
	X, Width                float64
	PassedY, PassedHeight   float64
	ShadowY, ShadowHeight   float64
	RefusedY, RefusedHeight float64
	Title                   string
}

// plot is the chart of a series.
type plot struct {
	Columns    []column
	Most       uint64
	From, To   string
	BoxW, BoxH int
}

func chart(buckets []Bucket) *plot {
	if len(buckets) == 0 {
		return nil
	}
	p := &plot{From: clock(buckets[0].At), To: clock(buckets[len(buckets)-1].At), BoxW: chartWidth, BoxH: chartHeight}
	for _, b := range buckets {
		p.Most = max(p.Most, b.Requests)
	}
	width := float64(chartWidth) / float64(len(buckets))
	scale := float64(chartHeight) / float64(max(1, p.Most))
	for i, b := range buckets {
		shadow := min(b.Shadow, b.Requests-b.Refused)
		c := column{
			X: round(float64(i) * width), Width: round(max(width-.5, .5)),
			RefusedHeight: round(float64(b.Refused) * scale), ShadowHeight: round(float64(shadow) * scale),
			PassedHeight: round(float64(b.Requests-b.Refused-shadow) * scale),
			Title:        fmt.Sprintf("%s: %d requests, %d refused", clock(b.At), b.Requests, b.Refused),
		}
		if b.Shadow > 0 {
			c.Title += fmt.Sprintf(", %d in shadow", b.Shadow)
		}
		c.RefusedY = round(chartHeight - c.RefusedHeight)
		c.ShadowY = round(c.RefusedY - c.ShadowHeight)
		c.PassedY = round(c.ShadowY - c.PassedHeight)
		p.Columns = append(p.Columns, c)
	}
	return p
}

func round(x float64) float64 { return math.Round(x*100) / 100 }

// bar is how long the bar of a share is, in hundredths of the longest.
func bar(share, longest float64) float64 {
	if longest <= 0 {
		return 0
	}
	return round(100 * share / longest)
}

// most is the largest share of the algorithms.
func most(algorithms []AlgorithmReport) float64 {
	largest := 0.0
	for i := range algorithms {
		largest = max(largest, algorithms[i].Share)
	}
	return largest
}
