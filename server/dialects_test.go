package server

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"weir/limiter"
)

// dialectRules has a limit of every kind that headers tell apart.
const dialectRules = `
rules:
  - {name: posts, match: {a: "*"}, limit: 2, window: 60s}
  - {name: day, match: {b: "*"}, limit: 10, window: day}
  - name: both
    match: {c: "*"}
    limits: [{limit: 2, window: 1s}, {limit: 5, window: 1h}, {limit: 5, window: 1h, algorithm: token_bucket}]
  - {match: {plain: "*"}, limit: 3, window: 5m}
  - {match: {other: "*"}, limit: 4, window: 5m}
  - {name: fast, match: {ms: "*"}, limit: 3, window: 1500ms}
  - {name: week, match: {week: "*"}, limit: 7, window: 168h}
  - {name: shade, match: {shade: "*"}, limit: 1, window: 1h, shadow_mode: true}
  - {name: q1, match: {q1: "*"}, limit: 1, window: 1h, quota_mode: true}
  - {name: q2, match: {q2: "*"}, limit: 2, window: 1h, quota_mode: true}
  - {name: shut, match: {shut: "*"}, limit: 0, window: 1h}
  - {match: {free: "*"}, unlimited: true}
  - {match: {in: "*"}, exempt: true}
`

// headersStep is a request and the headers of its answer.
type headersStep struct {
	remark string
	ask    string
	hits   uint32
	want   []string
}

func (f *fixture) playHeaders(t *testing.T, steps []headersStep) {
	t.Helper()
	for i, x := range steps {
		req := request("default", x.ask)
		req.HitsAddend = x.hits
		resp, err := f.ask(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := headersText(resp), strings.Join(x.want, "; "); got != want {
			t.Errorf("step %d, %s:\n got %s\nwant %s", i+1, x.remark, got, want)
		}
		wantStructured(t, resp)
	}
}

// wantStructured holds the fields of the IETF's draft against a parser of
// structured fields: a List of Strings with integers, and every limit of
// RateLimit a policy of RateLimit-Policy.
func wantStructured(t *testing.T, resp *rls.RateLimitResponse) (names []string) {
	t.Helper()
	for _, h := range resp.ResponseHeadersToAdd {
		if h.Key != "RateLimit-Policy" && h.Key != "RateLimit" {
			continue
		}
		list, err := httpsfv.UnmarshalList([]string{h.Value})
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %s: %v", h.Key, h.Value, err)
		}
		for _, member := range list {
			item := member.(httpsfv.Item)
			name, ok := item.Value.(string)
			if !ok {
				t.Errorf("%s: %v is no String", h.Key, item.Value)
			}
			required := map[string]string{"RateLimit-Policy": "q", "RateLimit": "r"}[h.Key]
			if v, ok := item.Params.Get(required); !ok || v.(int64) < 0 {
				t.Errorf("%s: %s: no %s", h.Key, h.Value, required)
			}
			if h.Key == "RateLimit-Policy" {
				names = append(names, name)
			} else if !slices.Contains(names, name) {
				t.Errorf("RateLimit: %q is none of the policies %q", name, names)
			}
		}
	}
	return names
}

