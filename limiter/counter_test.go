package limiter_test

import (
	"testing"
	"time"
)

func TestSlidingCounterPlaysTheArticlesExample(t *testing.T) {
	play(t, slidingCounter(7, time.Minute), []step{
		{"1:00:30", cost(5), "pass left=2", "5 in the minute before"},
		{"1:01:05", cost(3), "pass left=0", "3 in this one: floor(5 × 55/60) + 3 = 7"},
		{"1:01:15", cost(1), "pass left=0", "5 × 0.75 + 3 = 6.75, cut to 6: one passes"},
		{"1:01:15", cost(1), "refuse left=0", "7.75, cut to 7: the next does not"},
	})
}

func TestSlidingCounterWeighsThePreviousWindowByWhatIsLeftOfIt(t *testing.T) {
	play(t, slidingCounter(4, time.Minute), []step{
		{"59s", cost(4), "pass left=0", "full at the window's end"},
		{"60s", cost(1), "refuse left=0 retry=1us", "at once all of it counts: floor(4 × 60/60)"},
		{"60.000001s", look(), "pass left=1", "the moment after, floor(3.99…) = 3"},
	})
	play(t, slidingCounter(4, time.Minute), []step{
		{"0s", cost(4), "pass left=0", "all in one window"},
		{"30s", cost(1), "refuse left=0 retry=30.000001s", "nothing falls before the window's end"},
		{"60s", look(), "pass left=0", "4"},
		{"75s", look(), "pass left=1", "3 exactly"},
		{"75.000001s", look(), "pass left=2", "2.99…, cut to 2"},
		{"90s", cost(2), "pass left=0", "2 + 2"},
		{"90s", cost(2), "refuse left=0 retry=15.000001s", "when the previous counts 0, 2 fit"},
		{"105.000001s", cost(2), "pass left=0", "as it said: 0 + 4"},
	})
}

func TestSlidingCounterResetsWhenTheEstimateIsNothing(t *testing.T) {
	play(t, slidingCounter(4, time.Minute), []step{
		{"30s", cost(1), "pass left=3 reset=30.000001s", "a single hit weighs under 1 just after its window"},
		{"60s", look(), "pass left=3 reset=1us", "still 1"},
		{"60.000001s", look(), "pass left=4 reset=0s", "0.99… is none"},
		{"70s", cost(4), "pass left=0 reset=95.000001s", "4 weigh under 1 past three quarters of the next window"},
		{"165s", look(), "pass left=3 reset=1us", "1 exactly"},
		{"165.000001s", look(), "pass left=4 reset=0s", "none"},
	})
}

func TestSlidingCounterForgetsAllButTheLastTwoWindows(t *testing.T) {
	play(t, slidingCounter(4, time.Minute), []step{
		{"0s", cost(4), "pass left=0", ""},
		{"120s", cost(4), "pass left=0", "a window between: nothing is left"},
	})
}

func TestSlidingCounterRefundsTheCurrentThenThePrevious(t *testing.T) {
	play(t, slidingCounter(10, time.Minute), []step{
		{"30s", cost(8), "pass left=2", "8 before"},
		{"90s", cost(4), "pass left=2", "floor(8 × 0.5) + 4"},
		{"90s", refund(3), "pass left=5", "from the current: 4 + 1"},
		{"90s", refund(3), "pass left=7", "1 from the current, 2 from the previous: floor(6 × 0.5)"},
		{"90s", refund(100), "pass left=10 reset=0s", "never below nothing used"},
		{"90s", cost(10), "pass left=0", "10 at most"},
	})
}

func TestSlidingCounterCountsWhatItDeniesUpToTwiceTheLimit(t *testing.T) {
	play(t, denied(slidingCounter(5, time.Minute)), []step{
		{"0s", cost(3), "pass left=2", "3"},
		{"1s", cost(4), "refuse left=0", "refused, and counted: 7"},
		{"1s", look(), "refuse left=0", "past the limit"},
		{"2s", cost(1000), "refuse left=0 retry=0s", "up to 10"},
		{"2s", refund(5), "pass left=0", "5"},
		{"2s", look(), "pass left=0", "at the limit, so it was 10"},
		{"2s", refund(1), "pass left=1", "4"},
		{"90s", cost(7), "refuse left=0 retry=0s", "previous counts 2, then 9: under the cap"},
		{"90s", cost(7), "refuse left=0 retry=0s", "current 8 at most"},
		{"90s", refund(8), "pass left=3", "so only the previous is left"},
	})
}

func TestSlidingCounterRetryAfterCountsTheRefusedHitWhereItWasCounted(t *testing.T) {
	play(t, denied(slidingCounter(2, time.Minute)), []step{
		{"0s", cost(2), "pass left=0", "full"},
		{"30s", cost(1), "refuse left=0 retry=50.000001s", "3 by now: 3 × 0.66 at 80s is under 2"},
		{"80.000001s", cost(1), "pass left=0", "as it said"},
	})
}

func TestSlidingCounterKeepsWhatWasUsedWhenItsLimitChanges(t *testing.T) {
	play(t, slidingCounter(4, time.Minute), []step{
		{"0s", cost(4), "pass left=0", "full"},
		{"", limitTo(6), "", ""},
		{"1s", cost(2), "pass left=0", "raised by 2"},
		{"", limitTo(3), "", ""},
		{"2s", look(), "refuse left=0 retry=78.000001s", "6 × 40/60 = 4 at 80s; a look passes just after"},
		{"80.000001s", look(), "pass left=0", "as it said"},
		{"", limitTo(0), "", ""},
		{"81s", cost(1), "refuse left=0 retry=0s reset=0s", "0"},
		{"", limitTo(9), "", ""},
		{"90s", look(), "pass left=6", "3 of 6 are left from the window before"},
		{"300s", look(), "pass left=9 reset=0s", "fresh"},
	})
}
