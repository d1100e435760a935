package study

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What the page says of each algorithm's worst case: no traffic gets more through, and
// an attack gets as much.

func TestNoTrafficGetsMoreThroughThanTheBounds(t *testing.T) {
	const window = 1000 // µs: the shortest there is, so that its every instant is met
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		limit := 1 + r.Int64N(6)
		times := crowded(r, window)
		for a, l := range limits(uint64(limit), window) {
			c := newCounter(l)
			var passes []int64
			for _, at := range times {
				if d := c.ask(at); d.Allowed {
					passes = append(passes, at+d.Delay.Microseconds())
				}
			}
			for _, length := range []int64{2, 10, 100, 499, 500, 501, 900, 999, window} {
				if got, most := mostWithin(passes, length), bound(a, limit, window, length); got > most {
					t.Errorf("seed %d, %s: with a limit of %d, %d passed in less than %d of %d µs; the bound is %d", seed, algorithmNames[a], limit, got, length, window, most)
				}
			}
		}
	}
}

// crowded is requests at random times, and crowds of them around windows' ends.
func crowded(r *rand.Rand, window int64) (times []int64) {
	for range 100 {
		at := r.Int64N(20 * window)
		if r.IntN(3) > 0 {
			at = max(0, at/window*window+r.Int64N(9)-4)
		}
		for range 1 + r.IntN(8) {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	return times
}

func TestAnAttackGetsAsMuchThroughAsTheBoundsSay(t *testing.T) {
	curves := worstCases().Curves
	for _, c := range []struct {
		algorithm       int
		atOnce, inATime int64 // in a window's time
		remark          string
	}{
		{exactLog, 100, 100, "never more than the limit"},
		{slidingCounter, 100, 200, "the last window's share is cut to a whole number, and is nothing in the end"},
		{fixedWindow, 200, 200, "both sides of an end"},
		{tokenBucket, 100, 199, "burst + limit, less the token that comes when the time is over"},
		{leakyBucket, 1, 100, "they depart one by one"},
	} {
		curve := curves[c.algorithm]
		if got := curve[0]; got != c.atOnce {
			t.Errorf("%s, at once: %d, want %d", algorithmNames[c.algorithm], got, c.atOnce)
		}
		if got := curve[worstWindow/curveStep]; got != c.inATime {
			t.Errorf("%s, in a window's time: %d, want %d: %s", algorithmNames[c.algorithm], got, c.inATime, c.remark)
		}
		for i, got := range curve[:worstWindow/curveStep+1] {
			if most := bound(c.algorithm, worstLimit, worstWindow, max(2, int64(i)*curveStep)); got > most || got < most-1 {
				t.Errorf("%s, in %d/40 of the window: %d, and the bound is %d", algorithmNames[c.algorithm], i, got, most)
			}
		}
	}
}

// The page derives what a counter lets pass of a batch: limit × x at first, x the share
// of the window that has gone by; limit ÷ (2 − x) once it has settled.
func TestBatchesPassAsThePageDerives(t *testing.T) {
	for _, b := range batches() {
		x := float64(b.Phase) / 100
		if want := 100 * x; float64(b.Second) < want || float64(b.Second) > want+1 {
			t.Errorf("at %d %%: of the second batch %d pass, want %g", b.Phase, b.Second, want)
		}
		if want := 100 / (2 - x); float64(b.Passes) < want-1 || float64(b.Passes) > want+1 {
			t.Errorf("at %d %%: of each batch %d pass, want %g", b.Phase, b.Passes, want)
		}
	}
}

func TestTheExactLogIsWhatItIsHeldAgainst(t *testing.T) {
	r := readResults(t)
	for i := range r.AllBlocks.Shapes {
		s := &r.AllBlocks.Shapes[i]
		if o := s.Outcomes[exactLog]; o.Over > 0 || o.Early > 0 || o.WronglyAllowed > 0 || o.WronglyRefused > 0 || o.Most > s.Limit {
			t.Errorf("%s: the log is wrong by its own measure: %+v", s.Name, o)
		}
		for a, o := range s.Outcomes {
			if most := bound(a, s.Limit, worstWindow, worstWindow); o.Most > most {
				t.Errorf("%s: %s let %d pass in a window's time; the bound is %d", s.Name, algorithmNames[a], o.Most, most)
			}
			if o.Passed-o.WronglyAllowed+o.WronglyRefused != s.Outcomes[exactLog].Passed {
				t.Errorf("%s: %s: what is wrong does not make up the difference: %+v", s.Name, algorithmNames[a], o)
			}
		}
	}
}
