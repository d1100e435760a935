package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestTokenBucketLetsABurstThroughThenItsRate(t *testing.T) {
	play(t, tokens(2, time.Second, 4), []step{
		{"0s", cost(1), "pass left=3 reset=500ms", "2 a second, a bucket of 4, which is full"},
		{"0s", cost(3), "pass left=0 reset=2s", "a burst of 4 in all"},
		{"0s", cost(1), "refuse left=0 retry=500ms", "the next token comes in half a second"},
		{"0s", cost(4), "refuse left=0 retry=2s", "four in two seconds"},
		{"0s", cost(5), "refuse left=0 retry=0s", "five never"},
		{"499.999ms", cost(1), "refuse left=0 retry=1us", "a microsecond early"},
		{"500ms", cost(1), "pass left=0", "one token"},
		{"1.75s", cost(2), "pass left=0 reset=1.75s", "two and a half came"},
		{"2s", cost(1), "pass left=0", "the half was not lost"},
		{"1m", look(), "pass left=4 reset=0s", "full, and no more"},
	})
}

func TestTokenBucketLosesNoFraction(t *testing.T) {
	play(t, tokens(1, time.Second, 1), []step{
		{"0s", cost(1), "pass left=0", ""},
		{"500ms", cost(1), "refuse left=0 retry=500ms", "looking does not set it back"},
		{"1300ms", cost(1), "pass left=0", ""},
		{"1900ms", cost(1), "refuse left=0 retry=400ms", ""},
		{"2550ms", cost(1), "pass left=0", ""},
	})
	play(t, tokens(3, time.Second, 3), []step{ // a token each 333,333.3… µs
		{"0s", cost(3), "pass left=0", ""},
		{"0.333333s", cost(1), "refuse left=0 retry=1us", "a third of a microsecond early"},
		{"0.333334s", cost(1), "pass left=0", "the two thirds over are kept"},
		{"0.666666s", cost(1), "refuse left=0 retry=1us", ""},
		{"0.666667s", cost(1), "pass left=0", ""},
		{"0.999999s", cost(1), "refuse left=0 retry=1us", ""},
		{"1s", cost(1), "pass left=0 reset=1s", "three in exactly a second"},
	})
}

func TestTokenBucketIsIndependentOfTheLimitsNumber(t *testing.T) {
	play(t, tokens(1, limiter.MaxWindow, 1), []step{
		{"0s", cost(1), "pass left=0 reset=8784h", "one in 366 days"},
		{"8783h59m59.999s", cost(1), "refuse left=0 retry=1ms", "a millisecond early"},
		{"8784h", cost(1), "pass left=0", ""},
	})
	play(t, tokens(limiter.MaxRequests, time.Second, limiter.MaxRequests), []step{
		{"0s", cost(limiter.MaxRequests), "pass left=0 reset=1s", "2^32 - 1 a second"},
		{"1us", look(), "pass left=4294", "4294.967295 a microsecond"},
		{"2us", look(), "pass left=8589", "the fraction was kept"},
		{"1s", look(), "pass left=4294967295 reset=0s", ""},
	})
	play(t, tokens(50_000_000, 24*time.Hour, 50_000_000), []step{
		{"0s", cost(50_000_000), "pass left=0 reset=24h", "fifty million a day"},
		{"1s", look(), "pass left=578", "578.7 a second"},
	})
}

func TestTokenBucketRefundsTokens(t *testing.T) {
	play(t, tokens(2, time.Second, 4), []step{
		{"0s", cost(4), "pass left=0", ""},
		{"0s", refund(3), "pass left=3 reset=500ms", "3 back"},
		{"250ms", refund(1), "pass left=4 reset=0s", "half a token was out: never below nothing used"},
		{"250ms", cost(4), "pass left=0", "4 at most"},
	})
}

func TestTokenBucketCountsWhatItDeniesUpToBurstAndLimit(t *testing.T) {
	play(t, denied(tokens(2, time.Second, 4)), []step{
		{"0s", cost(3), "pass left=1", ""},
		{"0s", cost(2), "refuse left=0 retry=1.5s", "refused, and counted: 5; 2 fit when 3 have drained"},
		{"0s", look(), "refuse left=0 retry=500ms", "past the burst"},
		{"0s", cost(1000), "refuse left=0 retry=0s reset=3s", "up to (4 + 2) × 1s"},
		{"1s", look(), "pass left=0", "back at the burst"},
		{"1.5s", cost(1), "pass left=0", "a token"},
	})
}

func TestTokenBucketKeepsWhatWasUsedWhenItsLimitChanges(t *testing.T) {
	play(t, tokens(2, time.Second, 4), []step{
		{"0s", cost(4), "pass left=0", "full"},
		{"", burstTo(2, 6), "", ""},
		{"0s", cost(2), "pass left=0", "a burst raised by 2"},
		{"", burstTo(2, 3), "", ""},
		{"0s", look(), "refuse left=0 retry=1.5s", "6 of 3: no underflow"},
		{"0s", cost(1), "refuse left=0 retry=2s", ""},
		{"1.5s", look(), "pass left=0", "as it said"},
		{"2s", cost(1), "pass left=0 reset=1.5s", ""},
		{"", burstTo(6, 3), "", ""},
		{"2s", look(), "pass left=0 reset=500ms", "the same backlog drains three times as fast"},
		{"", burstTo(0, 3), "", ""},
		{"2s", look(), "refuse left=0 retry=0s reset=0s", "limit 0, whatever the burst"},
		{"", burstTo(6, 3), "", ""},
		{"9s", look(), "pass left=3 reset=0s", "never more than a fresh one"},
	})
}