func TestIETFListsThePoliciesAndWhatIsLeftOfThem(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: IETF}}})
	f.playHeaders(t, []headersStep{
		{"one limit", "a=1", 0, []string{`RateLimit-Policy: "posts";q=2;w=60`, `RateLimit: "posts";r=1;t=60`}},
		{"the limit that matters most comes first in RateLimit", "b=1 , a=1", 0, []string{
			`RateLimit-Policy: "day";q=10;w=86400, "posts";q=2;w=60`, `RateLimit: "posts";r=0;t=60, "day";r=9;t=43200`}},
		{"refused: only what refuses has a RateLimit, and no reset after the Retry-After", "b=1 , a=1", 0, []string{
			`RateLimit-Policy: "day";q=10;w=86400, "posts";q=2;w=60`, `RateLimit: "posts";r=0;t=60`, `Retry-After: 60`}},
		{"a rule of several limits: a policy each", "c=1", 0, []string{
			`RateLimit-Policy: "both-per-second";q=2;w=1, "both-per-hour";q=5;w=3600, "both-per-hour-2";q=5;w=3600`,
			`RateLimit: "both-per-second";r=1;t=1, "both-per-hour";r=4;t=3600, "both-per-hour-2";r=4;t=720`}},
		{"a rule without a name does not show its path", "plain=1", 0, []string{`RateLimit-Policy: "per-5-minutes";q=3;w=300`, `RateLimit: "per-5-minutes";r=2;t=300`}},
		{"two of them have two names", "plain=1 , other=1", 0, []string{
			`RateLimit-Policy: "per-5-minutes";q=3;w=300, "per-5-minutes-2";q=4;w=300`, `RateLimit: "per-5-minutes";r=1;t=300, "per-5-minutes-2";r=3;t=300`}},
		{"a window that is no whole number of seconds is not told", "ms=1", 0, []string{`RateLimit-Policy: "fast";q=3`, `RateLimit: "fast";r=2;t=2`}},
		{"two counters of a limit: the stricter one", "plain=2 , plain=1", 0, []string{`RateLimit-Policy: "per-5-minutes";q=3;w=300`, `RateLimit: "per-5-minutes";r=0;t=300`}},
		{"shadow is left out", "shade=1 , b=2", 0, []string{`RateLimit-Policy: "day";q=10;w=86400`, `RateLimit: "day";r=9;t=43200`}},
		{"unless it is alone", "shade=2", 0, []string{`RateLimit-Policy: "shade";q=1;w=3600`, `RateLimit: "shade";r=0;t=3600`}},
		{"and then it refuses nothing", "shade=2", 0, []string{`RateLimit-Policy: "shade";q=1;w=3600`, `RateLimit: "shade";r=0;t=3600`}},
		{"quotas", "q1=1 , q2=1", 0, []string{`RateLimit-Policy: "q1";q=1;w=3600, "q2";q=2;w=3600`, `RateLimit: "q1";r=0;t=3600, "q2";r=1;t=3600`}},
		{"a quota that another made good for is left out", "q1=1 , q2=1", 0, []string{`RateLimit-Policy: "q2";q=2;w=3600`, `RateLimit: "q2";r=0;t=3600`}},
		{"quotas that refuse together", "q1=1 , q2=1", 0, []string{
			`RateLimit-Policy: "q1";q=1;w=3600, "q2";q=2;w=3600`, `RateLimit: "q1";r=0;t=3600, "q2";r=0;t=3600`, `Retry-After: 3600`}},
		{"no time where waiting cannot help", "shut=1", 0, []string{`RateLimit-Policy: "shut";q=0;w=3600`, `RateLimit: "shut";r=0`}},
		{"unlimited and no limit have none", "free=1 , nothing=1", 0, nil},
		{"exempt has none", "b=1 , in=1", 0, nil},
	})
}

