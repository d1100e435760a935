package accesslog

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"
)

// timeReader reads the times of one file's lines. Most lines have the second of the
// line before, so that it is read once.
type timeReader struct {
	zone     *time.Location // of times that name none
	zoneless bool           // there were such

	second string // the text of a time up to its second and after its fraction
	unix   int64  // that it is
}

func newTimeReader(zone *time.Location) *timeReader { return &timeReader{zone: zone} }

// read returns a time in µs since 1970.
func (t *timeReader) read(text []byte) (int64, error) {
	text = bytes.TrimSpace(text)
	if at, ok := readEpoch(text); ok {
		return at, nil
	}
	whole, fraction, rest := cutFraction(text)
	µs, ok := microseconds(fraction)
	if !ok {
		return 0, unknownTime(text)
	}
	if n := len(whole); len(t.second) == n+len(rest) && t.second[:n] == string(whole) && t.second[n:] == string(rest) {
		return t.unix*1e6 + µs, nil
	}
	second := string(whole) + string(rest)
	at, zoned, err := parseTime(second, t.zone)
	if err != nil {
		return 0, unknownTime(text)
	}
	t.zoneless = t.zoneless || !zoned
	t.second, t.unix = second, at.Unix()
	return t.unix*1e6 + µs, nil
}

func unknownTime(text []byte) error {
	return fmt.Errorf("%s is no time that is known, such as 2026-01-31T12:00:00.123Z, 31/Jan/2026:12:00:00 +0000 or seconds since 1970", brief(text))
}

// brief quotes the beginning of a text.
func brief(text []byte) string {
	const most = 60
	if len(text) > most {
		return strconv.Quote(string(text[:most])) + "…"
	}
	return strconv.Quote(string(text))
}

// readEpoch reads a number of seconds since 1970; or, where it is too large for that,
// of ms, µs or ns.
func readEpoch(text []byte) (µs int64, ok bool) {
	if len(text) == 0 || len(text) > 30 {
		return 0, false
	}
	point := false
	for i, c := range text {
		switch {
		case '0' <= c && c <= '9':
		case c == '.' && !point && i > 0:
			point = true
		default:
			return 0, false
		}
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	n, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil {
		return 0, false
	}
	switch {
	case n < 1e11:
		µs, ok = microseconds(fraction)
		return n*1e6 + µs, ok
	case n < 1e14:
		fraction = fraction[:min(3, len(fraction))]
		for µs, ok = n, true; len(fraction) < 3; fraction = append(bytes.Clone(fraction), '0') {
		}
		part, _ := strconv.ParseInt(string(fraction), 10, 64)
		return µs*1e3 + part, ok
	case n < 1e17:
		return n, true
	}
	return n / 1e3, true
}

// cutFraction takes the fraction of the seconds out of a time.
func cutFraction(text []byte) (whole, fraction, rest []byte) {
	for i, c := range text {
		if c != '.' && c != ',' || i < len("15:04:05") || text[i-3] != ':' {
			continue
		}
		end := i + 1
		for end < len(text) && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		if end == i+1 {
			return text, nil, nil
		}
		return text[:i], text[i+1 : end], text[end:]
	}
	return text, nil, nil
}

// microseconds reads the digits of a fraction.
func microseconds(digits []byte) (µs int64, ok bool) {
	unit := int64(1e5)
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		µs += int64(c-'0') * unit
		unit /= 10
	}
	return µs, true
}

// layouts are the times that are known, without fractions.
var layouts = [...]struct {
	layout string
	zoned  bool
}{
	{"02/Jan/2006:15:04:05 -0700", true},
	{time.RFC3339, true},
	{"2006-01-02T15:04:05-0700", true},
	{"2006-01-02 15:04:05 -0700", true},
	{"2006-01-02 15:04:05Z07:00", true},
	{"2006-01-02 15:04:05 MST", true},
	{"2006/01/02 15:04:05", false},
	{"2006-01-02T15:04:05", false},
	{"2006-01-02 15:04:05", false},
	{"02/Jan/2006:15:04:05", false},
	{time.RFC1123Z, true},
	{time.RFC1123, true},
}

func parseTime(text string, zone *time.Location) (at time.Time, zoned bool, err error) {
	for i := range layouts {
		l := &layouts[i]
		if at, err = time.ParseInLocation(l.layout, text, zone); err == nil {
			if at.Unix() < 0 || at.Unix() > math.MaxUint32 { // no log is of then
				return at, false, fmt.Errorf("the year %d", at.Year())
			}
			return at, l.zoned, nil
		}
	}
	return at, false, err
}
