package ruletest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// defaultStart is where a test begins that says no time: a Monday's noon, so that no
// hour, day, week or month ends soon, and every run is the same.
func defaultStart() time.Time { return time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC) }

// The times that tests can have: counters know none before 1970, and the clock ends
// in 2262.
const firstYear, lastYear = 1971, 2200

func inRange(t time.Time) bool { return t.UTC().Year() >= firstYear && t.UTC().Year() <= lastYear }

func parseDuration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

func digits(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

func parseCount(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err == nil
}

// parseMoment reads when a step begins.
func parseMoment(text string) (moment, error) {
	after, plus := strings.CutPrefix(text, "+")
	if d, ok := parseDuration(after); ok && plus {
		return moment{kind: later, after: d}, nil
	} else if ok {
		return moment{kind: elapsed, after: d}, nil
	} else if plus {
		return moment{}, fmt.Errorf("%q is not how long after the step before, such as +10s or +1h30m", text)
	}
	at, err := parseTime(text)
	if err != nil {
		return moment{}, fmt.Errorf("%w; or how long after the start, such as 1h30m; or how long after the step before, such as +10s", err)
	}
	return moment{kind: absolute, at: at}, nil
}

// parseTime reads a time with its zone: as of RFC 3339, or as clocks show it, with
// the name of their zone.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return checkedTime(text, t)
		}
	}
	if at := strings.LastIndexByte(text, ' '); at > 0 && at+1 < len(text) && text[at+1] >= 'A' { // zones begin with a letter
		clock, name := strings.Replace(strings.TrimSpace(text[:at]), "T", " ", 1), text[at+1:]
		for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
			if _, err := time.Parse(layout, clock); err == nil {
				return localTime(layout, clock, name)
			}
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time with a zone, such as 2026-03-08T01:30:00-05:00 or 2026-03-08 01:30 America/New_York", text)
}

func checkedTime(text string, t time.Time) (time.Time, error) {
	if !inRange(t) {
		return t, fmt.Errorf("%q is out of the years %d to %d", text, firstYear, lastYear)
	}
	return t, nil
}

// localTime is when the clocks of a zone show a time. Where they are put forward some
// times never come, and where they are put back some come twice.
func localTime(layout, clock, name string) (time.Time, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		return time.Time{}, fmt.Errorf("%q is no time zone; it is a name such as Europe/Berlin, or UTC", name)
	}
	t, err := time.ParseInLocation(layout, clock, zone)
	if err != nil {
		return t, err
	}
	shown := t.Format(layout)
	if shown != clock {
		return t, fmt.Errorf("clocks in %s never show %s: they are put forward then; write it with the offset, such as 2026-03-08T01:30:00-05:00", name, clock)
	}
	for _, shift := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} { // by which clocks are put back
		for _, other := range []time.Time{t.Add(shift), t.Add(-shift)} {
			if other.Format(layout) == shown && layout != "2006-01-02" {
				return t, fmt.Errorf("clocks in %s show %s twice, for they are put back; write it with the offset, as in %s or %s", name, clock, t.Format(time.RFC3339), other.Format(time.RFC3339))
			}
		}
	}
	return checkedTime(clock, t)
}
