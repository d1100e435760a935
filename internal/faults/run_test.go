// Package faults_test plays what public reports say that other limiters answered
// wrong, and holds Weir to the right answer. docs/faults.md is made of its rows.
package faults_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// fault is a line of docs/faults.md: reports of one fault, and what proves that
// Weir has not got it.
type fault struct {
	topic   string
	reports string // "owner/repository#number", with blanks between
	wrong   string // what the reported limiter did
	weir    string // what Weir does
	rules   string // below `rules:`, or a whole file
	start   time.Time
	steps   []step
	test    string // the test of this package that proves it, where steps do not; or of another, "limiter/redis TestName"
}

// step is asks at a time after the row's start, which may lie before that of the
// step above: the clock of the store is the test's. Or it is a change of the rules.
type step struct {
	at   string // as time.ParseDuration reads it; empty: as before
	ask  string // see request; empty: nothing is asked
	want string // see answer: "AAD, left 0, retry 5"; one ask for each letter
	load string // rules that come into force before the ask, as in fault
}

// monday is a Monday's noon, the start of rows that do not say otherwise.
var monday = time.Date(2026, time.March, 16, 12, 0, 0, 0, time.UTC)

func TestWeirAnswersWhatOthersDidNot(t *testing.T) {
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	for i := range faults {
		f := &faults[i]
		if len(f.steps) == 0 {
			continue
		}
		for _, store := range []string{"memory", "redis"} {
			t.Run(f.reports+"/"+store, func(t *testing.T) {
				w := newWorld(t, world{rules: f.rules, start: f.start})
				if store == "redis" {
					w.redis = r
				}
				f.play(t, w)
			})
		}
	}
}

func (f *fault) play(t *testing.T, w *world) {
	s := w.serve(t)
	for i, x := range f.steps {
		if x.at != "" {
			d, err := time.ParseDuration(x.at)
			if err != nil {
				t.Fatalf("step %d: %v", i+1, err)
			}
			w.clock.Set(w.start.Add(d))
		}
		if x.load != "" {
			w.load(t, x.load)
		}
		if x.ask == "" {
			continue
		}
		codes, said, _ := strings.Cut(x.want, ",")
		got := answer{}
		for range codes {
			got.add(s.ask(t, x.ask))
		}
		if got.codes != codes || !got.says(said) {
			t.Errorf("step %d, after %s: %s:\n got %s\nwant %s", i+1, x.at, x.ask, got, x.want)
		}
	}
}

// answer is what asks were answered, such as "AAD, left 0, retry 5": a letter for
// each, Admitted, Denied or Error, and what the last one said.
type answer struct {
	codes string
	facts []string
}

func (a *answer) add(code string, facts []string) { a.codes, a.facts = a.codes+code, facts }

func (a answer) String() string { return a.codes + ", " + strings.Join(a.facts, ", ") }

// says tells whether the last answer has all these facts, in any order.
func (a answer) says(facts string) bool {
	for want := range strings.SplitSeq(facts, ",") {
		found := strings.TrimSpace(want) == ""
		for _, fact := range a.facts {
			found = found || fact == strings.TrimSpace(want)
		}
		if !found {
			return false
		}
	}
	return true
}
