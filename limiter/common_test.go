package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestCostSaturatesAt2To32(t *testing.T) {
	for _, l := range []limiter.Limit{
		fixed(limiter.MaxRequests, time.Minute), slidingCounter(limiter.MaxRequests, time.Minute),
		tokens(1, time.Second, limiter.MaxRequests), leaky(1, time.Second, limiter.MaxRequests-1),
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			play(t, l, []step{
				{"0s", cost(1<<64 - 1), "refuse left=4294967295 retry=0s", "the largest number neither wraps nor passes"},
				{"0s", cost(1 << 63), "refuse left=4294967295 retry=0s", "nor does the sign bit"},
				{"0s", cost(limiter.MaxCost), "refuse left=4294967295 retry=0s", "2^32 is over every limit"},
				{"0s", cost(limiter.MaxRequests), "pass left=0 delay=0s", "2^32 - 1 is the largest that passes"},
				{"0s", cost(1), "refuse left=0", "and fills it"},
				{"0s", refund(1<<64 - 1), "pass", "a refund saturates too"},
			})
		})
	}
}

func TestCountedDenialsOfTheLargestNumbersStayExact(t *testing.T) {
	most := uint64(limiter.MaxRequests)
	for _, l := range []limiter.Limit{fixed(most, time.Hour), slidingCounter(most, time.Hour)} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			play(t, denied(l), []step{
				{"0s", cost(most), "pass left=0", ""},
				{"0s", cost(1<<64 - 1), "refuse left=0 retry=0s", "counted, up to 2 × limit"},
				{"0s", refund(most), "pass left=0", "2^32 - 1 are still used"},
				{"0s", look(), "pass left=0", "exactly"},
				{"0s", refund(1), "pass left=1", ""},
			})
		})
	}
	play(t, denied(tokens(most, time.Hour, 1_250_999)), []step{ // the largest burst for an hour
		{"0s", cost(1<<64 - 1), "refuse left=0 retry=0s", "(burst + limit) × W is over 2^53, where it stops"},
		{"1h", look(), "pass left=1250999 reset=0s", "and drains"},
	})
	play(t, denied(leaky(1, time.Hour, 1_250_999)), []step{
		{"0s", cost(1_251_000), "pass left=0 reset=1251000h", "the largest queue"},
		{"0s", cost(1), "refuse left=0 retry=2h", "counted"},
		{"2h", cost(1), "pass left=0 delay=1250999h", "as it said"},
	})
}

func TestACostThatCanNeverPassHasNoRetryAfter(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		play(t, l, []step{
			{"0s", cost(5), "refuse left=4 retry=0s reset=0s", "5 of 4, on a fresh counter"},
			{"0s", cost(3), "pass left=1", ""},
			{"1s", cost(5), "refuse retry=0s", "and on a used one"},
			{"1s", cost(4), "refuse retry=" + map[limiter.Algorithm]string{
				limiter.FixedWindow: "59s", limiter.TokenBucket: "44s", limiter.LeakyBucket: "44s",
				limiter.SlidingWindowLog: "59s", limiter.SlidingWindowCounter: "99.000001s",
			}[l.Algorithm], "4 of 4 has one"},
		})
	})
}

func TestRefusedCostsChangeNothing(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		play(t, l, []step{
			{"0s", cost(2), "pass left=2", ""},
			{"0s", cost(3), "refuse left=2", "a request passes only if all of its cost does"},
			{"0s", cost(1<<64 - 1), "refuse left=2", ""},
			{"0s", look(), "pass left=2", "as before"},
			{"0s", refund(1 << 20), "pass", "nothing to give back but what was charged"},
		})
	})
}

func TestLooksPassWhenUsedIsWithinTheLimit(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		play(t, l, []step{
			{"0s", look(), "pass left=4 reset=0s", "a fresh counter"},
			{"0s", cost(2), "pass left=2", ""},
			{"0s", look(), "pass left=2", "charges nothing"},
			{"0s", refund(0), "pass left=2", "nor does a refund of nothing"},
			{"0s", change(func(l *limiter.Limit) { l.CountDenied = true }), "", ""},
			{"0s", cost(3), "refuse left=0", "counted: past the limit"},
			{"0s", look(), "refuse left=0", "a look is refused"},
			{"0s", look(), "refuse left=0", "which counts nothing: it still is by as much"},
			{"10m", look(), "pass left=4", "and passes when used is back"},
		})
	})
}

func TestLimitZeroRefusesEverything(t *testing.T) {
	for _, l := range []limiter.Limit{
		fixed(0, time.Minute), tokens(0, time.Minute, 7), leaky(0, time.Minute, 7),
		slidingLog(0, time.Minute), slidingCounter(0, time.Minute), denied(fixed(0, time.Minute)), denied(slidingLog(0, time.Minute)),
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			play(t, l, []step{
				{"0s", cost(1), "refuse left=0 retry=0s reset=0s", "a cost"},
				{"0s", look(), "refuse left=0 retry=0s reset=0s", "a look"},
				{"0s", refund(1), "pass left=0", "a refund is no question"},
				{"", limitTo(4), "", ""},
				{"0s", look(), "pass", "nothing was counted meanwhile"},
			})
		})
	}
}

