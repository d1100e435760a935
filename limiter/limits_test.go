package limiter_test

import (
	"strings"
	"testing"
	"time"

	"weir/limiter"
)

func TestValidateSaysWhatIsAllowed(t *testing.T) {
	const most = limiter.MaxRequests
	week := limiter.CalendarWindow(limiter.Week, nil)
	for _, c := range []struct {
		limit  limiter.Limit
		want   string // in the error; "": valid
		remark string
	}{
		{fixed(0, time.Second), "", "limit 0"},
		{fixed(most, time.Second), "", "2^32 - 1"},
		{fixed(most+1, time.Second), "limit 4294967296 is over 4294967295", "2^32"},
		{fixed(1, time.Millisecond), "", "the shortest window"},
		{fixed(1, time.Millisecond-1), "not within 1ms to 366 days", "shorter"},
		{fixed(1, limiter.MaxWindow), "", "the longest window"},
		{fixed(1, limiter.MaxWindow+time.Millisecond), "not within 1ms to 366 days", "longer"},
		{fixed(1, 0), "not within", "none"},
		{fixed(1, 1500*time.Microsecond), "", "a whole number of microseconds"},
		{fixed(1, time.Second+1), "whole number of 1µs", "a nanosecond over"},
		{fixed(1, time.Hour+time.Microsecond), "whole number of 1ms", "a microsecond over an hour"},
		{fixed(1, time.Hour+time.Millisecond), "", "a millisecond over an hour"},
		{slidingLog(limiter.MaxLogLimit, time.Hour), "", "the longest log"},
		{slidingLog(limiter.MaxLogLimit+1, time.Hour), "over 100000", "a longer one"},
		{tokens(1_000_000, time.Hour, 1_000_000), "", "a million an hour"},
		{tokens(50_000_000, limiter.DayLength, 50_000_000), "", "fifty million a day"},
		{tokens(1, time.Hour, 1_250_999), "", "the largest burst of an hour: 2^52 / 3.6e9"},
		{tokens(1, time.Hour, 1_251_000), "it is 1250999 at most", "a larger one"},
		{leaky(1, time.Hour, 1_250_999), "", "the largest queue of an hour"},
		{leaky(1, time.Hour, 1_251_000), "queue 1251000 is too large", "a larger one"},
		{leaky(1, time.Second, 1<<64-1), "too large", "nor does it overflow"},
		{tokens(1, time.Second, 0), "burst 0 lets nothing pass", "an empty bucket"},
		{tokens(0, time.Second, 0), "", "of a limit of 0 that is so"},
		{leaky(1, time.Second, 0), "", "queue 0"},
		{limiter.Limit{Requests: 1, Window: per(time.Second), Burst: 1}, "burst belongs to token_bucket, not to fixed_window", "a burst elsewhere"},
		{limiter.Limit{Requests: 1, Window: per(time.Second), Algorithm: limiter.TokenBucket, Burst: 1, Queue: 1}, "queue belongs to leaky_bucket", "a queue elsewhere"},
		{limiter.Limit{Requests: 1, Window: week}, "", "a calendar week"},
		{limiter.Limit{Requests: 1, Window: week, Algorithm: limiter.SlidingWindowLog}, "does not follow the calendar", "elsewhere than fixed_window"},
	} {
		err := c.limit.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v: got %v, want %q", c.remark, c.limit, err, c.want)
		}
	}
}

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	for i, name := range limiter.AlgorithmNames() {
		if a, err := limiter.ParseAlgorithm(name); err != nil || a != limiter.Algorithm(i) || a.String() != name {
			t.Errorf("algorithm %q is read as %v (%v)", name, a, err)
		}
	}
	for i, name := range limiter.FailurePolicyNames() {
		if p, err := limiter.ParseFailurePolicy(name); err != nil || p != limiter.FailurePolicy(i) || p.String() != name {
			t.Errorf("policy %q is read as %v (%v)", name, p, err)
		}
	}
	if _, err := limiter.ParseAlgorithm("fixed window"); err == nil {
		t.Error("an algorithm that is none was read")
	}
	if _, err := limiter.ParseFailurePolicy(""); err == nil {
		t.Error("a policy that is none was read")
	}
}

// Windows that count apart have different names, as a counter's key needs.
func TestWindowsAreNamedApart(t *testing.T) {
	tokyo := time.FixedZone("Asia/Tokyo", 9*3600)
	seen := map[string]limiter.Window{}
	for _, w := range []limiter.Window{
		per(time.Second), per(time.Minute), per(limiter.DayLength), per(limiter.WeekLength), per(limiter.MonthLength), per(limiter.YearLength),
		limiter.CalendarWindow(limiter.Day, tokyo), limiter.CalendarWindow(limiter.Week, nil), limiter.CalendarWindow(limiter.Week, tokyo),
		limiter.CalendarWindow(limiter.Month, nil), limiter.CalendarWindow(limiter.Year, nil),
	} {
		if other, ok := seen[w.String()]; ok {
			t.Errorf("%+v and %+v are both named %q", w, other, w)
		}
		seen[w.String()] = w
	}
}

func TestPassesNeedsEveryPlainHitAndOneQuota(t *testing.T) {
	yes, no := limiter.Decision{Allowed: true}, limiter.Decision{}
	plain, q, s, r := on("k", fixed(1, time.Second), 1), quota(on("k", fixed(1, time.Second), 1)), shadowed(on("k", fixed(1, time.Second), 1)), back(on("k", fixed(1, time.Second), 1))
	for _, c := range []struct {
		hits   []limiter.Hit
		with   []limiter.Decision
		want   bool
		remark string
	}{
		{nil, nil, true, "no limit"},
		{hits(plain, plain), []limiter.Decision{yes, yes}, true, "all pass"},
		{hits(plain, plain), []limiter.Decision{yes, no}, false, "one refuses"},
		{hits(s, plain), []limiter.Decision{no, yes}, true, "a shadow refuses nothing"},
		{hits(r), []limiter.Decision{no}, true, "nor does a refund"},
		{hits(q, q), []limiter.Decision{no, yes}, true, "one quota has room"},
		{hits(q, q), []limiter.Decision{no, no}, false, "none has"},
		{hits(q, plain), []limiter.Decision{yes, no}, false, "a plain limit beside a quota"},
		{hits(q, plain), []limiter.Decision{no, yes}, false, "the only quota beside a plain limit"},
	} {
		if got := limiter.Passes(c.hits, c.with); got != c.want {
			t.Errorf("%s: %t", c.remark, got)
		}
	}
}