func TestIETFTellsNoResetOfACounterThatIsAsNew(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: IETF}}})
	req := request("default", "a=1")
	req.Descriptors[0].IsNegativeHits = true
	resp, err := f.ask(t.Context(), req)
	if got, want := headersText(resp), `RateLimit-Policy: "posts";q=2;w=60; RateLimit: "posts";r=2`; err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestLimitsOfRequestsHaveTheirOwnPolicies(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: IETF}}})
	req := limited("a=1", 3, typev3.RateLimitUnit_MINUTE, 0)
	req.Descriptors = append(req.Descriptors, limited("z=1", 8, typev3.RateLimitUnit_MINUTE, 0).Descriptors...)
	resp, err := f.ask(t.Context(), req)
	want := `RateLimit-Policy: "per-minute";q=3;w=60, "per-minute-2";q=8;w=60; RateLimit: "per-minute";r=2;t=60, "per-minute-2";r=7;t=60`
	if got := headersText(resp); err != nil || got != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func TestPartitionKeysTellCountersApartAndNotWhatTheyCount(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: IETFPartitions}}})
	keys := func(ask string) (keys []string) {
		resp, err := f.ask(t.Context(), request("default", ask))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range resp.ResponseHeadersToAdd {
			list, err := httpsfv.UnmarshalList([]string{h.Value})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				pk, _ := m.(httpsfv.Item).Params.Get("pk")
				if len(pk.([]byte)) != 8 {
					t.Errorf("%s: pk %q", h.Value, pk)
				}
				keys = append(keys, m.(httpsfv.Item).Value.(string)+" "+string(pk.([]byte)))
			}
		}
		return keys
	}
	two := keys("a=1 , a=2") // a policy with two partitions, in both fields
	if len(two) != 4 || two[0] == two[1] || two[2] != two[0] || two[3] != two[1] || two[0][:6] != "posts " || two[1][:6] != "posts " {
		t.Errorf("got %q", two)
	}
	if one := keys("a=1"); len(one) != 2 || one[0] != two[0] {
		t.Errorf("the first alone: %q, want %q", one, two[0])
	}
}

func TestDraft03IsWhatEnvoyWrites(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: Draft03}}})
	f.playHeaders(t, []headersStep{
		{"one limit", "a=1", 0, []string{`X-RateLimit-Limit: 2, 2;w=60;name="posts"`, `X-RateLimit-Remaining: 1`, `X-RateLimit-Reset: 60`}},
		{"two limits", "b=1 , a=1", 0, []string{`X-RateLimit-Limit: 2, 10;w=86400;name="day", 2;w=60;name="posts"`, `X-RateLimit-Remaining: 0`, `X-RateLimit-Reset: 60`}},
		{"refused", "b=1 , a=1", 0, []string{`X-RateLimit-Limit: 2, 10;w=86400;name="day", 2;w=60;name="posts"`, `X-RateLimit-Remaining: 0`, `X-RateLimit-Reset: 60`}},
		{"without a name", "plain=1", 0, []string{`X-RateLimit-Limit: 3, 3;w=300`, `X-RateLimit-Remaining: 2`, `X-RateLimit-Reset: 300`}},
		{"a window that seconds cannot say", "ms=1", 0, []string{`X-RateLimit-Limit: 3`, `X-RateLimit-Remaining: 2`, `X-RateLimit-Reset: 2`}},
		{"a week", "week=1", 0, []string{`X-RateLimit-Limit: 7, 7;w=604800;name="week"`, `X-RateLimit-Remaining: 6`, `X-RateLimit-Reset: ` + untilWeek()}},
		{"no reset where waiting cannot help", "shut=1", 0, []string{`X-RateLimit-Limit: 0, 0;w=3600;name="shut"`, `X-RateLimit-Remaining: 0`}},
		{"exempt has none", "b=1 , in=1", 0, nil},
	})
}

// untilWeek is the time to the next multiple of a week since 1970.
func untilWeek() string {
	const week = 7 * 24 * 3600
	return strconv.FormatInt(week-monday.Unix()%week, 10)
}

func TestSeveralDialectsAtOnceHaveOneRetryAfter(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: XRateLimit | IETF}}})
	f.playHeaders(t, []headersStep{
		{"", "a=1", 0, []string{"X-Ratelimit-Limit: 2", "X-Ratelimit-Remaining: 1", `RateLimit-Policy: "posts";q=2;w=60`, `RateLimit: "posts";r=1;t=60`}},
		{"", "a=1", 2, []string{"X-Ratelimit-Limit: 2", "X-Ratelimit-Remaining: 1", "X-Ratelimit-Retry-After: 60",
			`RateLimit-Policy: "posts";q=2;w=60`, `RateLimit: "posts";r=1;t=60`, "Retry-After: 60"}},
	})
}

