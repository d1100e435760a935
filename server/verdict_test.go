package server

import (
	"slices"
	"testing"
	"time"

	"weir/limiter"
)

// step is one request of a conversation, and the answer to it.
type step struct {
	remark string
	after  time.Duration // the clock moves on before the request
	ask    string
	hits   uint32
	want   string
}

func (f *fixture) play(t *testing.T, domain string, steps []step) {
	t.Helper()
	for i, s := range steps {
		f.clock.advance(s.after)
		req := request(domain, s.ask)
		req.HitsAddend = s.hits
		resp, err := f.ask(t.Context(), req)
		if err != nil {
			t.Fatalf("step %d, %s: %v", i+1, s.remark, err)
		}
		if got := answerText(resp); got != s.want {
			t.Errorf("step %d, %s:\n got %s\nwant %s", i+1, s.remark, got, s.want)
		}
	}
}

func TestEachDescriptorHasItsStatusInOrder(t *testing.T) {
	f := newFixture(t, setup{rules: `
rules:
  - {name: minute, match: {a: "*"}, limit: 2, window: 60s}
  - {match: {b: "*"}, limit: 5, window: 10s, algorithm: token_bucket}
  - {match: {free: "*"}, unlimited: true}
`})
	f.play(t, "default", []step{
		{"all four kinds of status", 0, "free=1 , b=1 , nothing=1 , a=1", 0,
			"OK: ok none left 4294967295, ok 5/10SECOND left 4 after 2s, ok none left 0, ok minute 2/MINUTE left 1 after 1m0s"},
		{"the order is the request's", 0, "a=2 , free=1", 0, "OK: ok minute 2/MINUTE left 1 after 1m0s, ok none left 4294967295"},
		{"a cost that passes fills up", 0, "a=2", 1, "OK: ok minute 2/MINUTE left 0 after 1m0s"},
		{"one that refuses makes the whole over", 15 * time.Second, "b=1 , a=2", 0,
			"OVER_LIMIT: ok 5/10SECOND left 5 after 0s, over minute 2/MINUTE left 0 after 45s"},
		{"and charges the other nothing", 0, "b=1", 0, "OK: ok 5/10SECOND left 4 after 2s"},
		{"the last instant of the window, rounded up", 45*time.Second - time.Microsecond, "a=2", 0, "OVER_LIMIT: over minute 2/MINUTE left 0 after 1s"},
		{"and the next", time.Microsecond, "a=2", 0, "OK: ok minute 2/MINUTE left 1 after 1m0s"},
		{"a cost that can never pass has no time", 0, "a=3", 3, "OVER_LIMIT: over minute 2/MINUTE left 2"},
	})
}

func TestWhatHasNoLimitPasses(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{match: {a: "1"}, limit: 0, window: 1s}]`})
	f.play(t, "default", []step{
		{"no rule for the value", 0, "a=2", 0, "OK: ok none left 0"},
		{"no rule for the key", 0, "z=2", 0, "OK: ok none left 0"},
		{"too deep", 0, "a=1 b=2", 0, "OK: ok none left 0"},
		{"a descriptor with no entries", 0, "", 0, "OK: ok none left 0"},
		{"and the rule there is, with limit 0", 0, "a=1", 0, "OVER_LIMIT: over 0/SECOND left 0"},
	})
	f.play(t, "other", []step{{"an unknown domain", 0, "a=1 , b=1", 0, "OK: ok none left 0, ok none left 0"}})
}

func TestOfSeveralLimitsTheStrictestIsShown(t *testing.T) {
	f := newFixture(t, setup{rules: `
rules:
  - name: both
    match: {a: "*"}
    limits:
      - {limit: 10, window: 1h}
      - {limit: 3, window: 1s, algorithm: token_bucket, burst: 3}
      - {limit: 4, window: 1m}
