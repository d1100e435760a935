package limiter_test

import (
	"context"
	"testing"
	"time"

	"weir/limiter"
	"weir/limiter/limitertest"
)

// Four a minute, and two may wait.
func TestOverTheLimitARequestWaitsInTheQueue(t *testing.T) {
	queue := limiter.Key("queue")
	clock := limitertest.NewClock(time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC))
	store := limitertest.NewReference(limiter.Options{}, clock.Now)
	for _, step := range []struct {
		after   time.Duration
		waiting int64
		cost    uint64
		want    limiter.Decision
		remark  string
	}{
		{0, 0, 0, limiter.Decision{Allowed: true, Remaining: 3}, "a look finds the places of the queue and one that departs"},
		{0, 0, 1, limiter.Decision{Allowed: true, Remaining: 2, ResetAfter: 15 * time.Second}, "a departure is due, and nobody waits"},
		{time.Second, 0, 1, limiter.Decision{Allowed: true, Queued: true, Delay: 14 * time.Second, Remaining: 1, ResetAfter: 29 * time.Second}, "none is due for 14 s: it waits"},
		{time.Second, 1, 1, limiter.Decision{Allowed: true, Queued: true, Delay: 28 * time.Second, Remaining: 0, ResetAfter: 43 * time.Second}, "another is before it"},
		{time.Second, 2, 1, limiter.Decision{RetryAfter: 12 * time.Second, ResetAfter: 42 * time.Second}, "full until the next departure"},
		{20 * time.Second, 2, 1, limiter.Decision{RetryAfter: 15 * time.Second, ResetAfter: 30 * time.Second}, "full, though a departure is due: who empties the queue is late"},
		{0, 1, 1, limiter.Decision{Allowed: true, Queued: true, Delay: 15 * time.Second, Remaining: 0, ResetAfter: 30 * time.Second}, "a departure is due, but one waits: nobody overtakes"},
		{0, 0, 3, limiter.Decision{Allowed: true, Remaining: 2, ResetAfter: 45 * time.Second}, "a cost of three departs at once, and is followed by a longer gap"},
		{0, 0, 9, limiter.Decision{Allowed: true, Queued: true, Delay: 45 * time.Second, Remaining: 1, ResetAfter: time.Minute}, "any cost takes one place"},
	} {
		clock.Add(step.after)
		store.SetWaiting(queue, step.waiting)
		hit := limiter.Hit{
			Key: limiter.Key("orders"), Overflow: queue, Cost: step.cost,
			Limit: limiter.Limit{Requests: 4, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.LeakyBucket, Queue: 2},
		}
		got, err := store.Decide(context.Background(), []limiter.Hit{hit})
		if err != nil {
			t.Fatal(err)
		}
		if got[0] != step.want {
			t.Errorf("%s: got\n%s\nwant\n%s", step.remark, limitertest.Words(got[0]), limitertest.Words(step.want))
		}
	}
}

func TestWhatAnotherLimitRefusesIsNotQueued(t *testing.T) {
	clock := limitertest.NewClock(time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC))
	store := limitertest.NewReference(limiter.Options{}, clock.Now)
	orders := limiter.Hit{
		Key: limiter.Key("orders"), Overflow: limiter.Key("queue"), Cost: 1,
		Limit: limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.LeakyBucket, Queue: 9},
	}
	day := limiter.Hit{Key: limiter.Key("day"), Cost: 1, Limit: limiter.Limit{Requests: 2, Window: limiter.Window{Length: limiter.DayLength}}}
	for i, want := range []limiter.Decision{
		{Allowed: true, Remaining: 9, ResetAfter: time.Minute},
		{Allowed: true, Queued: true, Delay: time.Minute, Remaining: 8, ResetAfter: 2 * time.Minute},
		{Allowed: true, Remaining: 9, ResetAfter: time.Minute}, // the day's limit refuses: as it was
	} {
		got, err := store.Decide(context.Background(), []limiter.Hit{orders, day})
		if err != nil {
			t.Fatal(err)
		}
		if got[0] != want {
			t.Errorf("request %d: got\n%s\nwant\n%s", i, limitertest.Words(got[0]), limitertest.Words(want))
		}
	}
}

func TestAStoreWithoutQueuesRefusesWhatCannotDepartAtOnce(t *testing.T) {
	clock := limitertest.NewClock(time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC))
	store := limiter.NewMemory(limiter.MemoryOptions{Now: clock.Now})
	hit := limiter.Hit{
		Key: limiter.Key("orders"), Overflow: limiter.Key("queue"), Cost: 1,
		Limit: limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Minute}, Algorithm: limiter.LeakyBucket, Queue: 9},
	}
	for _, want := range []bool{true, false} {
		got, err := store.Decide(context.Background(), []limiter.Hit{hit})
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Allowed != want || got[0].Queued || got[0].Delay != 0 {
			t.Errorf("got %s, want allowed: %t", limitertest.Words(got[0]), want)
		}
	}
}
