package study

import (
	"fmt"
	"math"
	"strings"
)

// A page has generated parts between these lines; NAME is one of Parts.
const (
	beginMark = "<!-- study NAME -->"
	endMark   = "<!-- end -->"
)

// Fill replaces what stands between the markers of a page by what the study found. A
// marker without an end, or of an unknown name, is an error.
func Fill(page string, r *Results) (string, error) {
	prefix, suffix, _ := strings.Cut(beginMark, "NAME")
	parts := r.Parts()
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(page, prefix)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, rest, named := strings.Cut(rest, suffix)
		old, after, closed := strings.Cut(rest, endMark)
		text, known := parts[name]
		switch {
		case !named || !closed || strings.Contains(name, "\n") || strings.Contains(old, prefix):
			return "", fmt.Errorf("the marker %s%.20s… has no %s", prefix, name, endMark)
		case !known:
			return "", fmt.Errorf("the marker of %q is of no part of the study", name)
		}
		out.WriteString(prefix + name + suffix + "\n\n" + text + "\n" + endMark)
		page = after
	}
}

// Parts are what the study found, as tables of Markdown, by the name of their marker.
func (r *Results) Parts() map[string]string {
	return map[string]string{
		"size":     r.size(),
		"short":    r.short(),
		"shapes":   r.shapeTable(),
		"wrong":    r.wrong(),
		"arrivals": r.arrivals(),
		"five":     r.five(),
		"worst":    r.worst(),
		"batches":  r.batches(),
		"room":     r.room(),
		"leases":   leases(),
		"memory":   r.memory(),
		"choose":   r.choose(),
	}
}

// Charts are the plots beside the page, by the name of their file.
func (r *Results) Charts() map[string]string {
	return map[string]string{
		"accuracy-wrong.svg": r.wrongChart(),
		"accuracy-worst.svg": r.worstChart(),
		"accuracy-room.svg":  r.roomChart(),
	}
}

func (r *Results) requests() (n int64) {
	for i := range r.AllBlocks.Shapes {
		n += r.AllBlocks.Shapes[i].Requests
	}
	return n
}

func (r *Results) size() string {
	return fmt.Sprintf("%s requests in %d kinds of traffic, in %d blocks with fixed seeds; counters in memory and in Redis %s.\n",
		thousands(r.requests()), len(r.AllBlocks.Shapes), r.Blocks, r.Memory.Redis)
}

func (r *Results) shapeTable() string {
	rows := [][]string{{"traffic", "is", "requests", "refused by the exact log"}}
	for i := range shapes {
		s := r.AllBlocks.find(shapes[i].name)
		rows = append(rows, []string{s.Name, shapes[i].what, thousands(s.Requests), percent(s.Requests-s.Outcomes[exactLog].Passed, s.Requests)})
	}
	return table(rows, 2)
}

func (r *Results) wrong() string {
	rows := [][]string{{"traffic", "wrongly allowed", "wrongly refused", "over the limit, by its own history", "refused early, by its own history", "passed, beside the log", "most in one window's time, limit 100 %"}}
	for i := range r.AllBlocks.Shapes {
		s := &r.AllBlocks.Shapes[i]
		o, log := &s.Outcomes[slidingCounter], &s.Outcomes[exactLog]
		rows = append(rows, []string{
			s.Name, percent(o.WronglyAllowed, s.Requests), percent(o.WronglyRefused, s.Requests), percent(o.Over, s.Requests), percent(o.Early, s.Requests),
			percent(o.Passed, log.Passed), percent(o.Most, s.Limit),
		})
	}
	return table(rows, 1)
}

func (r *Results) arrivals() string {
	rows := [][]string{{"traffic", "wrongly allowed", "wrongly refused", "estimate and true rate differ by, on average"}}
	for i := range r.AllBlocks.Shapes {
		s := &r.AllBlocks.Shapes[i]
		a := &s.Arrivals
		rows = append(rows, []string{s.Name, percent(a.WronglyAllowed, s.Requests), percent(a.WronglyRefused, s.Requests), percent(a.Difference, 1_000_000*s.Requests)})
	}
	rows = append(rows, []string{"Cloudflare's customers, 2017", "0.003 %, both together", "", "6 %"})
	return table(rows, 1)
}

