package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestFixedWindowLetsTwiceTheLimitThroughAroundABoundary(t *testing.T) {
	play(t, fixed(5, time.Minute), []step{
		{"1:00:55", cost(1), "pass left=4 reset=5s", "five a minute: the first at the minute's end"},
		{"1:00:56", cost(1), "pass left=3 reset=4s", "second"},
		{"1:00:57", cost(1), "pass left=2 reset=3s", "third"},
		{"1:00:58", cost(1), "pass left=1 reset=2s", "fourth"},
		{"1:00:59", cost(1), "pass left=0 reset=1s", "fifth"},
		{"1:00:59", cost(1), "refuse left=0 retry=1s", "the minute is full"},
		{"1:01:00", cost(1), "pass left=4 reset=60s", "the next minute begins on the dot"},
		{"1:01:01", cost(1), "pass left=3", "seventh"},
		{"1:01:02", cost(1), "pass left=2", "eighth"},
		{"1:01:03", cost(1), "pass left=1", "ninth"},
		{"1:01:04", cost(1), "pass left=0", "the tenth within ten seconds"},
		{"1:01:05", cost(1), "refuse left=0 retry=55s", "the eleventh is not"},
	})
}

func TestFixedWindowPassesIfCountAndCostAreWithinTheLimit(t *testing.T) {
	play(t, fixed(5, time.Minute), []step{
		{"10s", cost(3), "pass left=2", "3 of 5"},
		{"11s", cost(3), "refuse left=2 retry=49s", "3 + 3 is over"},
		{"12s", cost(2), "pass left=0", "the refused cost was not counted: 3 + 2"},
		{"13s", cost(1), "refuse left=0 retry=47s", "full"},
		{"60s", cost(5), "pass left=0 reset=60s", "all of it in the next window"},
	})
}

func TestFixedWindowsStartAtMultiplesSince1970(t *testing.T) {
	week := fixed(2, limiter.WeekLength) // 1970 began on a Thursday
	play(t, week, []step{
		{"0s", cost(1), "pass left=1 reset=72h", "Monday: a fixed week ends on Thursday's midnight"},
		{"71h59m59.999s", cost(1), "pass left=0 reset=1ms", "its last millisecond"},
		{"72h", cost(1), "pass left=1 reset=168h", "Thursday"},
	})
	play(t, fixed(2, 7*time.Second), []step{ // monday is 1767571200 s, 3 s into its window of 7
		{"0s", cost(1), "pass left=1 reset=4s", "no divisor of a minute or a day"},
		{"4s", cost(1), "pass left=1 reset=7s", "the next"},
	})
}

func TestFixedWindowRefundsInTheCurrentWindowOnly(t *testing.T) {
	play(t, fixed(5, time.Minute), []step{
		{"10s", cost(4), "pass left=1", "4 of 5"},
		{"20s", refund(3), "pass left=4", "3 back"},
		{"30s", refund(9), "pass left=5 reset=0s", "not below nothing used"},
		{"40s", cost(4), "pass left=1", "4 again"},
		{"70s", refund(4), "pass left=5 reset=0s", "the next window has nothing to give back"},
		{"71s", cost(5), "pass left=0", "it had not gone below 0"},
	})
}

func TestFixedWindowCountsWhatItDeniesUpToTwiceTheLimit(t *testing.T) {
	play(t, denied(fixed(5, time.Minute)), []step{
		{"0s", cost(3), "pass left=2", "3 of 5"},
		{"1s", cost(4), "refuse left=0 retry=59s", "refused, and counted: 7"},
		{"2s", look(), "refuse left=0 retry=58s", "past the limit, a look is refused"},
		{"3s", refund(1), "pass left=0", "6"},
		{"4s", look(), "refuse left=0", "still past it"},
		{"5s", refund(1), "pass left=0", "5"},
		{"6s", look(), "pass left=0", "back at the limit"},
		{"7s", cost(1000), "refuse left=0 retry=0s", "more than can ever pass is counted too, up to 10"},
		{"8s", refund(5), "pass left=0", "5"},
		{"9s", look(), "pass left=0", "so it was 10"},
		{"60s", look(), "pass left=5", "the next window is fresh"},
	})
}

func TestFixedWindowKeepsWhatWasUsedWhenItsLimitChanges(t *testing.T) {
	play(t, fixed(5, time.Minute), []step{
		{"0s", cost(5), "pass left=0", "all of it"},
		{"", limitTo(8), "", ""},
		{"1s", look(), "pass left=3", "raised by 3"},
		{"2s", cost(3), "pass left=0", "which pass"},
		{"", limitTo(3), "", ""},
		{"3s", look(), "refuse left=0 retry=57s", "lowered below what was used: no underflow"},
		{"4s", cost(1), "refuse left=0 retry=56s", "nor does a hit pass"},
		{"", limitTo(0), "", ""},
		{"5s", look(), "refuse left=0 retry=0s reset=0s", "0 refuses looks, with no retry-after"},
		{"", limitTo(9), "", ""},
		{"6s", look(), "pass left=1", "8 are still used"},
		{"60s", look(), "pass left=9", "never more than a fresh counter"},
	})
}
