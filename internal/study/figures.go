package study

import "fmt"

// The charts, and what stands beside them.

func (r *Results) wrongChart() string {
	var names []string
	dots := make([][]float64, 3)
	share := func(n, of int64) float64 { return 100 * float64(n) / float64(of) }
	for i := range r.AllBlocks.Shapes {
		s := &r.AllBlocks.Shapes[i]
		o := &s.Outcomes[slidingCounter]
		names = append(names, s.Name)
		dots[0] = append(dots[0], share(o.WronglyAllowed, s.Requests))
		dots[1] = append(dots[1], share(o.WronglyRefused, s.Requests))
		dots[2] = append(dots[2], share(s.Arrivals.WronglyAllowed+s.Arrivals.WronglyRefused, s.Requests))
	}
	return dotChart("The sliding window counter: decisions that an exact log of the same requests takes otherwise",
		axis{label: "share of all requests", ticks: percents(4), log: true}, names, dots,
		[]string{"wrongly allowed: the log refused it", "wrongly refused: the log let it pass", "both together, where every request counts, refused or not: what Cloudflare asked"},
		tick{0.003, "Cloudflare, 2017: 0.003 %"})
}

func (r *Results) worstChart() string {
	x := axis{label: "within so many windows, wherever they begin"}
	for i := range 7 {
		x.ticks = append(x.ticks, tick{float64(i) / 4, fmt.Sprintf("%g", float64(i)/4)})
	}
	y := axis{label: "× the limit passes at most"}
	for i := range 7 {
		y.ticks = append(y.ticks, tick{float64(i) / 2, fmt.Sprintf("%g", float64(i)/2)})
	}
	var lines []series
	for i, curve := range r.Worst.Curves {
		l := series{name: algorithmNames[i], style: i}
		for step, n := range curve {
			l.points = append(l.points, [2]float64{float64(int64(step)*curveStep) / float64(worstWindow), float64(n) / worstLimit})
		}
		lines = append(lines, l)
	}
	return lineChart("The most that passes, by an attack that knows the algorithm and the clock", x, y, lines)
}

func (r *Results) roomChart() string {
	x := axis{label: "limit ÷ what the client sends in a window on average"}
	for _, limit := range []float64{0.8, 1, 1.5, 2, 2.5, 3, 3.5, 4} {
		x.ticks = append(x.ticks, tick{limit, fmt.Sprintf("%g", limit)})
	}
	lines := make([]series, len(roomAlgorithms))
	styles := [roomCompared]int{roomFixed: fixedWindow, roomCounter: slidingCounter, roomLog: exactLog, roomTries: leakyBucket, roomToken: tokenBucket}
	for i, name := range roomAlgorithms {
		lines[i].name, lines[i].style = name, styles[i]
	}
	for i := range r.AllBlocks.Room {
		result := &r.AllBlocks.Room[i]
		if result.Traffic != "bursty" {
			continue
		}
		for j, n := range result.Refused {
			lines[j].points = append(lines[j].points, [2]float64{float64(result.Limit) / 100, 100 * float64(n) / float64(result.Requests)})
		}
	}
	return lineChart("How much of bursty traffic is refused, by the room that the limit leaves",
		x, axis{label: "refused, of all requests", ticks: percents(3), log: true}, lines)
}

// choose is what the study says of each algorithm, for who chooses one.
func (r *Results) choose() string {
	rows := [][]string{{"algorithm, with a limit of 100", "at once, at most", "in one window's time, at most", "bytes a counter: memory; Redis", "refused of bursty clients, limit 1.5 × and 2 × their average", "of clients that pace themselves to the limit", "of whole limits sent at once each minute"}}
	for _, x := range []struct{ outcome, room int }{
		{fixedWindow, roomFixed}, {slidingCounter, roomCounter}, {exactLog, roomLog}, {exactLog, roomTries}, {tokenBucket, roomToken}, {leakyBucket, -1},
	} {
		name := algorithmNames[x.outcome]
		row := []string{"`" + name + "`", fmt.Sprint(r.Worst.Curves[x.outcome][0]), fmt.Sprint(r.Worst.Curves[x.outcome][worstWindow/curveStep]), r.Memory.bytes(name)}
		bursty := "as `token_bucket`, the others wait"
		if x.room >= 0 {
			bursty = r.refusedOfBursty(x.room, 150) + " and " + r.refusedOfBursty(x.room, 200)
		}
		row = append(row, bursty, r.refusedOf("paced", x.outcome), r.refusedOf("batch", x.outcome))
		if x.room == roomTries {
			row[0], row[5], row[6] = codes(roomAlgorithms[:])[roomTries], "–", "–"
		}
		rows = append(rows, row)
	}
	return table(rows, 1)
}

func (r *Results) refusedOf(name string, algorithm int) string {
	s := r.AllBlocks.find(name)
	return percent(s.Requests-s.Outcomes[algorithm].Passed, s.Requests)
}

func (r *Results) refusedOfBursty(algorithm int, limit uint64) string {
	x := r.AllBlocks.findRoom("bursty", limit)
	return percent(x.Refused[algorithm], x.Requests)
}
