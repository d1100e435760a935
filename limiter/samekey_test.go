package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestTwoHitsOnOneKeyAreCheckedTogether(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		room := l
		wait := map[limiter.Algorithm]string{
			limiter.FixedWindow: "60s", limiter.TokenBucket: "15s", limiter.LeakyBucket: "15s",
			limiter.SlidingWindowLog: "60s", limiter.SlidingWindowCounter: "60.000001s",
		}[l.Algorithm]
		delay := func(d string) string {
			if l.Algorithm == limiter.LeakyBucket {
				return " delay=" + d
			}
			return ""
		}
		playRequests(t, allOrNothing, []request{
			{"0s", hits(on("k", room, 2), on("k", room, 1)), "pass left=1|pass left=1" + delay("30s"), true, "3 of 4: both are charged"},
			{"0s", hits(on("k", room, 1), on("k", room, 1)), "pass left=1|refuse left=1 retry=" + wait, false, "5 of 4: neither is; the retry-after is for both"},
			{"0s", hits(on("k", room, 3), on("k", room, 2)), "refuse left=1|refuse left=1 retry=0s", false, "together they can never pass"},
			{"0s", hits(on("k", room, 1), on("k", room, 0)), "pass left=0" + delay("45s") + "|pass left=0", true, "a hit and a look"},
		})
	})
}

func TestThreeHitsOnOneKeyAreCheckedTogether(t *testing.T) {
	l := fixed(5, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 2), on("k", l, 2), on("k", l, 2)), "pass left=5|pass left=5|refuse left=5 retry=0s", false, "6 of 5: never"},
		{"0s", hits(on("k", l, 2), on("j", l, 5), on("k", l, 2), on("k", l, 1)), "pass left=0|pass left=0|pass left=0|pass left=0", true, "5 of 5, with another key between"},
		{"1s", hits(on("k", l, 1), on("k", l, 1), on("k", l, 1)), "refuse retry=59s|refuse retry=59s|refuse retry=59s", false, "no room for any"},
		{"1m", hits(on("k", l, 1), on("k", l, 1), on("k", l, 1)), "pass|pass|pass left=2", true, "as it said"},
	})
}

func TestALookAmongHitsOnOneKeySeesWhatPassesBeforeIt(t *testing.T) {
	l := denied(fixed(5, time.Minute))
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 0), on("k", l, 5), on("k", l, 0)), "pass left=0|pass left=0|pass left=0", true, "at the limit, looks pass before and after"},
		{"0s", hits(on("k", l, 0), on("k", l, 1), on("k", l, 0)), "pass left=0|refuse left=0 retry=60s|pass left=0", false, "used was 5 when it was asked"},
		{"1s", hits(on("k", l, 0), on("k", l, 0)), "refuse left=0 retry=59s|refuse left=0 retry=59s", false, "and is 6 now"},
	})
}

func TestRefundsOnOneKeyMakeRoomForItsHits(t *testing.T) {
	l := fixed(5, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 5)), "pass left=0", true, ""},
		{"0s", hits(on("k", l, 1), on("k", l, 1), back(on("k", l, 3))), "pass left=1|pass left=1|pass left=1", true, "3 back, then 2"},
		{"0s", hits(on("k", l, 3), back(on("k", l, 1)), on("k", l, 1)), "refuse left=2|pass left=2|refuse left=2 retry=60s", false, "1 back, then 4 in 2"},
	})
}

func TestHitsOnOneKeyLeaveALeakyBucketOneAfterTheOther(t *testing.T) {
	l := leaky(2, time.Second, 3)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 1), on("k", l, 1), on("k", l, 1)), "pass left=1 delay=0s|pass left=1 delay=500ms|pass left=1 delay=1s", true, "each behind those before it"},
		{"0s", hits(on("k", l, 1), on("k", l, 1)), "pass left=1|refuse left=1 retry=500ms", false, "a place short"},
		{"500ms", hits(on("k", l, 1), on("k", l, 1)), "pass left=0 delay=1s|pass left=0 delay=1.5s", true, "as it said"},
	})
}

func TestHitsOnOneKeyMustEachFitTheDeadline(t *testing.T) {
	l := leaky(2, time.Second, 3)
	second := func(d time.Duration) limiter.Hit { return hurried(on("k", l, 1), d) }
	playRequests(t, allOrNothing, []request{
		{"0s", hits(second(500*time.Millisecond), second(500*time.Millisecond)), "pass left=2|pass left=2 delay=500ms", true, "the second departs an interval later"},
		{"0s", hits(second(time.Second), second(time.Second)), "pass left=2|refuse left=2 retry=500ms", false, "it would depart at 1.5s"},
		{"500ms", hits(second(time.Second), second(time.Second)), "pass left=1 delay=500ms|pass left=1 delay=1s", true, "as it said"},
		{"500ms", hits(second(499*time.Millisecond), second(499*time.Millisecond)), "refuse retry=1.001s|refuse retry=0s", false,
			"the second departs an interval behind the first even from an empty bucket: it can never fit"},
		{"10s", hits(second(0), second(0)), "pass left=4|refuse left=4 retry=0s", false, "so from an empty bucket"},
	})
}

func TestShadowHitsOnOneKeyAreChargedAsFarAsTheyFit(t *testing.T) {
	l := fixed(5, time.Minute)
	playRequests(t, allOrNothing, []request{
		{"0s", hits(shadowed(on("k", l, 3)), shadowed(on("k", l, 3)), shadowed(on("k", l, 2))), "pass left=0|refuse left=0 retry=60s|pass left=0", true, "what is refused leaves its room to the next"},
		{"1m", hits(quota(on("k", l, 3)), quota(on("k", l, 3)), quota(on("k", l, 2))), "pass left=0|refuse left=0 retry=60s|pass left=0", true, "and for quotas"},
	})
}

func TestCountDeniedOfHitsOnOneKey(t *testing.T) {
	l := denied(fixed(5, time.Minute))
	playRequests(t, allOrNothing, []request{
		{"0s", hits(on("k", l, 3), on("k", l, 4)), "pass left=1|refuse left=1 retry=0s", false, "only the hit that was refused is counted: 4"},
		{"0s", hits(on("k", l, 1), on("k", l, 1)), "pass left=0|refuse left=0 retry=60s", false, "5"},
		{"0s", hits(on("k", l, 0)), "pass left=0", true, "at the limit"},
		{"0s", hits(on("k", l, 4), on("k", l, 4)), "refuse|refuse", false, "both counted, up to 2 × limit"},
		{"0s", hits(back(on("k", l, 5)), on("k", l, 0)), "pass left=0|pass left=0", true, "so it was 10"},
	})
}
