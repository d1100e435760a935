package limiter_test

import (
	"testing"
	"time"
	_ "time/tzdata" // zones, whatever the machine has

	"weir/limiter"
	"weir/limiter/limitertest"
)

// Each row has instants at which a window of that zone begins, one after the
// other.
var boundaries = []struct {
	zone   string
	unit   limiter.Calendar
	starts []string // in UTC
	remark string
}{
	{"Asia/Tokyo", limiter.Day, []string{"2026-01-04T15:00:00Z", "2026-01-05T15:00:00Z", "2026-01-06T15:00:00Z"}, "nine hours ahead, no daylight saving"},
	{"Asia/Kathmandu", limiter.Day, []string{"2026-01-04T18:15:00Z", "2026-01-05T18:15:00Z"}, "an offset of 5:45"},
	{"America/New_York", limiter.Day, []string{"2026-03-07T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z", "2026-03-10T04:00:00Z"}, "a day of 23 hours"},
	{"America/New_York", limiter.Day, []string{"2026-10-31T04:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "2026-11-03T05:00:00Z"}, "a day of 25 hours"},
	{"Australia/Lord_Howe", limiter.Day, []string{"2026-04-03T13:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"}, "daylight saving of half an hour"},
	{"America/Sao_Paulo", limiter.Day, []string{"2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}, "midnight skipped: the day begins at 1:00"},
	{"America/Sao_Paulo", limiter.Day, []string{"2018-02-16T02:00:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"}, "23:00 twice before midnight"},
	{"Africa/Cairo", limiter.Day, []string{"2024-04-24T22:00:00Z", "2024-04-25T22:00:00Z", "2024-04-26T21:00:00Z"}, "midnight skipped"},
	{"Africa/Cairo", limiter.Day, []string{"2024-10-29T21:00:00Z", "2024-10-30T21:00:00Z", "2024-10-31T22:00:00Z"}, "23:00 twice"},
	{"Asia/Beirut", limiter.Day, []string{"2022-03-25T22:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z"}, "midnight skipped"},
	{"Asia/Beirut", limiter.Day, []string{"2022-10-28T21:00:00Z", "2022-10-29T22:00:00Z", "2022-10-30T22:00:00Z"}, "23:00 twice"},
	{"America/Havana", limiter.Day, []string{"2024-03-09T05:00:00Z", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z"}, "midnight skipped"},
	{"America/Havana", limiter.Day, []string{"2024-11-02T04:00:00Z", "2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"}, "midnight twice: the first"},
	{"Atlantic/Azores", limiter.Day, []string{"2024-03-30T01:00:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:00:00Z"}, "midnight skipped"},
	{"Atlantic/Azores", limiter.Day, []string{"2024-10-26T00:00:00Z", "2024-10-27T00:00:00Z", "2024-10-28T01:00:00Z"}, "midnight twice: the first"},
	{"Pacific/Apia", limiter.Day, []string{"2011-12-28T10:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}, "December 30th was skipped"},
	{"UTC", limiter.Week, []string{"2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"}, "from Monday, over the year's end"},
	{"Europe/Berlin", limiter.Week, []string{"2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z", "2026-04-05T22:00:00Z"}, "a week of 167 hours"},
	{"UTC", limiter.Month, []string{"2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", "2024-04-01T00:00:00Z"}, "a February of 29 days"},
	{"UTC", limiter.Month, []string{"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"}, "and of 28"},
	{"America/New_York", limiter.Month, []string{"2026-02-01T05:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"}, "daylight saving begins within it"},
	{"America/Sao_Paulo", limiter.Month, []string{"2018-10-01T03:00:00Z", "2018-11-01T03:00:00Z", "2018-12-01T02:00:00Z"}, "and here"},
	{"UTC", limiter.Year, []string{"2023-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"}, "a leap year"},
	{"Asia/Tokyo", limiter.Year, []string{"2025-12-31T15:00:00Z", "2026-12-31T15:00:00Z"}, "New Year in Tokyo"},
}

func TestCalendarWindowsBeginWhereTheZoneSays(t *testing.T) {
	for _, c := range boundaries {
		t.Run(c.zone+" "+c.unit.String()+" "+c.starts[0][:10], func(t *testing.T) {
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			l := limiter.Limit{Requests: 2, Window: limiter.CalendarWindow(c.unit, zone)}
			if err := l.Validate(); err != nil {
				t.Fatal(err)
			}
			for i := range c.starts[1:] {
				start, end := instant(t, c.starts[i]), instant(t, c.starts[i+1])
				for _, at := range []struct{ now, start time.Time }{{start, start}, {start.Add(end.Sub(start) / 2), start}, {end.Add(-time.Millisecond), start}, {end, end}} {
					if got, want := untilReset(t, l, at.now), end.Sub(at.now); want > 0 && got != want {
						t.Errorf("%s: at %s the window ends after %v, want %v", c.remark, at.now.Format(time.RFC3339Nano), got, want)
					}
				}
			}
		})
	}
}

func instant(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func untilReset(t *testing.T, l limiter.Limit, now time.Time) time.Duration {
	t.Helper()
	r := limitertest.NewReference(limiter.Options{}, func() time.Time { return now })
	d, err := r.Decide(t.Context(), []limiter.Hit{{Limit: l, Cost: 1}})
	if err != nil || !d[0].Allowed {
		t.Fatal(d, err)
	}
	return d[0].ResetAfter
}

// Years with the changes of today, in steps of about half a window: windows leave
// no gap, do not overlap, and begin on the right date.
func TestCalendarWindowsFollowOneAnother(t *testing.T) {
	steps := map[limiter.Calendar]time.Duration{limiter.Day: 13 * time.Hour, limiter.Week: 67 * time.Hour, limiter.Month: 331 * time.Hour, limiter.Year: 4001 * time.Hour}
	for _, name := range []string{"UTC", "America/New_York", "America/Havana", "America/Santiago", "America/Asuncion", "America/Sao_Paulo", "America/Scoresbysund",
		"Atlantic/Azores", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Gaza", "Asia/Tehran", "Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Apia", "Antarctica/Troll"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			for unit, step := range steps {
				followWindows(t, limiter.CalendarWindow(unit, zone), step)
			}
		})
	}
}

func followWindows(t *testing.T, w limiter.Window, step time.Duration) {
	l := limiter.Limit{Requests: 2, Window: w}
	now := time.Date(2017, 6, 1, 0, 30, 0, 0, time.UTC)
	end := now.Add(untilReset(t, l, now))
	for ; now.Year() < 2027; now = now.Add(step) {
		next := now.Add(untilReset(t, l, now))
		if !next.Equal(end) && now.Before(end) || next.Before(now.Add(time.Millisecond)) {
			t.Fatalf("%v: at %v the window ends at %v, before it was %v", w, now, next, end)
		}
		end = next
		local := end
		if w.Zone != nil {
			local = end.In(w.Zone)
		}
		if local.Hour() > 1 || w.Calendar == limiter.Week && local.Weekday() != time.Monday ||
			w.Calendar >= limiter.Month && local.Day() != 1 || w.Calendar == limiter.Year && local.YearDay() != 1 {
			t.Fatalf("%v: at %v the window ends at %v", w, now, local)
		}
		if last := end.Add(-time.Millisecond); untilReset(t, l, last) != time.Millisecond {
			t.Fatalf("%v: at %v, its last millisecond, the window ends after %v", w, last, untilReset(t, l, last))
		}
	}
}

func TestADayInUTCIsAPlainWindow(t *testing.T) {
	for _, zone := range []*time.Location{nil, time.UTC} {
		if w := limiter.CalendarWindow(limiter.Day, zone); w != per(limiter.DayLength) {
			t.Errorf("got %+v", w)
		}
	}
	if got, want := untilReset(t, fixed(2, limiter.DayLength), instant(t, "2026-01-05T18:00:00Z")), 6*time.Hour; got != want {
		t.Errorf("it ends after %v, want %v", got, want)
	}
}

func TestCalendarCounterKeepsItsCountThroughTheDayAndStepsBackOneWindow(t *testing.T) {
	zone, err := time.LoadLocation("America/Sao_Paulo")
	if err != nil {
		t.Fatal(err)
	}
	clock := limitertest.NewClock(instant(t, "2018-11-04T03:00:00Z"))
	m := limiter.NewMemory(limiter.MemoryOptions{Now: clock.Now})
	l := limiter.Limit{Requests: 3, Window: limiter.CalendarWindow(limiter.Day, zone)}
	for _, row := range []struct{ at, want, remark string }{
		{"2018-11-04T03:00:00Z", "pass left=2 reset=23h", "the day's first instant"},
		{"2018-11-05T01:59:59Z", "pass left=1 reset=1s", "its last second"},
		{"2018-11-03T03:00:00Z", "pass left=0 reset=23h", "the clock steps back to the day before: read as of the 4th"},
		{"2018-11-04T12:00:00Z", "refuse left=0 retry=14h", "the 4th is full"},
		{"2018-11-03T02:59:59Z", "pass left=2 reset=1s", "two days back: dropped"},
	} {
		clock.Set(instant(t, row.at))
		d, err := m.Decide(t.Context(), []limiter.Hit{{Key: limiter.Key("k"), Limit: l, Cost: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := limitertest.Match(row.want, d[0]); err != nil {
			t.Errorf("%s: %s: %v", row.at, row.remark, err)
		}
	}
}
