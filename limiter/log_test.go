package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestSlidingLogPlaysTheArticlesExample(t *testing.T) {
	for name, l := range map[string]limiter.Limit{"refused hits counted": denied(slidingLog(3, time.Minute)), "not counted": slidingLog(3, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			play(t, l, []step{
				{"1:00:01", cost(1), "pass left=2", "three a minute: the first"},
				{"1:00:30", cost(1), "pass left=1", "second"},
				{"1:00:50", cost(1), "pass left=0", "third"},
				{"1:01:20", cost(1), "pass left=0", "1:00:01 has left"},
				{"1:01:25", cost(1), "refuse left=0", "1:00:30, 1:00:50 and 1:01:20 are younger than a minute"},
			})
		})
	}
}

func TestSlidingLogCountsTheHitsYoungerThanTheWindow(t *testing.T) {
	play(t, slidingLog(3, time.Minute), []step{
		{"0s", cost(1), "pass left=2 reset=60s", "first"},
		{"20s", cost(2), "pass left=0 reset=60s", "full"},
		{"59.999999s", cost(1), "refuse left=0 retry=1us", "a microsecond before the first has left"},
		{"60s", cost(1), "pass left=0", "a hit exactly one window old has left"},
		{"60s", cost(1), "refuse left=0 retry=20s", "until the second leaves"},
		{"80s", look(), "pass left=2 reset=40s", "both of its cost leave at once"},
		{"120s", look(), "pass left=3 reset=0s", "all have left"},
	})
}

func TestSlidingLogRetryAfterWaitsForAsMuchAsTheCostNeeds(t *testing.T) {
	play(t, slidingLog(5, time.Minute), []step{
		{"0s", cost(1), "pass left=4", ""},
		{"10s", cost(2), "pass left=2", ""},
		{"20s", cost(2), "pass left=0", ""},
		{"30s", cost(1), "refuse left=0 retry=30s", "one leaves at 60s"},
		{"30s", cost(2), "refuse left=0 retry=40s", "three have left at 70s"},
		{"30s", cost(4), "refuse left=0 retry=50s", "all at 80s"},
		{"30s", cost(6), "refuse left=0 retry=0s", "never"},
	})
}

func TestSlidingLogCountsTheRefusedHitInItsRetryAfter(t *testing.T) {
	play(t, denied(slidingLog(2, time.Minute)), []step{
		{"0s", cost(1), "pass left=1", "first"},
		{"10s", cost(1), "pass left=0", "second"},
		{"30s", cost(1), "refuse left=0 retry=40s", "it was logged, so both must leave: 70s"},
		{"70s", cost(1), "pass left=0", "as it said: only 30s is left"},
		{"71s", cost(2), "refuse left=0 retry=60s", "a cost of 2 needs its own trace to leave"},
		{"131s", cost(2), "pass left=0", "as it said"},
	})
}

func TestSlidingLogKeepsLimitPlusOneAtMost(t *testing.T) {
	play(t, denied(slidingLog(3, time.Minute)), []step{
		{"0s", cost(3), "pass left=0", "3"},
		{"10s", cost(1), "refuse left=0", "4 kept: limit + 1"},
		{"20s", cost(2), "refuse left=0", "the oldest is dropped in part: 1 at 0s, 1 at 10s, 2 at 20s"},
		{"60s", look(), "pass left=0 reset=20s", "the rest of the oldest has left: 3"},
		{"60s", refund(2), "pass left=2 reset=10s", "the newest first: 1 at 10s stays"},
		{"61s", cost(1000), "refuse left=0 retry=0s reset=60s", "a cost over the limit counts as limit + 1"},
		{"62s", refund(1), "pass left=0 reset=59s", "so this is 3"},
		{"62s", look(), "pass left=0", "at the limit"},
		{"121s", look(), "pass left=3 reset=0s", "all have left"},
	})
}

func TestSlidingLogRefundsTheNewestFirst(t *testing.T) {
	play(t, slidingLog(6, time.Minute), []step{
		{"0s", cost(2), "pass left=4 reset=60s", "oldest"},
		{"10s", cost(2), "pass left=2 reset=60s", ""},
		{"20s", cost(2), "pass left=0 reset=60s", "newest"},
		{"30s", refund(1), "pass left=1 reset=50s", "half of the newest"},
		{"30s", refund(2), "pass left=3 reset=40s", "the rest of it, and one of the second"},
		{"60s", look(), "pass left=5 reset=10s", "the oldest were untouched until they left"},
		{"60s", refund(7), "pass left=6 reset=0s", "never below nothing used"},
		{"61s", cost(6), "pass left=0", "6 at most"},
	})
}

func TestSlidingLogKeepsWhatWasUsedWhenItsLimitChanges(t *testing.T) {
	play(t, slidingLog(4, time.Minute), []step{
		{"0s", cost(2), "pass left=2", ""},
		{"10s", cost(2), "pass left=0", "full"},
		{"", limitTo(6), "", ""},
		{"20s", cost(2), "pass left=0", "raised by 2"},
		{"", limitTo(3), "", ""},
		{"30s", look(), "refuse left=0 retry=40s", "6 of 3: a look passes when the first four have left"},
		{"30s", cost(2), "refuse left=0 retry=50s", "a cost of 2 when all have"},
		{"70s", look(), "pass left=1", "as it said"},
		{"", limitTo(0), "", ""},
		{"71s", cost(1), "refuse left=0 retry=0s reset=0s", "0"},
		{"", limitTo(100), "", ""},
		{"200s", look(), "pass left=100", "fresh"},
	})
}