func TestEachDomainMayHaveItsDialect(t *testing.T) {
	f := newFixture(t, setup{rules: "domain: api\nrules: [{name: n, match: {a: '*'}, limit: 2, window: 60s}]\n---\ndomain: quiet\nrules: [{match: {a: '*'}, limit: 2, window: 60s}]\n---\ndomain: default\nrules: [{match: {a: '*'}, limit: 2, window: 60s}]",
		service: Options{Headers: HeaderOptions{ByDomain: map[string]HeaderStyle{"api": IETF, "quiet": NoHeaders}}}})
	for domain, want := range map[string]string{
		"api": `RateLimit-Policy: "n";q=2;w=60; RateLimit: "n";r=1;t=60`, "quiet": "", "default": "X-Ratelimit-Limit: 2; X-Ratelimit-Remaining: 1",
	} {
		resp, err := f.ask(t.Context(), request(domain, "a=1"))
		if got := headersText(resp); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", domain, got, err, want)
		}
	}
}

func TestOwnNamesReplaceThoseOfXRateLimit(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Names: &HeaderNames{Limit: "X-My-Limit", RetryAfter: "X-My-Wait"}}}})
	f.playHeaders(t, []headersStep{
		{"an empty name leaves its header out", "a=1", 0, []string{"X-My-Limit: 2"}},
		{"Retry-After stays", "a=1", 2, []string{"X-My-Limit: 2", "X-My-Wait: 60", "Retry-After: 60"}},
	})
}

func TestResetIsSentOnlyUnderANameAndThenAlways(t *testing.T) {
	names := &HeaderNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Names: names}}})
	f.playHeaders(t, []headersStep{
		{"until it is full again", "a=1", 0, []string{"RateLimit-Limit: 2", "RateLimit-Remaining: 1", "RateLimit-Reset: 60"}},
		{"until a retry passes", "a=1", 2, []string{"RateLimit-Limit: 2", "RateLimit-Remaining: 1", "RateLimit-Reset: 60", "Retry-After: 60"}},
	})
}

func TestRetryAfterIsSpreadEvenlyUpToTheJitter(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Headers: HeaderOptions{Style: XRateLimit | IETF, Jitter: 3 * time.Second}}})
	seen := map[string]int{}
	for range 400 {
		resp, err := f.ask(t.Context(), limitedTo(request("default", "a=1"), 2))
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode == rls.RateLimitResponse_OK {
			continue
		}
		h := map[string]string{}
		for _, v := range resp.ResponseHeadersToAdd {
			h[v.Key] = v.Value
		}
		if h["Retry-After"] != h["X-Ratelimit-Retry-After"] || h["RateLimit"] != `"posts";r=0;t=60` || resp.Statuses[0].DurationUntilReset.Seconds != 60 {
			t.Fatalf("got %v; want both headers alike, and the reset as it is", h)
		}
		seen[h["Retry-After"]]++
	}
	for _, wait := range []string{"60", "61", "62", "63"} {
		if seen[wait] < 50 { // of about 100
			t.Errorf("%s seconds came %d times: %v", wait, seen[wait], seen)
		}
	}
	if len(seen) != 4 {
		t.Errorf("got %v", seen)
	}
}

func limitedTo(req *rls.RateLimitRequest, hits uint32) *rls.RateLimitRequest {
	req.HitsAddend = hits
	return req
}

