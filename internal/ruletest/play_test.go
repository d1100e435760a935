package ruletest

import (
	"strings"
	"testing"
	"time"
)

const someRules = `
rules:
  - {name: five, endpoint: /x, limit: 5, window: 60s}
  - {name: posts, match: {endpoint: /posts, user: "*"}, limit: 2, window: 1s, algorithm: token_bucket, burst: 4}
  - {name: both, match: {b: "*"}, limits: [{limit: 2, window: 1s}, {limit: 3, window: day, timezone: Asia/Tokyo}]}
  - {name: slow, endpoint: /slow, limit: 2, window: 1s, algorithm: leaky_bucket, queue: 3}
  - {name: kept, endpoint: /kept, limit: 1, window: 1s, algorithm: leaky_bucket, queue: 3, over_limit: queue}
  - {name: inside, match: {key: internal}, exempt: true}
  - {name: free, match: {key: free}, unlimited: true}
  - {name: never, match: {key: never}, limit: 0, window: 1s}
tests:
  - name: t
    steps:
`

func TestAStepIsComparedWithAllThatItWants(t *testing.T) {
	for _, c := range []struct{ remark, steps, want string }{
		{"codes that come", `[{send: endpoint=/x, want: {codes: AAAAAD}}]`, ""},
		{"codes that do not", `[{send: endpoint=/x, want: {codes: AAAAAA}}]`, "codes: AAAAAD, want AAAAAA"},
		{"how many pass", `[{send: endpoint=/x, times: 10, want: {passed: 5}}]`, ""},
		{"how many do not", `[{send: endpoint=/x, times: 10, want: {passed: 6}}]`, "passed: 5 of 10, want 6"},
		{"at least, at most", `[{send: endpoint=/x, times: 10, want: {passed: [6, 8]}}]`, "passed: 5 of 10, want 6 to 8"},
		{"the code of the last", `[{send: endpoint=/x, times: 6, want: {code: OVER_LIMIT}}]`, ""},
		{"which it is not", `[{send: endpoint=/x, times: 5, want: {code: over_limit}}]`, "code: OK, want OVER_LIMIT"},
		{"the rule that decides", `[{send: endpoint=/x, want: {rule: five, limit: 5, remaining: 4, reset: 1m}}]`, ""},
		{"another rule", `[{send: endpoint=/x, want: {rule: six}}]`, "rule: five, want six"},
		{"another limit", `[{send: endpoint=/x, want: {limit: 6}}]`, "limit: 5, want 6"},
		{"more left", `[{send: endpoint=/x, want: {remaining: 5}}]`, "remaining: 4, want 5"},
		{"no rule", `[{send: endpoint=/y, want: {rule: "-"}}]`, ""},
		{"a limit where there is none", `[{send: endpoint=/y, want: {remaining: 5}}]`, "no limit was checked"},
		{"a rule that exempts", `[{send: [key=internal, endpoint=/x], want: {rule: inside}}]`, ""},
		{"a rule without a limit", `[{send: key=free, want: {rule: free}}]`, ""},
		{"the wait, exactly", `[{send: "endpoint=/posts,user=a", want: {codes: AAAAD, retry_after: 500ms}}]`, ""},
		{"not rounded", `[{send: "endpoint=/posts,user=a", want: {codes: AAAAD, retry_after: 1s}}]`, "retry_after: 500ms, want 1s"},
		{"within bounds", `[{send: "endpoint=/posts,user=a", want: {codes: AAAAD, retry_after: [400ms, 1s]}}]`, ""},
		{"a wait that cannot help", `[{send: key=never, want: {codes: D, retry_after: none}}]`, ""},
		{"but that helps", `[{send: "endpoint=/posts,user=a", want: {codes: AAAAD, retry_after: none}}]`, "retry_after: 500ms, want none"},
		{"a wait of what passes", `[{send: endpoint=/x, want: {retry_after: 1s}}]`, "retry_after: the limit does not refuse, want 1s"},
		{"each limit", `[{send: b=1, want: {limits: [{rule: both, limit: 2, remaining: 1, allowed: true}, {limit: 3, remaining: 2, reset: 3h}]}}]`, ""},
		{"another of one", `[{send: b=1, want: {limits: [{remaining: 1}, {remaining: 1}]}}]`, "limit 2: remaining: 2, want 1"},
		{"fewer limits", `[{send: b=1, want: {limits: [{remaining: 1}]}}]`, "limits: 2 were checked, want 1"},
		{"headers", `[{send: endpoint=/x, want: {headers: {x-ratelimit-limit: 5, Retry-After: "-", X-Ratelimit-Remaining: "*"}}}]`, ""},
		{"a header that is not there", `[{send: endpoint=/x, want: {headers: {Retry-After: "*"}}}]`, "header Retry-After: -, want *"},
		{"statuses", `[{send: [endpoint=/x, endpoint=/y], want: {statuses: [{code: OK, limit: 5, unit: MINUTE, name: five}, {none: true}]}}]`, ""},
		{"a status that has a limit", `[{send: endpoint=/x, want: {statuses: [{none: true}]}}]`, "status 1: none: it has a limit, 5 per MINUTE"},
		{"a status that has none", `[{send: endpoint=/y, want: {statuses: [{limit: 5}]}}]`, "status 1: it has no limit"},
		{"an error by its code", `[{send: [], want: {error: InvalidArgument}}]`, ""},
		{"by one of two", `[{send: [], want: {error: Internal|InvalidArgument}}]`, ""},
		{"by its text", `[{send: [], want: {error: no descriptors}}]`, ""},
		{"another error", `[{send: [], want: {error: Internal}}]`, `error of request 1: InvalidArgument: there are no descriptors: send one at least, want "Internal"`},
		{"an error that was not wanted", `[{send: []}]`, "error of request 1: InvalidArgument"},
		{"no error", `[{send: endpoint=/x, want: {error: Internal}}]`, `error: none, want "Internal"`},
		{"what an error does not have", `[{send: [], want: {codes: E, remaining: 3}}]`, "the last answer is an error"},
		{"the delay", `[{send: endpoint=/slow}, {send: endpoint=/slow, want: {delay: 500ms}}]`, ""},
		{"a delay of all", `[{send: endpoint=/slow, parallel: 3, want: {delay: [0s, 900ms]}}]`, "delay of request 3: 1s, want 0s to 900ms"},
		{"without a queue its rule refuses", `[{send: endpoint=/kept, times: 2, want: {codes: AD}}]`, ""},
		{"a remark", `[{remark: why, send: endpoint=/x, want: {code: OK}}]`, ""},
	} {
		got := report(t, someRules+"      "+c.steps+"\n", false)
		switch {
		case c.want == "" && got != "ok    t.yaml: t\n":
			t.Errorf("%s: %s", c.remark, got)
		case c.want != "" && !strings.Contains(got, "\n        "+c.want):
			t.Errorf("%s: no %q in\n%s", c.remark, c.want, got)
		}
	}
}