func TestUnitOfTimeIsAMicrosecondUpToAnHour(t *testing.T) {
	for _, c := range []struct {
		window time.Duration
		unit   string
	}{{time.Millisecond, "1us"}, {time.Hour, "1us"}, {time.Hour + time.Millisecond, "1ms"}, {limiter.MaxWindow, "1ms"}} {
		t.Run(c.window.String(), func(t *testing.T) {
			unit, _ := time.ParseDuration(c.unit)
			play(t, slidingLog(1, c.window), []step{
				{"999ns", cost(1), "pass left=0 reset=" + c.window.String(), "what is less than a unit is cut"},
				{(c.window - unit).String(), cost(1), "refuse retry=" + c.unit, "a unit before it has left"},
				{(c.window - 1).String(), cost(1), "refuse retry=" + c.unit, "a nanosecond before"},
				{c.window.String(), cost(1), "pass left=0", "on the dot"},
			})
		})
	}
}

func TestWindowsFrom1msTo366Days(t *testing.T) {
	for _, w := range []time.Duration{limiter.MinWindow, limiter.MaxWindow} {
		forEach(t, w, func(t *testing.T, l limiter.Limit) {
			play(t, l, []step{
				{"0s", cost(4), "pass left=0", ""},
				{"0s", cost(1), "refuse left=0", ""},
				{(2 * w).String(), look(), "pass left=4 reset=0s", "two windows later all is as new"},
			})
		})
	}
}

// Every algorithm: a state ahead of now, as another instance's clock or a
// correction leaves it.
func TestClockStepsBack(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		ofItsOwnTime := "left=1"
		play(t, l, []step{
			{"10m", cost(3), "pass left=1", ""},
			{"9m50s", look(), "pass " + ofItsOwnTime, "ten seconds: nothing refills"},
			{"9m", look(), "pass " + ofItsOwnTime, "a whole window: still read as of its own time"},
			{"9m", cost(2), "refuse left=1", "and still refuses"},
			{"7m59.999999s", look(), "pass left=4 reset=0s", "farther: dropped"},
			{"10m", look(), "pass left=1", "a look drops nothing for good"},
			{"7m", cost(2), "pass left=2", "a hit does"},
			{"7m", look(), "pass left=2", ""},
		})
	})
}

func TestNobodyWaitsLongerWhenTheClockSteppedBack(t *testing.T) {
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		wait := map[limiter.Algorithm]string{
			limiter.FixedWindow: "60s", limiter.TokenBucket: "15s", limiter.LeakyBucket: "15s",
			limiter.SlidingWindowLog: "60s", limiter.SlidingWindowCounter: "60.000001s",
		}[l.Algorithm]
		play(t, l, []step{
			{"10m", cost(4), "pass left=0", ""},
			{"10m", cost(1), "refuse retry=" + wait, ""},
			{"9m1s", cost(1), "refuse retry=" + wait, "as of the state's own time, not 59s longer"},
		})
	})
}

func TestChargesOnAStateAheadKeepItsTime(t *testing.T) {
	play(t, slidingLog(3, time.Minute), []step{
		{"10m", cost(1), "pass left=2", ""},
		{"9m30s", cost(1), "pass left=1", "logged at 10m"},
		{"10m59.999999s", look(), "pass left=1", ""},
		{"11m", look(), "pass left=3", "both leave together"},
	})
	play(t, tokens(4, time.Minute, 4), []step{
		{"10m", cost(2), "pass left=2", ""},
		{"9m30s", cost(2), "pass left=0", ""},
		{"10m", cost(1), "refuse left=0 retry=15s", "nothing drained on the way back to 10m"},
	})
	play(t, fixed(4, time.Minute), []step{
		{"10m", cost(2), "pass left=2", ""},
		{"9m30s", cost(2), "pass left=0 reset=1m", "in the window that it had reached"},
		{"10m30s", look(), "pass left=0", ""},
	})
	play(t, slidingCounter(4, time.Minute), []step{
		{"9m", cost(2), "pass left=2", ""},
		{"10m30s", cost(3), "pass left=0", "1 + 3"},
		{"9m30s", cost(1), "refuse left=0", "2 + 3: as at 10m, where nothing has faded"},
		{"11m", look(), "pass left=1", "3 before"},
	})
}

func TestTimesBefore1970AreItsBeginning(t *testing.T) {
	play(t, fixed(4, time.Minute), []step{
		{"-1000000h0m30s", cost(4), "pass left=0 reset=60s", "1911, and no half of a minute"},
	})
	forEach(t, time.Minute, func(t *testing.T, l limiter.Limit) {
		play(t, l, []step{
			{"-1000000h", cost(4), "pass left=0", "1911"},
			{"-1000000h", cost(1), "refuse left=0", ""},
			{"0s", look(), "pass left=4", "2026"},
		})
	})
}
