package limiter_test

import (
	"testing"
	"time"

	"weir/limiter"
)

func TestLeakyBucketSpacesDeparturesEvenly(t *testing.T) {
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", cost(1), "pass left=3 delay=0s", "queue 3: the first goes at once"},
		{"0s", cost(1), "pass left=2 delay=500ms", "one interval"},
		{"0s", cost(1), "pass left=1 delay=1s", "two"},
		{"0s", cost(1), "pass left=0 delay=1.5s", "three: four pass in all"},
		{"0s", cost(1), "refuse left=0 retry=500ms", "the queue is full"},
		{"500ms", cost(1), "pass left=0 delay=1.5s", "one has left: behind the others, at 2s"},
		{"700ms", cost(1), "refuse left=0 retry=300ms", "no place before 1s"},
		{"1.2s", cost(1), "pass left=0 delay=1.3s", "at 2.5s: the departures stay in step"},
		{"10s", cost(1), "pass left=3 delay=0s", "an empty bucket holds nobody"},
	})
}

func TestLeakyBucketWithoutAQueueLetsOneThroughAnInterval(t *testing.T) {
	play(t, leaky(2, time.Second, 0), []step{
		{"0s", cost(1), "pass left=0", "one"},
		{"0s", cost(1), "refuse left=0 retry=500ms", "nobody may wait"},
		{"499.999ms", cost(1), "refuse left=0 retry=1us", "a microsecond early"},
		{"500ms", cost(1), "pass left=0", "the next"},
		{"500ms", cost(2), "refuse left=0 retry=0s", "a cost of two never fits"},
	})
}

func TestLeakyBucketTakesACostAsSoManyPlaces(t *testing.T) {
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", cost(3), "pass left=1 delay=0s reset=1.5s", "its turn is that of its first place"},
		{"0s", cost(2), "refuse left=1 retry=500ms", "ceil(3) + 2 - 1 > 3"},
		{"0s", cost(1), "pass left=0 delay=1.5s", ""},
		{"0s", cost(5), "refuse left=0 retry=0s", "more than queue + 1 never passes"},
		{"100ms", cost(1), "refuse left=0 retry=400ms", "ceil(3.8) is 4: a place is free when all of it is"},
	})
}

func TestLeakyBucketRefusesADelayThatDoesNotFitTheDeadline(t *testing.T) {
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", within(0), "pass left=3 delay=0s", "no delay fits any deadline"},
		{"0s", within(0), "refuse left=3 retry=500ms", "retry-after = delay - deadline; not charged"},
		{"0s", within(499_999 * time.Microsecond), "refuse left=3 retry=1us", "a microsecond short"},
		{"0s", within(500 * time.Millisecond), "pass left=2 delay=500ms", "it fits exactly"},
		{"0s", within(-time.Second), "refuse left=2 retry=1s", "a deadline that has passed fits nothing"},
		{"300ms", within(0), "refuse left=2 retry=700ms", "still two before it"},
		{"1s", within(0), "pass left=3", "waiting so long was enough"},
		{"1s", cost(3), "pass left=0 delay=500ms", "the queue is full"},
		{"1s", within(200 * time.Millisecond), "refuse left=0 retry=1.8s", "full, and too long: the longer of both"},
		{"1s", within(limiter.NoDeadline), "refuse left=0 retry=500ms", "only full"},
	})
}

func TestLeakyBucketDoesNotCountARefusalForTheDeadlinesSake(t *testing.T) {
	play(t, denied(leaky(2, time.Second, 3)), []step{
		{"0s", cost(1), "pass left=3", ""},
		{"0s", within(0), "refuse left=3 retry=500ms", "too late for its caller: not counted even so"},
		{"0s", cost(3), "pass left=0 delay=500ms", ""},
		{"0s", cost(1), "refuse left=0 retry=1s", "full: counted, so 5"},
		{"0s", within(0), "refuse left=0 retry=3s", "full comes first: counted, so 6, which must drain for no delay"},
		{"0s", look(), "refuse left=0 retry=1s", "a look passes at 4"},
		{"0s", cost(1000), "refuse left=0 retry=0s reset=3s", "up to queue + 1 + limit = 6"},
	})
}

func TestLeakyBucketNeverHoldsALook(t *testing.T) {
	hurry := look()
	hurry.hit.MaxDelay = 0
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", cost(3), "pass left=1", ""},
		{"0s", hurry, "pass left=1 delay=0s", "a look has no turn to wait for"},
		{"0s", cost(1), "pass left=0 delay=1.5s", ""},
		{"0s", hurry, "pass left=0 delay=0s", "full is not over the limit"},
	})
}

func TestLeakyBucketGivesNothingBack(t *testing.T) {
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", cost(4), "pass left=0", ""},
		{"0s", refund(4), "pass left=0 reset=2s", "places are promised"},
		{"500ms", refund(1), "pass left=1 reset=1.5s", "it only drains"},
		{"-100ms", look(), "pass left=0 reset=2s", "nor did the refund move the counter's own time"},
	})
}

func TestLeakyBucketKeepsWhatWasUsedWhenItsLimitChanges(t *testing.T) {
	play(t, leaky(2, time.Second, 3), []step{
		{"0s", cost(4), "pass left=0", "full"},
		{"", queueTo(2, 5), "", ""},
		{"0s", cost(1), "pass left=1 delay=2s", "a longer queue"},
		{"", queueTo(2, 1), "", ""},
		{"0s", look(), "refuse left=0 retry=1.5s", "5 of 2: no underflow"},
		{"0s", cost(1), "refuse left=0 retry=2s", ""},
		{"1.5s", look(), "pass left=0", "as it said"},
		{"", queueTo(4, 3), "", ""},
		{"0s", look(), "refuse left=0 reset=1.25s", "the same backlog leaks twice as fast"},
		{"", queueTo(0, 3), "", ""},
		{"0s", cost(1), "refuse left=0 retry=0s reset=0s", "limit 0, whatever the queue"},
		{"", queueTo(2, 3), "", ""},
		{"9s", look(), "pass left=4 reset=0s", "never more than a fresh one: queue + 1"},
	})
}