func TestTimePassesAsTheStepsSay(t *testing.T) {
	for _, c := range []struct{ remark, steps, want string }{
		{"the start is a Monday's noon", `[{send: endpoint=/x}]`, "at 2026-01-05T12:00:00Z (0s)"},
		{"since the start", `[{at: 5s, send: endpoint=/x}]`, "at 2026-01-05T12:00:05Z (5s)"},
		{"since the step before", `[{at: 5s, send: endpoint=/x}, {at: +5s, send: b=1}]`, "at 2026-01-05T12:00:10Z (10s): send b=1"},
		{"an absolute time", `[{at: 2026-01-06T03:00:00+09:00, send: b=1}]`, "at 2026-01-05T18:00:00Z (6h0m0s): send b=1"},
		{"settling", `[{settle: 1h}, {send: b=1}]`, "at 2026-01-05T13:00:00Z (1h0m0s): send b=1"},
		{"from one to the next", `[{send: endpoint=/x, times: 3, every: 10s}, {send: b=1}]`, "at 2026-01-05T12:00:20Z (20s): send b=1"},
		{"one after another is held", `[{send: endpoint=/slow, times: 3}, {send: b=1}]`, "at 2026-01-05T12:00:01Z (1s): send b=1"},
		{"all at once are held", `[{send: endpoint=/slow, parallel: 4}, {send: b=1}]`, "at 2026-01-05T12:00:01.5Z (1.5s): send b=1"},
		{"others need not wait for who is held", `[{send: endpoint=/slow, parallel: 4}, {at: 100ms, send: b=1}]`, "at 2026-01-05T12:00:00.1Z (100ms): send b=1"},
		{"who is impatient is refused at once", `[{send: endpoint=/slow, parallel: 2, timeout: 20ms}]`, "AD; request 2 of 2 is refused by rule slow"},
		{"a remark", `[{remark: to see, send: b=1}]`, "send b=1 (to see)"},
		{"backwards", `[{at: 2s, send: b=1}, {at: 1s, send: b=1}]`, "is before the last request"},
		{"without end", `[{send: b=1, times: 1000000, every: 1000000h}]`, "is out of the years"},
	} {
		if got := report(t, someRules+"      "+c.steps+"\n", true); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in\n%s", c.remark, c.want, got)
		}
	}
}

