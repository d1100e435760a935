package limiter

import (
	"errors"
	"fmt"
	"time"
)

// Calendar names the windows that follow the calendar of a time zone.
type Calendar uint8

// The calendar units. The zero value is a window of fixed length.
const (
	NoCalendar Calendar = iota
	Day                 // from midnight
	Week                // from Monday's midnight
	Month               // from the 1st
	Year                // from January the 1st
)

var calendarNames = [...]string{"", "day", "week", "month", "year"}

func (c Calendar) String() string { return calendarNames[c] }

// Bounds of a window's length.
const (
	MinWindow = time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
)

// Fixed lengths of the named units where they do not follow the calendar.
const (
	DayLength   = 24 * time.Hour
	WeekLength  = 7 * DayLength
	MonthLength = 30 * DayLength
	YearLength  = 365 * DayLength
)

// Window is the time over which a limit counts. Windows of fixed length start
// at multiples of Length since 1970 UTC; those of a calendar unit where the
// unit begins in Zone.
type Window struct {
	Length   time.Duration  // of a calendar unit: its usual length
	Calendar Calendar       // FixedWindow only
	Zone     *time.Location // of a calendar unit; nil: UTC
}

// CalendarWindow returns the window that follows the calendar of zone. A day in
// UTC is a plain window of 24 hours, which starts at the same instants.
func CalendarWindow(unit Calendar, zone *time.Location) Window {
	if zone == time.UTC {
		zone = nil
	}
	length := [...]time.Duration{Day: DayLength, Week: WeekLength, Month: MonthLength, Year: YearLength}[unit]
	if unit == Day && zone == nil {
		return Window{Length: length}
	}
	return Window{Length: length, Calendar: unit, Zone: zone}
}

// String is the window's identity, as it stands in a counter's key.
func (w Window) String() string {
	if w.Calendar == NoCalendar {
		return w.Length.String()
	}
	return w.Calendar.String() + " " + w.ZoneName()
}

// ZoneName is the IANA name of the zone that a calendar window follows.
func (w Window) ZoneName() string { return w.zone().String() }

func (w Window) zone() *time.Location {
	if w.Zone == nil {
		return time.UTC
	}
	return w.Zone
}

// unit is the window's unit of time, in which its states count: 1 µs up to an
// hour, 1 ms above.
func (w Window) unit() time.Duration {
	if w.Length > time.Hour {
		return time.Millisecond
	}
	return time.Microsecond
}

// Validate says whether the window can be counted.
func (w Window) Validate() error {
	switch {
	case w.Length < MinWindow || w.Length > MaxWindow:
		return fmt.Errorf("window %v is not within 1ms to 366 days (8784h)", w.Length)
	case w.Length%w.unit() != 0:
		return fmt.Errorf("window %v is not a whole number of %v, the unit of time of its counters", w.Length, w.unit())
	case w.Calendar != NoCalendar && w.Length <= time.Hour:
		return errors.New("a calendar window is a day at least")
	}
	return nil
}

// bounds returns the start and end of the window that now lies in, and the end
// of the one after it, all in units of time since 1970.
func (w Window) bounds(now int64) (start, end, next int64) {
	if w.Calendar == NoCalendar {
		length := int64(w.Length / w.unit())
		start = now - now%length
		return start, start + length, start + 2*length
	}
	zone := w.zone()
	t := time.UnixMilli(now).In(zone)
	y, m, d := t.Date()
	switch w.Calendar {
	case Week:
		d -= (int(t.Weekday()) + 6) % 7 // back to Monday
	case Month:
		d = 1
	case Year:
		m, d = time.January, 1
	}
	at := func(n int) int64 { // the start of the n-th window from this one
		switch w.Calendar {
		case Day:
			return midnight(y, m, d+n, zone)
		case Week:
			return midnight(y, m, d+7*n, zone)
		case Month:
			return midnight(y, m+time.Month(n), d, zone)
		}
		return midnight(y+n, m, d, zone)
	}
	return at(0), at(1), at(2)
}

// midnight is the first instant, in ms since 1970, of a date in a zone. The
// clock may skip midnight or show it twice where daylight saving begins or ends
// then, which time.Date leaves open.
func midnight(y int, m time.Month, d int, zone *time.Location) int64 {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	reached := func(u time.Time) bool { // the date, as a count of days, is not before this one
		y, m, d := u.In(zone).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() >= day
	}
	if reached(t) && !reached(t.Add(-time.Second)) {
		return t.UnixMilli()
	}
	before, after := t.Unix()-24*3600, t.Unix()+24*3600
	for after-before > 1 {
		if mid := before + (after-before)/2; reached(time.Unix(mid, 0)) {
			after = mid
		} else {
			before = mid
		}
	}
	return after * 1000
}