func TestHeaderOptionsThatCannotBeAreSaid(t *testing.T) {
	for _, x := range []struct {
		o    HeaderOptions
		want string
	}{
		{HeaderOptions{}, ""},
		{HeaderOptions{Style: IETF | XRateLimit}, ""},
		{HeaderOptions{Style: IETF | Draft03}, ""},
		{HeaderOptions{Style: XRateLimit | Draft03}, "both send X-Ratelimit-Limit"},
		{HeaderOptions{ByDomain: map[string]HeaderStyle{"api": XRateLimit | Draft03}}, `domain "api": x-ratelimit and draft-03 exclude each other`},
		{HeaderOptions{Style: XRateLimit | Draft03, Names: &HeaderNames{Limit: "X-My-Limit"}}, ""},
		{HeaderOptions{Style: NoHeaders | IETF}, "none stands alone"},
		{HeaderOptions{Style: IETF | IETFPartitions}, "exclude each other"},
		{HeaderOptions{Names: &HeaderNames{Limit: "a b"}}, "no name of a header"},
		{HeaderOptions{Names: &HeaderNames{Limit: "a\r\nSet-Cookie"}}, "no name of a header"},
		{HeaderOptions{Names: &HeaderNames{Limit: ":status"}}, "no name of a header"},
		{HeaderOptions{Names: &HeaderNames{Limit: "X-É"}}, "no name of a header"},
		{HeaderOptions{Names: &HeaderNames{Limit: "content-Length"}}, "meaning of its own"},
		{HeaderOptions{Names: &HeaderNames{RetryAfter: "Retry-After"}}, "Retry-After is sent anyway"},
		{HeaderOptions{Names: &HeaderNames{Limit: "X-A", Remaining: "x-a"}}, "stands for two headers"},
	} {
		err := x.o.Validate()
		if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, want %q", x.o, err, x.want)
		}
	}
}

// nasty are names of rules that would break a header, and as what they are sent.
var nasty = []struct{ yaml, want string }{
	{`"a\r\nSet-Cookie: x"`, `"a%0D%0ASet-Cookie: x"`},
	{`"a\0b"`, `"a%00b"`},
	{`"né"`, `"n%C3%A9"`},
	{`!!binary /w==`, `"%FF"`},
	{`'say "hi"'`, `"say \"hi\""`},
	{`'back\slash'`, `"back\\slash"`},
	{`'";q=9, "x'`, `"\";q=9, \"x"`},
	{`'100%'`, `"100%25"`},
	{`'%00'`, `"%2500"`},
	{`' spaces '`, `"%20spaces%20"`},
	{`"\t\x7f\u2028"`, `"%09%7F%E2%80%A8"`},
	{`"` + strings.Repeat("x", 300) + `"`, `"` + strings.Repeat("x", 100) + `"`},
}

func TestNamesOfRulesNeverBreakADialect(t *testing.T) {
	for _, style := range []HeaderStyle{XRateLimit, IETF, IETFPartitions, Draft03} {
		for _, x := range nasty {
			f := newFixture(t, setup{rules: `rules: [{name: ` + x.yaml + `, match: {a: "*"}, limit: 0, window: 1s}]`,
				service: Options{Headers: HeaderOptions{Style: style}, UpstreamHeaders: true, Denied: DeniedOptions{Body: ProblemBody()}}})
			resp, err := f.ask(t.Context(), request("default", "a=1"))
			if err != nil {
				t.Fatal(err)
			}
			text := headersText(resp)
			for _, h := range resp.ResponseHeadersToAdd {
				for i := range len(h.Value) {
					if h.Value[i] < ' ' || h.Value[i] > '~' {
						t.Fatalf("name %s, style %d: %q", x.yaml, style, text)
					}
				}
			}
			if style != XRateLimit && !strings.Contains(text, x.want) {
				t.Errorf("name %s, style %d: %s, want %s", x.yaml, style, text, x.want)
			}
			wantStructured(t, resp)
		}
	}
}

func TestDifferentNamesStayDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"%", "%25", "%2525", "\xff", "%FF", " a", "%20a", "a", "é", "e", "\r\n", "%0D%0A"} {
		got := plainASCII(name)
		if before, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %s", before, name, got)
		}
		seen[got] = name
	}
}

