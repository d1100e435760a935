package study

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestChartsAreXMLThatAnyReaderCanSee(t *testing.T) {
	r := readResults(t)
	for name, chart := range r.Charts() {
		d := xml.NewDecoder(strings.NewReader(chart))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && (e.Name.Local == "script" || e.Name.Local == "image") {
				t.Errorf("%s has a %s", name, e.Name.Local)
			}
		}
		for _, want := range []string{`aria-label="`, "prefers-color-scheme: dark", `viewBox="0 0 880 `} {
			if !strings.Contains(chart, want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
		if strings.Contains(chart, "NaN") || strings.Contains(chart, "Inf") {
			t.Errorf("%s has a place that is none", name)
		}
	}
}

func TestAnAxisHasItsEndsAtItsEnds(t *testing.T) {
	linear := axis{ticks: []tick{{at: 1}, {at: 3}}}
	log := axis{ticks: []tick{{at: 0.01}, {at: 1}}, log: true}
	for _, c := range []struct {
		remark      string
		axis        *axis
		value, want float64
	}{
		{"the least", &linear, 1, 0},
		{"the middle", &linear, 2, 50},
		{"the greatest", &linear, 3, 100},
		{"beyond", &linear, 4, 100},
		{"the least, by logarithms", &log, 0.01, 0},
		{"a tenth of the greatest", &log, 0.1, 50},
		{"nothing has no logarithm, and lies at the beginning", &log, 0, 0},
	} {
		if got := c.axis.place(c.value, 100); got < c.want-0.001 || got > c.want+0.001 {
			t.Errorf("%s: %g, want %g", c.remark, got, c.want)
		}
	}
}

func TestNamesInChartsAreEscaped(t *testing.T) {
	x := axis{label: "a<b", ticks: []tick{{0, "<"}, {1, "&"}}}
	chart := lineChart(`"<&>"`, x, x, []series{{name: "<script>", points: [][2]float64{{0, 0}}}})
	if strings.Contains(chart, "<script") || strings.Contains(chart, "a<b") {
		t.Error(chart)
	}
}
