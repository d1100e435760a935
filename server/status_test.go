package server

import (
	"fmt"
	"math"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func TestTheUnitIsTheLargestThatDividesTheWindow(t *testing.T) {
	for _, x := range []struct{ remark, window, want string }{
		{"a part of a second has no unit", "1ms", "UNKNOWN"},
		{"", "500ms", "UNKNOWN"},
		{"nor has what is no whole number of seconds", "1500ms", "UNKNOWN"},
		{"", "1s", "SECOND"},
		{"", "90s", "90SECOND"},
		{"seconds that are minutes", "120s", "2MINUTE"},
		{"", "60s", "MINUTE"},
		{"", "1h30m", "90MINUTE"},
		{"", "1h", "HOUR"},
		{"", "36h", "36HOUR"},
		{"24 hours are a day", "24h", "DAY"},
		{"", "48h", "2DAY"},
		{"7 days are a week", "168h", "WEEK"},
		{"", "336h", "2WEEK"},
		{"30 days are a month", "720h", "MONTH"},
		{"", "1440h", "2MONTH"},
		{"365 days are a year", "8760h", "YEAR"},
		{"the longest window", "8784h", "366DAY"},
		{"calendar units", "day", "DAY"},
		{"", "{window: day, timezone: Asia/Tokyo}", "DAY"},
		{"", "week", "WEEK"},
		{"", "month", "MONTH"},
		{"", "year", "YEAR"},
		{"units times a number", "{unit: minute, unit_multiplier: 5}", "5MINUTE"},
		{"", "{unit: hour, unit_multiplier: 24}", "DAY"},
	} {
		window := x.window
		if window[0] != '{' {
			window = "{window: " + window + "}"
		}
		f := newFixture(t, setup{rules: fmt.Sprintf("rules: [{match: {a: '*'}, limits: [{limit: 7, %s]}]", window[1:])})
		resp, err := f.ask(t.Context(), request("default", "a=1"))
		if err != nil {
			t.Fatal(err)
		}
		st := resp.Statuses[0]
		st.DurationUntilReset = nil
		if got, want := statusText(st), "ok 7/"+x.want+" left 6"; got != want {
			t.Errorf("window %s %s: got %s, want %s", x.window, x.remark, got, want)
		}
	}
}

func TestRemainingIsCutToWhatTheAnswerCanHold(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1ms, algorithm: token_bucket, burst: 8589934600}]`})
	f.play(t, "default", []step{{"a bucket of over 2^33", 0, "a=1", 0, "OK: ok 1/UNKNOWN left 4294967295 after 1s"}})
}

func TestSecondsAreRoundedUp(t *testing.T) {
	for _, x := range []struct {
		d    time.Duration
		want uint64
	}{
		{0, 0}, {-time.Second, 0}, {1, 1}, {time.Second - 1, 1}, {time.Second, 1}, {time.Second + 1, 2},
		{math.MaxInt64, 9223372037},
	} {
		if got := seconds(x.d); got != x.want {
			t.Errorf("seconds(%v) = %d, want %d", x.d, got, x.want)
		}
	}
}

// limited is a request for one descriptor with a limit of its own.
func limited(text string, requests uint32, unit typev3.RateLimitUnit, times uint32) *rls.RateLimitRequest {
	req := request("default", text)
	req.Descriptors[0].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	if times > 0 {
		req.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return req
}

func TestARequestsOwnLimitReplacesTheRules(t *testing.T) {
	for _, x := range []struct {
		remark string
		req    *rls.RateLimitRequest
		want   string
	}{
		{"the rule's limit", limited("plain=1", 5, typev3.RateLimitUnit_SECOND, 0), "OK: ok 5/SECOND left 4 after 1s"},
		{"with a multiplier", limited("plain=1", 5, typev3.RateLimitUnit_MINUTE, 5), "OK: ok 5/5MINUTE left 4 after 5m0s"},
		{"by the calendar's month", limited("plain=1", 5, typev3.RateLimitUnit_MONTH, 0), "OK: ok 5/MONTH left 4 after 372h0m0s"},
		{"where no rule matches", limited("nothing=1", 5, typev3.RateLimitUnit_HOUR, 0), "OK: ok 5/HOUR left 4 after 1h0m0s"},
		{"none pass", limited("plain=2", 0, typev3.RateLimitUnit_HOUR, 0), "OVER_LIMIT: over 0/HOUR left 0"},
		{"the rule's shadow too", limited("shade=1", 0, typev3.RateLimitUnit_HOUR, 0), "OVER_LIMIT: over 0/HOUR left 0"},
		{"but not exempt", limited("staff=yes", 0, typev3.RateLimitUnit_HOUR, 0), "OK: ok none left 0"},
	} {
		resp, err := newFixture(t, setup{rules: modes}).ask(t.Context(), x.req)
		if err != nil {
			t.Fatal(err)
		}
		if got := answerText(resp); got != x.want {
			t.Errorf("%s: got %s, want %s", x.remark, got, x.want)
		}
	}
	f := newFixture(t, setup{rules: `domain: other`})
	resp, err := f.ask(t.Context(), limited("a=1", 0, typev3.RateLimitUnit_HOUR, 0))
	if err != nil || answerText(resp) != "OK: ok none left 0" {
		t.Errorf("in a domain without rules: %v, %v; want no limit", resp, err)
	}
}