`})
	f.play(t, "default", []step{
		{"that with least remaining", 0, "a=1", 3, "OK: ok both 3/SECOND left 0 after 1s"},
		{"the one that refuses", 0, "a=1", 0, "OVER_LIMIT: over both 3/SECOND left 0 after 1s"},
		{"the other with least remaining", time.Second, "a=1", 0, "OK: ok both 4/MINUTE left 0 after 59s"},
		{"of two that refuse the one that does so longest", 0, "a=1", 3, "OVER_LIMIT: over both 4/MINUTE left 0 after 59s"},
		{"one that waiting cannot help refuses longest", 0, "a=1", 4, "OVER_LIMIT: over both 3/SECOND left 2"},
		{"the first of two that say the same", 10 * time.Minute, "a=2", 3, "OK: ok both 3/SECOND left 0 after 1s"},
	})
}

func TestChargeEachChargesWhatPasses(t *testing.T) {
	f := newFixture(t, setup{
		rules:  `rules: [{match: {a: "*"}, limit: 1, window: 1h}, {match: {b: "*"}, limit: 3, window: 1h}]`,
		memory: limiter.MemoryOptions{Options: limiter.Options{ChargeEach: true}},
	})
	f.play(t, "default", []step{
		{"both pass", 0, "a=1 , b=1", 0, "OK: ok 1/HOUR left 0 after 1h0m0s, ok 3/HOUR left 2 after 1h0m0s"},
		{"a refuses, b is charged", 0, "a=1 , b=1", 0, "OVER_LIMIT: over 1/HOUR left 0 after 1h0m0s, ok 3/HOUR left 1 after 1h0m0s"},
	})
}

// modes are rules of every mode, all with a limit of 1 an hour.
const modes = `
rules:
  - {name: plain, match: {plain: "*"}, limit: 1, window: 1h}
  - {name: shade, match: {shade: "*"}, limit: 1, window: 1h, shadow_mode: true}
  - {match: {dusk: "*"}, limits: [{limit: 1, window: 1h}, {limit: 1, window: 1m}], shadow_mode: true}
  - {name: q, match: {q: "*"}, limit: 1, window: 1h, quota_mode: true}
  - {name: staff, match: {staff: "yes"}, exempt: true}