// five is the share of requests that each algorithm lets pass, and the most in one
// window's time.
func (r *Results) five() string {
	rows := [][]string{append([]string{"traffic"}, codes(algorithmNames[:])...)}
	for i := range r.AllBlocks.Shapes {
		s := &r.AllBlocks.Shapes[i]
		row := []string{s.Name}
		for j := range s.Outcomes {
			row = append(row, fmt.Sprintf("%s, %s", percent(s.Outcomes[j].Passed, s.Requests), percent(s.Outcomes[j].Most, s.Limit)))
		}
		rows = append(rows, row)
	}
	return table(rows, 1)
}

// worstBounds are what the definitions say of a time s up to a window W, with a limit L;
// bound computes them.
var worstBounds = [algorithms]string{"L", "L × (1 + s / W), rounded up", "2 × L", "burst + L × s / W", "L × s / W, rounded up"}

func (r *Results) worst() string {
	rows := [][]string{{"algorithm", "at once", "in a tenth of the window", "in half of it", "in one window's time", "never more than, in a time s up to W"}}
	for i, curve := range r.Worst.Curves {
		row := []string{"`" + algorithmNames[i] + "`"}
		for _, at := range []int64{0, worstWindow / 10, worstWindow / 2, worstWindow} {
			row = append(row, fmt.Sprint(curve[at/curveStep]))
		}
		rows = append(rows, append(row, worstBounds[i]))
	}
	return table(rows, 1)
}

func (r *Results) batches() string {
	rows := [][]string{{"the batch comes so far into the window"}, {"of the second, after one that passed whole"}, {"of each, after many"}}
	for _, b := range r.Worst.Batches {
		for i, text := range []string{fmt.Sprintf("%d %%", b.Phase), fmt.Sprint(b.Second), fmt.Sprint(b.Passes)} {
			rows[i] = append(rows[i], text)
		}
	}
	return table(rows, 1)
}

func (r *Results) room() string {
	rows := [][]string{append(append([]string{"traffic", "limit ÷ average"}, codes(roomAlgorithms[:])...), "counter and exact log differ in")}
	for i := range r.AllBlocks.Room {
		x := &r.AllBlocks.Room[i]
		row := []string{x.Traffic, fmt.Sprintf("%g", float64(x.Limit)/100)}
		for _, n := range x.Refused {
			row = append(row, percent(n, x.Requests))
		}
		rows = append(rows, append(row, percent(x.Wrong, x.Requests)))
	}
	return table(rows, 1)
}

func leases() string {
	rows := [][]string{{"limit", "`lease`", "2 instances", "3 instances", "10 instances"}}
	for _, limit := range []int64{1_000, 100_000} {
		for _, lease := range []int64{10, 100, 1_000} {
			row := []string{thousands(limit), thousands(lease)}
			for _, instances := range []int64{2, 3, 10} {
				n := leaseEarly(instances, limit, lease)
				row = append(row, fmt.Sprintf("%s (%s)", thousands(n), percent(n, limit)))
			}
			rows = append(rows, row)
		}
	}
	return table(rows, 0)
}

// table is one of Markdown whose first row is its head; from a column on it is set to
// the right.
func table(rows [][]string, right int) string {
	var b strings.Builder
	for n, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if n > 0 {
			continue
		}
		for i := range row {
			if i < right {
				b.WriteString("|---")
			} else {
				b.WriteString("|---:")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// codes sets names as code, but not what is said beside them.
func codes(names []string) (out []string) {
	for _, name := range names {
		code, more, said := strings.Cut(name, ",")
		if said {
			more = "," + more
		}
		out = append(out, "`"+code+"`"+more)
	}
	return out
}

// percent is a share with two digits that say something, and 0 only where it is none.
func percent(n, of int64) string {
	if n == 0 || of == 0 {
		return "0"
	}
	p := 100 * float64(n) / float64(of)
	digits := 1
	if p < 10 {
		digits = 1 - int(math.Floor(math.Log10(p)))
	}
	text := fmt.Sprintf("%.*f", digits, p)
	return strings.TrimSuffix(text, ".0") + " %"
}

func thousands(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
