package ruletest

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"
)

const reported = `
rules:
  - {name: posts, match: {endpoint: /posts, user: "*"}, limit: 2, window: 1s}
tests:
  - name: fine
    steps: [{send: "endpoint=/posts,user=a", want: {codes: AAD}}]
  - name: amiss
    steps:
      - send: endpoint=/posts,user=a
        want: {codes: AAA}
      - send: endpoint=/post,user=a
        want: {code: OVER_LIMIT}
  - name: of Redis
    steps: [{do: stop-redis}]
`

func TestAReportSaysWhatDiffersWhereAndWhoDecided(t *testing.T) {
	want := `ok    t.yaml: fine
FAIL  t.yaml: amiss
      t.yaml:9: at 2026-01-05T12:00:00Z (0s): send endpoint=/posts,user=a
        codes: AAD, want AAA
        AAD; request 3 of 3 is refused by rule posts (t.yaml:3:5)
          refuses, 2 per 1s fixed_window, 0 left, retry after 1s, full again in 1s (posts)
      t.yaml:11: at 2026-01-05T12:00:00Z (0s): send endpoint=/post,user=a
        code: OK, want OVER_LIMIT
        the request passes: no rule matches
        nothing fits endpoint=/post: no limit
        nearly: endpoint=/posts, user=* (t.yaml:3:5): its value of endpoint is /posts, not /post
skip  t.yaml: of Redis
      not played: t.yaml:14: do: stop-redis needs a Redis of its own, and weir test has counters in memory
`
	if got := report(t, reported, false); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

func TestJUnitIsXMLWhateverTheNames(t *testing.T) {
	path := write(t, strings.NewReplacer("fine", `"<&\"\u0007]]>\uFFFE'é"`).Replace(reported))
	faulty := Run(t.Context(), write(t, "tests: 5\n"), Options{Configure: configure})
	var out strings.Builder
	if err := WriteJUnit(&out, []Report{Run(t.Context(), path, Options{Configure: configure}), faulty}); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got.Tests != 4 || got.Failures != 1 || got.Errors != 1 || got.Skipped != 1 || len(got.Suites) != 2 {
		t.Errorf("%+v", got)
	}
	cases := got.Suites[0].Cases
	if cases[0].Name != "<&\"\uFFFD]]>\uFFFD'é" || cases[0].Failure != nil {
		t.Errorf("%+v", cases[0])
	}
	if f := cases[1].Failure; f == nil || f.Message != path+":9: codes: AAD, want AAA" || !strings.Contains(f.Text, "is refused by rule posts") {
		t.Errorf("%+v", f)
	}
}

func TestRunPicksTestsByTheirNames(t *testing.T) {
	r := Run(t.Context(), write(t, reported), Options{Configure: configure, Run: regexp.MustCompile("^fi|Redis")})
	var n Counts
	if n.Add(&r); n != (Counts{Passed: 1, Unplayed: 1}) {
		t.Errorf("%+v", n)
	}
}
