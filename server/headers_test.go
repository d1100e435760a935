package server

import (
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/limiter"
)

func TestHeadersTellALimitedClientWhereItStands(t *testing.T) {
	s := start(t, setup{rules: `
rules:
  - {match: {a: "*"}, limit: 2, window: 1s}
  - {match: {free: "*"}, unlimited: true}
  - {match: {in: "*"}, exempt: true}
  - {match: {shut: "*"}, limit: 0, window: 1s}
`})
	const left = "X-Ratelimit-Limit: 2; X-Ratelimit-Remaining: "
	for i, x := range []struct {
		remark, ask string
		hits        uint32
		after       time.Duration
		want        string
	}{
		{"passes", "a=1", 0, 0, left + "1"},
		{"a cost too great for now", "a=1", 2, 0, left + "1; X-Ratelimit-Retry-After: 1; Retry-After: 1"},
		{"a cost too great for ever has no time", "a=1", 3, 0, left + "1"},
		{"a millisecond is a second too", "a=1", 2, 999 * time.Millisecond, left + "1; X-Ratelimit-Retry-After: 1; Retry-After: 1"},
		{"unlimited and no limit have none", "free=1 , nothing=1", 0, 0, ""},
		{"exempt has none, though a limit stands beside it", "a=1 , in=1", 0, 0, ""},
		{"limit 0 has no time", "shut=1", 0, 0, "X-Ratelimit-Limit: 0; X-Ratelimit-Remaining: 0"},
	} {
		s.clock.advance(x.after)
		req := request("default", x.ask)
		req.HitsAddend = x.hits
		if got := headersText(s.call(t, req)); got != x.want {
			t.Errorf("step %d, %s:\n got %s\nwant %s", i+1, x.remark, got, x.want)
		}
	}
}

func TestHeadersNoneAddsNone(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 0, window: 1s}]`, service: Options{Headers: HeaderOptions{Style: NoHeaders}}})
	resp := s.call(t, request("default", "a=1"))
	if resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT || len(resp.ResponseHeadersToAdd) != 0 {
		t.Errorf("got %v", resp)
	}
}

func TestHeaderStylesHaveNames(t *testing.T) {
	for i, name := range HeaderStyleNames() {
		if s, err := ParseHeaderStyle(name); err != nil || s != 1<<i {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := ParseHeaderStyle("ietf2"); err == nil {
		t.Error("an unknown style has no error")
	}
}

func TestHeadersDescribeTheLimitThatMattersMost(t *testing.T) {
	type hit struct {
		kind   string // "": plain, "s": shadow, "q": quota
		left   uint64
		refuse string // "": allowed; "never"; else the retry-after
	}
	for _, x := range []struct {
		remark string
		hits   []hit
		want   int
	}{
		{"no limit at all", nil, -1},
		{"the least remaining", []hit{{"", 3, ""}, {"", 1, ""}, {"", 2, ""}}, 1},
		{"the first of those with the same", []hit{{"", 3, ""}, {"", 1, ""}, {"", 1, ""}}, 1},
		{"one that refuses before one with less remaining", []hit{{"", 0, ""}, {"", 5, "1s"}}, 1},
		{"the longest refusal", []hit{{"", 0, "1s"}, {"", 0, "3s"}, {"", 0, "2s"}}, 1},
		{"the first of two as long", []hit{{"", 1, "2s"}, {"", 0, "2s"}}, 0},
		{"one that never passes before all", []hit{{"", 0, "9s"}, {"", 0, "never"}, {"", 0, "99s"}}, 1},
		{"the first of two that never pass", []hit{{"", 0, "never"}, {"", 0, "never"}}, 0},
		{"a shadow limit is left out", []hit{{"s", 0, ""}, {"", 9, ""}}, 1},
		{"also when it would refuse", []hit{{"s", 0, "never"}, {"", 9, ""}}, 1},
		{"unless it is alone", []hit{{"s", 2, ""}, {"s", 1, ""}}, 1},
		{"a quota made good is left out", []hit{{"q", 0, "9s"}, {"q", 4, ""}}, 1},
		{"also where another limit refuses", []hit{{"q", 0, "9s"}, {"q", 4, ""}, {"", 0, "1s"}}, 2},
		{"quotas that refuse together", []hit{{"q", 0, "1s"}, {"q", 0, "2s"}}, 1},
	} {
		hits, decisions := make([]limiter.Hit, len(x.hits)), make([]limiter.Decision, len(x.hits))
		for i, h := range x.hits {
			hits[i] = limiter.Hit{Cost: 1, Shadow: h.kind == "s", Quota: h.kind == "q"}
			decisions[i] = limiter.Decision{Remaining: h.left, Allowed: h.refuse == ""}
			if h.refuse != "" && h.refuse != "never" {
				wait, err := time.ParseDuration(h.refuse)
				if err != nil {
					t.Fatal(err)
				}
				decisions[i].RetryAfter = wait
			}
		}
		if got := telling(hits, decisions); got != x.want {
			t.Errorf("%s: got hit %d, want %d", x.remark, got, x.want)
		}
	}
}

// An upstream refuses a request whose headers are too long.
func TestTheUpstreamIsNotToldLongNames(t *testing.T) {
	s := start(t, setup{rules: "rules: [{name: " + strings.Repeat("é", 50_000) + ", match: {a: '*'}, limit: 2, window: 1s}]", service: Options{UpstreamHeaders: true}})
	for _, h := range s.call(t, request("default", "a=1")).RequestHeadersToAdd {
		if len(h.Value) > 3*maxUpstreamRule {
			t.Errorf("%s has %d bytes", h.Key, len(h.Value))
		}
	}
}

// Names may have any bytes: "\xff" by way of !!binary, the rest by escapes.
func TestTextOfRulesNeverBreaksAnAnswer(t *testing.T) {
	s := start(t, setup{rules: `
rules:
  - {name: "a\r\nSet-Cookie: x\0", match: {lines: "*"}, limit: 0, window: 1s}
  - {name: !!binary /w==, match: {bytes: "*"}, limit: 0, window: 1s}
  - {name: !!binary L/8=, match: {shade: "*"}, limit: 0, window: 1s, shadow_mode: true}
  - {match: {path: !!binary "/w=="}, limit: 0, window: 1s, shadow_mode: true}
`})
	resp := s.call(t, request("default", "lines=1 , bytes=1 , shade=1"))
	var names []string
	for _, st := range resp.Statuses {
		names = append(names, st.CurrentLimit.GetName())
	}
	if got, want := strings.Join(names, "|"), "a\r\nSet-Cookie: x\x00|\uFFFD|/\uFFFD"; got != want {
		t.Errorf("names %q, want %q", got, want)
	}
	if got := shadowNames(resp); len(got) != 1 || got[0] != "/\uFFFD" {
		t.Errorf("metadata names %q", got)
	}
	for _, h := range resp.ResponseHeadersToAdd {
		if strings.ContainsAny(h.Key+h.Value, "\r\n\x00\uFFFD") {
			t.Errorf("header %q: %q", h.Key, h.Value)
		}
	}
	raw, err := s.rawCall(t.Context(), rawRequest("default", "path", "\xff"))
	if err != nil {
		t.Fatal(err)
	}
	if got := shadowNames(raw); len(got) != 1 || !strings.HasPrefix(got[0], "path=") {
		t.Errorf("metadata names %q, want the path of the rule", got)
	}
}
