package redis

import (
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// A hit on a counter of the window that is expected costs Redis no look at its clock,
// until what is known of that is a second old.
func TestRedisIsSeldomAskedForTheTime(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{Timeout: time.Second}, nil)
	h := hit("counter", perYear(1000), 1)
	first := decide(t, s, h)[0]
	for n := range 100 {
		d := decide(t, s, h)[0]
		if !d.Allowed || d.Remaining != uint64(998-n) {
			t.Fatalf("hit %d: %+v", n+2, d)
		}
		if off := first.ResetAfter - d.ResetAfter; off < -time.Second || off > time.Minute {
			t.Fatalf("hit %d: reset after %v, the first after %v", n+2, d.ResetAfter, first.ResetAfter)
		}
	}
	if n := calls(t, r, "time"); n < 1 || n > 20 {
		t.Errorf("101 hits asked for the time %d times", n)
	}
	before := calls(t, r, "time")
	s.clock.last.Store(&reading{micros: s.clock.last.Load().micros, at: time.Now().Add(-readingGood)})
	decide(t, s, h)
	if calls(t, r, "time") == before {
		t.Error("an old reading was used")
	}
}

// Whatever this instance takes Redis's time for, hits are counted by Redis's own.
func TestAWrongIdeaOfTheClockCountsNothingWrong(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	const w = time.Hour
	for remark, off := range map[string]time.Duration{
		"right": 0, "a window ahead": w, "a window behind": -w, "two behind": -2 * w, "half of all tags behind": -windowTags * w / 2,
		"a year ahead": 365 * 24 * time.Hour,
	} {
		t.Run(remark, func(t *testing.T) {
			s := open(t, r.Addr, Options{Timeout: time.Second, KeyPrefix: "weir:" + remark + ":"}, nil)
			s.spare = 0
			exact := open(t, r.Addr, Options{Timeout: time.Second, KeyPrefix: "weir:" + remark + ":"}, nil)
			l := limiter.Limit{Requests: 5, Window: limiter.Window{Length: w}}
			for i := range 7 {
				now := time.Now()
				s.clock.read(now.Add(off).UnixMicro(), now, now)
				d := decide(t, s, hit("counter", l, 1))[0]
				if d.Allowed != (i < 5) || d.Allowed && d.Remaining != uint64(4-i) {
					t.Errorf("hit %d: %+v", i+1, d)
				}
				exact.clock.last.Store(nil)
				look := decide(t, exact, hit("counter", l, 0))[0]
				if want := uint64(max(0, 4-i)); look.Remaining != want {
					t.Errorf("after hit %d another instance sees %d left, want %d", i+1, look.Remaining, want)
				}
			}
		})
	}
}

// A limit of short windows, hit all the time, admits in each what it may, whether
// the clock is known or not.
func TestWindowsThatEndAreNotExceededByExpectingThem(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{Timeout: time.Second}, nil)
	const w = 200 * time.Millisecond
	l := limiter.Limit{Requests: 1_000_000, Window: limiter.Window{Length: w}}
	admitted, sum := 0, 0
	last := uint64(0)
	for end := time.Now().Add(10 * w); time.Now().Before(end); {
		d := decide(t, s, hit("counter", l, 1))[0]
		if !d.Allowed {
			t.Fatalf("refused: %+v", d)
		}
		if d.ResetAfter > w || d.ResetAfter <= 0 {
			t.Fatalf("reset after %v", d.ResetAfter)
		}
		used := l.Requests - d.Remaining
		if used <= last { // another window
			sum += int(last)
		}
		last = used
		admitted++
	}
	if sum += int(last); sum != admitted {
		t.Errorf("%d were admitted and %d counted", admitted, sum)
	}
	if n := calls(t, r, "time"); n > admitted/2 {
		t.Errorf("%d hits asked for the time %d times", admitted, n)
	}
}

func TestAReadingIsOfTheMonotonicClock(t *testing.T) {
	var c clock
	now := time.Now()
	if _, known := c.micros(now); known {
		t.Error("a time is known that nobody told")
	}
	c.read(5_000_000, now, now.Add(2*time.Millisecond))
	for _, step := range []struct {
		after time.Duration
		want  int64
		known bool
	}{
		{time.Millisecond, 5_000_000, true}, // in the middle it was told
		{501 * time.Millisecond, 5_500_000, true},
		{1000 * time.Millisecond, 5_999_000, true},
		{1001 * time.Millisecond, 6_000_000, false},
	} {
		if got, known := c.micros(now.Add(step.after)); got != step.want || known != step.known {
			t.Errorf("after %v: %d, %t; want %d, %t", step.after, got, known, step.want, step.known)
		}
	}
}