func TestHeadersOfManyLimitsStayShort(t *testing.T) {
	var rules, ask strings.Builder
	rules.WriteString("rules:\n")
	for i := range 200 {
		left := "50"
		if i == 150 {
			left = "1"
		}
		n := strconv.Itoa(i)
		rules.WriteString("  - {name: rule-" + n + ", match: {k" + n + ": '*'}, limit: " + left + ", window: 1h}\n")
		if i > 0 {
			ask.WriteString(" , ")
		}
		ask.WriteString("k" + n + "=1")
	}
	f := newFixture(t, setup{rules: rules.String(), service: Options{Headers: HeaderOptions{Style: IETF}}})
	resp, err := f.ask(t.Context(), request("default", ask.String()))
	if err != nil {
		t.Fatal(err)
	}
	names := wantStructured(t, resp)
	if len(names) != maxPolicies || names[maxPolicies-1] != "rule-150" || !strings.Contains(headersText(resp), `RateLimit: "rule-150";r=0;`) {
		t.Errorf("got %q, want %d with the one that matters most", names, maxPolicies)
	}
}

func TestPoliciesFollowTheRulesInForce(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{name: old, match: {a: "*"}, limit: 5, window: 60s}]`, service: Options{Headers: HeaderOptions{Style: IETF}}})
	f.playHeaders(t, []headersStep{{"", "a=1", 0, []string{`RateLimit-Policy: "old";q=5;w=60`, `RateLimit: "old";r=4;t=60`}}})
	f.load(t, `rules: [{name: new, match: {a: "*"}, limit: 9, window: 60s}]`)
	f.playHeaders(t, []headersStep{{"", "a=1", 0, []string{`RateLimit-Policy: "new";q=9;w=60`, `RateLimit: "new";r=7;t=60`}}})
	kept := 0
	f.texts.current.Load().byRule.Range(func(_, _ any) bool { kept++; return true })
	if kept != 1 {
		t.Errorf("texts of %d rules are kept, want those in force", kept)
	}
}

// The largest numbers there are fit a structured field's Integer.
func TestNumbersFitStructuredFields(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{match: {a: "*"}, limit: 4294967295, window: 1ms, algorithm: token_bucket, burst: 4503599627370}]`,
		service: Options{Headers: HeaderOptions{Style: IETF | Draft03}}})
	resp, err := f.ask(t.Context(), request("default", "a=1"))
	if err != nil {
		t.Fatal(err)
	}
	wantStructured(t, resp)
	big := answer{}
	c := &call{answer: big}
	b := appendServiceLimit(nil, c, &listed{policy: newPolicy("n", "n", &limiter.Limit{Window: limiter.Window{Length: limiter.MaxWindow}})}, []limiter.Decision{{Remaining: 1 << 62}}, false)
	if string(b) != `"n";r=999999999999999` {
		t.Errorf("got %s", b)
	}
}

func TestTheUpstreamIsToldWhatIsLeft(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules + "  - {name: \"n\\r\\né\", match: {bad: '*'}, limit: 9, window: 1s}\n", service: Options{UpstreamHeaders: true}})
	for i, x := range []struct{ remark, ask, want string }{
		{"of the limit that matters most", "b=1 , a=1", "x-weir-rule: posts; x-weir-limit: 2; x-weir-remaining: 1"},
		{"a rule without a name", "plain=1", "x-weir-rule: plain=*; x-weir-limit: 3; x-weir-remaining: 2"},
		{"a name that would break a header", "bad=1", "x-weir-rule: n%0D%0A%C3%A9; x-weir-limit: 9; x-weir-remaining: 8"},
		{"refused: the request does not get there", "shut=1", ""},
		{"no limit", "nothing=1", ""},
		{"exempt", "a=1 , in=1", ""},
	} {
		resp, err := f.ask(t.Context(), request("default", x.ask))
		if err != nil {
			t.Fatal(err)
		}
		resp.ResponseHeadersToAdd = resp.RequestHeadersToAdd
		if got := headersText(resp); got != x.want {
			t.Errorf("step %d, %s: %s, want %s", i+1, x.remark, got, x.want)
		}
	}
	resp, err := newFixture(t, setup{rules: dialectRules}).ask(t.Context(), request("default", "a=1"))
	if err != nil || len(resp.RequestHeadersToAdd) > 0 {
		t.Errorf("unasked: %v, %v", resp, err)
	}
}
