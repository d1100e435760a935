package simulate_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/simulate"
	"weir/limiter"
	"weir/rules"
)

// trace is requests of some users, in bursts, always the same.
type trace []request

type request struct {
	at   time.Time
	user string
	cost uint64
}

func newTrace(seed uint64, n int) trace {
	random := rand.New(rand.NewPCG(seed, 0))
	at := time.Unix(1_800_000_000, 0)
	var out trace
	for range n {
		if random.IntN(5) == 0 {
			at = at.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
		}
		out = append(out, request{at, fmt.Sprint("user", random.IntN(4)), 1 + uint64(random.IntN(8)/7)})
	}
	return out
}

func compiled(t *testing.T, text string) *rules.Set {
	t.Helper()
	doc, err := rules.Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// run replays the trace, and reports.
func run(t *testing.T, tr trace, opts simulate.Options, texts ...string) *simulate.Report {
	t.Helper()
	for i, text := range texts {
		opts.Sets = append(opts.Sets, simulate.NamedSet{Name: fmt.Sprint("rules", i), Set: compiled(t, text)})
	}
	s := simulate.New(opts)
	defer s.Close()
	for _, r := range tr {
		req := &rules.Request{Domain: "default", Hits: r.cost, Descriptors: []rules.Descriptor{{Entries: []rules.Entry{{Key: "user", Value: r.user}}}}}
		if err := s.Add(r.at, req); err != nil {
			t.Fatal(err)
		}
	}
	report, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func rule(limit uint64, algorithm string) string {
	return fmt.Sprintf(`rules: [{match: {user: "*"}, limit: %d, window: 5s, algorithm: %s}]`, limit, algorithm)
}

// A what-if is what a replay of that limit comes to, for each algorithm.
func TestWhatIfsAreWhatAReplayWouldBe(t *testing.T) {
	t.Parallel()
	tr := newTrace(1, 5000)
	whatIfs := run(t, tr, simulate.Options{}, rule(10, "fixed_window")).Sets[0].Rules[0].Limits[0].Algorithms
	for i, name := range limiter.AlgorithmNames() {
		real := run(t, tr, simulate.Options{}, rule(10, name)).Sets[0]
		got := whatIfs[i]
		if got.Algorithm != name || got.Refused != real.Refused || got.Counters != real.Rules[0].CountersRefused || got.Held != real.Held || got.LongestHeld != real.LongestHeld {
			t.Errorf("%s: %+v, a replay refuses %d, of %d counters, and holds %d", name, got, real.Refused, real.Rules[0].CountersRefused, real.Held)
		}
		if real.Refused == 0 {
			t.Errorf("%s: the trace is of no use", name)
		}
	}
}

// The tightest limit keeps to the share, and one less does not.
func TestTheTightestLimitIsTight(t *testing.T) {
	t.Parallel()
	tr := newTrace(2, 3000)
	for _, atMost := range []float64{0, 0.01, 0.2} {
		for _, name := range limiter.AlgorithmNames() {
			opts := simulate.Options{AtMost: atMost}
			tightest := run(t, tr, opts, rule(7, name)).Sets[0].Rules[0].Limits[0].Tightest
			if tightest.Requests == 0 {
				t.Errorf("%s at %v: %+v", name, atMost, tightest)
				continue
			}
			at := run(t, tr, opts, rule(tightest.Requests, name)).Sets[0]
			below := run(t, tr, opts, rule(tightest.Requests-1, name)).Sets[0]
			if at.Share > atMost || below.Share <= atMost || at.Refused != tightest.Refused {
				t.Errorf("%s at %v: %d refuses %v (said %v), one less %v", name, atMost, tightest.Requests, at.Share, tightest.Share, below.Share)
			}
		}
	}
}

// Requests that one limit refuses charge no other, but with --charge each.
func TestLimitsOfARequestBelongTogether(t *testing.T) {
	t.Parallel()
	const two = `rules: [{match: {user: "*"}, limits: [{limit: 1, window: 1s}, {limit: 4, window: 1h}]}]`
	at := time.Unix(1_800_000_000, 0)
	var tr trace
	for second := range 4 {
		for range 3 {
			tr = append(tr, request{at.Add(time.Duration(second) * time.Second), "alice", 1})
		}
	}
	for _, x := range []struct {
		remark string
		each   bool
		want   uint64
	}{
		{"one a second passes for four seconds", false, 8},
		{"the hour is used up in the second second", true, 10},
	} {
		if got := run(t, tr, simulate.Options{ChargeEach: x.each}, two).Sets[0].Refused; got != x.want {
			t.Errorf("%s: %d refused, want %d", x.remark, got, x.want)
		}
	}
}

func TestModesAreThoseOfRules(t *testing.T) {
	t.Parallel()
	tr := newTrace(3, 200)
	for _, x := range []struct{ remark, rules, want string }{
		{"enforced", `rules: [{match: {user: "*"}, limit: 0, window: 1s}]`, "200 refused, 0 in shadow, 200 met"},
		{"shadow", `rules: [{match: {user: "*"}, limit: 0, window: 1s, shadow_mode: true}]`, "0 refused, 200 in shadow, 200 met"},
		{"exempt", `rules: [{match: {user: "*"}, exempt: true}]`, "0 refused, 0 in shadow, 0 met"},
		{"unlimited", `rules: [{match: {user: "*"}, unlimited: true}]`, "0 refused, 0 in shadow, 0 met"},
		{"another domain", `{domain: other, rules: [{match: {user: "*"}, limit: 0, window: 1s}]}`, "0 refused, 0 in shadow, 0 met"},
	} {
		s := run(t, tr, simulate.Options{}, x.rules).Sets[0]
		if got := fmt.Sprintf("%d refused, %d in shadow, %d met", s.Refused, s.Shadow, s.Matched); got != x.want {
			t.Errorf("%s: %s, want %s", x.remark, got, x.want)
		}
	}
}

func TestADeadlineBoundsWhatIsHeld(t *testing.T) {
	t.Parallel()
	tr := newTrace(4, 500)
	patient := run(t, tr, simulate.Options{}, rule(50, "leaky_bucket")).Sets[0]
	hurried := run(t, tr, simulate.Options{Deadline: 20 * time.Millisecond}, rule(50, "leaky_bucket")).Sets[0]
	if patient.Held == 0 || hurried.LongestHeld > 0.015 || hurried.Refused <= patient.Refused {
		t.Errorf("held %d and refused %d; with a deadline held for %v and refused %d", patient.Held, patient.Refused, hurried.LongestHeld, hurried.Refused)
	}
}

func TestPeaksAreOfTheBusiestSecondAndMinute(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0) // a whole minute
	var tr trace
	for _, second := range []int{0, 1, 1, 1, 30, 61, 62} {
		tr = append(tr, request{at.Add(time.Duration(second) * time.Second), "alice", 1})
	}
	r := run(t, tr, simulate.Options{}, rule(100, "fixed_window"))
	busiest := r.Sets[0].Rules[0].Busiest[0]
	if r.PerSecond.Requests != 3 || r.PerMinute.Requests != 5 || !r.PerSecond.At.Equal(at.Add(time.Second)) || busiest.PerSecond != 3 || busiest.PerMinute != 5 {
		t.Errorf("%+v %+v %+v", r.PerSecond, r.PerMinute, busiest)
	}
}

// The series has a bounded number of parts, and all requests.
func TestTheSeriesHasAllRequestsOfALongLog(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	var tr trace
	for i := range 3000 {
		tr = append(tr, request{at.Add(time.Duration(i) * 17 * time.Minute), "alice", 1})
	}
	series := run(t, tr, simulate.Options{}, rule(100, "fixed_window")).Sets[0].Series
	sum := uint64(0)
	for _, b := range series {
		sum += b.Requests
	}
	if len(series) > 240 || len(series) < 24 || sum != 3000 {
		t.Errorf("%d parts, %d requests", len(series), sum)
	}
}

// all writes a report in all its forms.
func all(t *testing.T, r *simulate.Report) (text, json, html string) {
	t.Helper()
	var b [3]bytes.Buffer
	for i, write := range []func() error{
		func() error { return r.WriteText(&b[0]) }, func() error { return r.WriteJSON(&b[1]) }, func() error { return r.WriteHTML(&b[2]) },
	} {
		if err := write(); err != nil {
			t.Fatal(i, err)
		}
	}
	return b[0].String(), b[1].String(), b[2].String()
}

func TestTwoRunsGiveTheSameBytes(t *testing.T) {
	t.Parallel()
	tr := newTrace(5, 3000)
	sets := []string{rule(5, "fixed_window"), rule(9, "token_bucket")}
	text, json, html := all(t, run(t, tr, simulate.Options{AtMost: 0.01}, sets...))
	for range 3 {
		text2, json2, html2 := all(t, run(t, tr, simulate.Options{AtMost: 0.01}, sets...))
		if text != text2 || json != json2 || html != html2 {
			t.Fatal("they differ")
		}
	}
}

// What clients write into a log is text everywhere, and never more.
func TestHostileValuesAreEscaped(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	const hostile = `</td><script>alert(1)</script>"'><img src=x onerror=y>`
	report := run(t, trace{{at, hostile, 1}, {at, hostile, 1}, {at, "a\tb\nc\x1b[31m", 1}}, simulate.Options{}, rule(1, "fixed_window"))
	report.Warnings, report.About = []string{hostile}, []string{hostile}
	text, _, html := all(t, report)
	for _, bad := range []string{"<script", "<img"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(html, "&lt;script&gt;") {
		t.Error("the page does not have the value at all")
	}
	for _, network := range []string{"http:", "https:", "src=", "url(", "@import"} {
		if strings.Contains(strings.ReplaceAll(html, "src=x", ""), network) {
			t.Errorf("the page has %q", network)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("the text has a control character: names of counters are quoted")
	}
}

// More hits than are kept in memory go through a file, and come back as they were.
func TestWhatIfsOfALongLogGoThroughAFile(t *testing.T) {
	t.Parallel()
	simulate.CheckSpool(t)
}