`

func TestAShadowRuleIsCountedAndToldButNeverRefuses(t *testing.T) {
	s := start(t, setup{rules: modes})
	resp := s.call(t, request("default", "shade=1"))
	if got, want := answerText(resp), "OK: ok shade 1/HOUR left 0 after 1h0m0s"; got != want || resp.DynamicMetadata != nil {
		t.Errorf("one that passes: %s, metadata %v; want %s and none", got, resp.DynamicMetadata, want)
	}
	resp = s.call(t, request("default", "shade=1 , dusk=1 , plain=1"))
	if got, want := answerText(resp), "OK: ok shade 1/HOUR left 0 after 1h0m0s, ok 1/HOUR left 0 after 1h0m0s, ok plain 1/HOUR left 0 after 1h0m0s"; got != want {
		t.Errorf("one that would be refused: %s; want %s", got, want)
	}
	if got := shadowNames(resp); !slices.Equal(got, []string{"shade"}) {
		t.Errorf("metadata names %q, want the rule that would have refused", got)
	}
	resp = s.call(t, request("default", "dusk=1"))
	if got := shadowNames(resp); !slices.Equal(got, []string{"dusk=*"}) {
		t.Errorf("metadata names %q, want the path of the rule without a name, once for both limits", got)
	}
}

func TestAServerInShadowNeverRefusesAndTells(t *testing.T) {
	f := newFixture(t, setup{rules: modes, service: Options{Shadow: true}})
	for i, x := range []struct {
		remark, ask, want, headers string
		shadow                     []string
	}{
		{"passes anyway", "plain=1", "OK: ok plain 1/HOUR left 0 after 1h0m0s", "X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", nil},
		{"would be refused", "plain=1", "OK: over plain 1/HOUR left 0 after 1h0m0s", "X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", []string{"plain"}},
		{"a quota beside one that has room", "q=1", "OK: ok q 1/HOUR left 0 after 1h0m0s", "X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", nil},
		{"which made good for the refusal of the other", "q=1 , q=2", "OK: over q 1/HOUR left 0 after 1h0m0s, ok q 1/HOUR left 0 after 1h0m0s",
			"X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", nil},
		{"no quota has room", "q=1 , q=2", "OK: over q 1/HOUR left 0 after 1h0m0s, over q 1/HOUR left 0 after 1h0m0s",
			"X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", []string{"q"}},
		{"a plain limit beside a quota made good", "plain=1 , q=1 , q=3", "OK: over plain 1/HOUR left 0 after 1h0m0s, over q 1/HOUR left 0 after 1h0m0s, ok q 1/HOUR left 1 after 0s",
			"X-Ratelimit-Limit: 1; X-Ratelimit-Remaining: 0", []string{"plain"}},
	} {
		resp, err := f.ask(t.Context(), request("default", x.ask))
		if err != nil {
			t.Fatal(err)
		}
		if got := answerText(resp); got != x.want {
			t.Errorf("step %d, %s:\n got %s\nwant %s", i+1, x.remark, got, x.want)
		}
		if got := headersText(resp); got != x.headers {
			t.Errorf("step %d, %s: headers %s, want %s", i+1, x.remark, got, x.headers)
		}
		if got := shadowNames(resp); !slices.Equal(got, x.shadow) {
			t.Errorf("step %d, %s: metadata names %q, want %q", i+1, x.remark, got, x.shadow)
		}
	}
}

func TestQuotasRefuseOnlyTogether(t *testing.T) {
	f := newFixture(t, setup{rules: modes})
	f.play(t, "default", []step{
		{"one uses its quota up", 0, "q=1", 0, "OK: ok q 1/HOUR left 0 after 1h0m0s"},
		{"another one still has some", 0, "q=1 , q=2", 0, "OK: over q 1/HOUR left 0 after 1h0m0s, ok q 1/HOUR left 0 after 1h0m0s"},
		{"none has", 0, "q=1 , q=2", 0, "OVER_LIMIT: over q 1/HOUR left 0 after 1h0m0s, over q 1/HOUR left 0 after 1h0m0s"},
		{"a plain limit beside them does not help", 0, "q=1 , plain=9", 0, "OVER_LIMIT: over q 1/HOUR left 0 after 1h0m0s, ok plain 1/HOUR left 1 after 0s"},
	})
}

func TestAnExemptMatchFreesTheWholeRequest(t *testing.T) {
	f := newFixture(t, setup{rules: modes})
	f.play(t, "default", []step{
		{"the limit is used up", 0, "plain=1", 0, "OK: ok plain 1/HOUR left 0 after 1h0m0s"},
		{"exempt wins over the refusal, and shows no limits", 0, "plain=1 , staff=yes , shade=1", 0, "OK: ok none left 0, ok none left 0, ok none left 0"},
		{"and charged nothing", 0, "shade=1", 0, "OK: ok shade 1/HOUR left 0 after 1h0m0s"},
	})
	resp, err := f.ask(t.Context(), request("default", "plain=1 , staff=yes"))
	if err != nil || len(resp.ResponseHeadersToAdd) > 0 || resp.DynamicMetadata != nil {
		t.Errorf("an exempt answer has headers or metadata: %v, %v", resp, err)
	}
}

func TestRulesThatChangeCountForTheNextRequest(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{endpoint: /a, limit: 1, window: 1h}]`})
	f.play(t, "default", []step{
		{"", 0, "endpoint=/a", 0, "OK: ok 1/HOUR left 0 after 1h0m0s"},
		{"", 0, "endpoint=/a", 0, "OVER_LIMIT: over 1/HOUR left 0 after 1h0m0s"},
	})
	f.load(t, `rules: [{name: more, endpoint: /a, limit: 3, window: 1h}]`)
	f.play(t, "default", []step{{"what was used stays so", 0, "endpoint=/a", 0, "OK: ok more 3/HOUR left 1 after 1h0m0s"}})
}
