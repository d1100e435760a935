package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/limiter"
)

// unit is a named length of time.
type unit uint8

// The units. Those from day on follow the calendar where nothing else is said.
const (
	second unit = iota
	minute
	hour
	day
	week
	month
	year
)

var units = [...]struct {
	name     string
	length   time.Duration
	calendar limiter.Calendar
}{
	second: {"second", time.Second, limiter.NoCalendar},
	minute: {"minute", time.Minute, limiter.NoCalendar},
	hour:   {"hour", time.Hour, limiter.NoCalendar},
	day:    {"day", limiter.DayLength, limiter.Day},
	week:   {"week", limiter.WeekLength, limiter.Week},
	month:  {"month", limiter.MonthLength, limiter.Month},
	year:   {"year", limiter.YearLength, limiter.Year},
}

func unitNames() []string {
	names := make([]string, len(units))
	for i := range units {
		names[i] = units[i].name
	}
	return names
}

// parseUnit reads a unit's name, in any case.
func parseUnit(name string) (unit, bool) {
	for i := range units {
		if strings.EqualFold(units[i].name, name) {
			return unit(i), true
		}
	}
	return 0, false
}

func (u unit) String() string { return units[u].name }

// times is the window of fixed length that is n units long.
func (u unit) times(n uint64) (limiter.Window, error) {
	length := units[u].length
	if n == 0 {
		return limiter.Window{}, errors.New("a window of 0 units; it is 1 at least")
	}
	if most := uint64(limiter.MaxWindow / length); n > most {
		return limiter.Window{}, fmt.Errorf("a window of %d %ss is over 366 days; it is %d %ss at most", n, u, most, u)
	}
	return limiter.Window{Length: time.Duration(n) * length}, nil
}

// shortDuration writes a duration without the parts that are 0: 1h, not 1h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Override is a limit that a descriptor of a request brings itself.
type Override struct {
	limit limiter.Limit
	unit  unit
	times uint32
}

// NewOverride returns the limit of so many requests in a fixed window of
// multiplier units: "second" to "year", in any case. One day, week, month or year
// follows the calendar in UTC. It fails if the unit is unknown, or the window is
// 0 or longer than 366 days; the error does not say that it is about a limit.
func NewOverride(requests uint32, unit string, multiplier uint32) (*Override, error) {
	u, ok := parseUnit(unit)
	if !ok {
		// Envoy's RateLimitUnit has no week.
		names := slices.DeleteFunc(unitNames(), func(name string) bool { return name == week.String() })
		return nil, fmt.Errorf("unknown unit %q; known are %s", unit, strings.Join(names, ", "))
	}
	window, err := u.times(uint64(multiplier))
	if err != nil {
		return nil, err
	}
	if calendar := units[u].calendar; calendar != limiter.NoCalendar && multiplier == 1 {
		window = limiter.CalendarWindow(calendar, nil)
	}
	limit := limiter.Limit{Requests: uint64(requests), Window: window, Algorithm: limiter.FixedWindow}
	return &Override{limit: limit, unit: u, times: multiplier}, nil
}

// Limit is what the override asks for, with count_denied as it is by default.
func (o *Override) Limit() limiter.Limit { return o.limit }