func TestRulesChangeAndCountersStay(t *testing.T) {
	const steps = `
rules: [{endpoint: /x, limit: 2, window: 1h}]
steps:
  - {send: endpoint=/x, want: {codes: AAD}}
  - {reload: [{endpoint: /x, limit: 3, window: 1h}]}
  - {send: endpoint=/x, want: {codes: AD, limit: 3}}
  - {reload: [{endpoint: /x, limt: 4, window: 1h}], want: {error: 'unknown field "limt"'}}
  - {rules: "rules: [{endpoint: /x, limt: 4, window: 1h}]"}
  - {send: endpoint=/x, want: {codes: D, limit: 3}}
`
	if got := report(t, steps, false); got != "ok    t.yaml: t\n" {
		t.Error(got)
	}
	for _, c := range []struct{ remark, step, want string }{
		{"refused, and nobody wanted that", `{reload: [{endpoint: /x, limt: 4, window: 1h}]}`, `t.yaml:10:30: unknown field "limt"`},
		{"taken, and nobody wanted that", `{reload: [], want: {error: limt}}`, `error: none, the rules are sound, want "limt"`},
	} {
		if got := report(t, steps+"  - "+c.step+"\n", false); !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in\n%s", c.remark, c.want, got)
		}
	}
}

func TestFlagsDecideAsTheyDoInServe(t *testing.T) {
	for _, c := range []struct{ remark, flags, want string }{
		{"none", "[]", "AAD"},
		{"in shadow nothing is refused", "--shadow", "AAA"},
		{"each limit by itself", "[--charge each]", "AAD"},
	} {
		const rules = "\nrules: [{endpoint: /y, limit: 2, window: 1h}]\n"
		file := "flags: " + c.flags + rules + "steps: [{send: endpoint=/y, want: {codes: " + c.want + "}}]\n"
		if got := report(t, file, false); got != "ok    t.yaml: t\n" {
			t.Errorf("%s: %s", c.remark, got)
		}
	}
}

func TestEachTestHasCountersOfItsOwn(t *testing.T) {
	const test = "  - {name: %, steps: [{send: endpoint=/x, want: {codes: AD}}]}\n"
	file := "rules: [{endpoint: /x, limit: 1, window: 1h}]\ntests:\n" + strings.ReplaceAll(test, "%", "a") + strings.ReplaceAll(test, "%", "b")
	if got, want := report(t, file, false), "ok    t.yaml: a\nok    t.yaml: b\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestAYearOfDays holds the days of 23 and 25 hours, by values worked out by hand,
// and that a year takes no time.
func TestAYearOfDays(t *testing.T) {
	begin := time.Now()
	r := Run(t.Context(), "testdata/year.yaml", Options{Configure: configure})
	took := time.Since(begin)
	var out strings.Builder
	r.Write(&out, false)
	var n Counts
	if n.Add(&r); n != (Counts{Passed: 11}) {
		t.Errorf("%+v\n%s", n, out.String())
	}
	t.Logf("five years and more of an hour's steps took %v", took)
	if took > 30*time.Second { // it takes a fraction of one, also under the race detector
		t.Errorf("it took %v", took)
	}
}
