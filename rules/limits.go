package rules

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"weir/limiter"
)

// limitDraft is a limit before the server's default of count_denied.
type limitDraft struct {
	limiter.Limit
	countDenied *bool // nil: not said
}

// limits reads a list of limits.
func (r *reader) limits(f field) []limitDraft {
	var limits []limitDraft
	for _, item := range r.list(f) {
		limits = r.appendLimit(limits, r.mapping(item, "an item of limits", limitFields))
	}
	if f.value.Kind == yaml.SequenceNode && len(f.value.Content) == 0 {
		r.fault(f.value, "limits is empty; for a rule without limit write unlimited: true")
	}
	return limits
}

// appendLimit reads the limit that the fields describe, and appends it if it is
// sound.
func (r *reader) appendLimit(limits []limitDraft, fs *fields) []limitDraft {
	faults := len(r.faults)
	var d limitDraft
	requests, hasRequests := r.oneOf(fs, "limit", "requests_per_unit")
	if hasRequests {
		d.Requests, _ = r.whole(requests, limiter.MaxRequests)
	} else {
		r.missing(fs, "a limit needs a number of requests, such as "+inSpelling(fs, "limit: 5", "requests_per_unit: 5"))
	}
	algorithm, known := limiter.FixedWindow, true
	if f, ok := fs.get("algorithm"); ok {
		i := r.choice(f, limiter.AlgorithmNames())
		algorithm, known = limiter.Algorithm(max(i, 0)), i >= 0
	}
	d.Algorithm = algorithm
	window, hasWindow := r.oneOf(fs, "window", "unit")
	if hasWindow {
		d.Window = r.window(fs, window, algorithm)
	} else {
		r.missing(fs, "a limit needs a window, such as "+inSpelling(fs, "window: 60s or window: day", "unit: minute or window: 60s"))
	}
	if f, ok := fs.get("count_denied"); ok {
		counts := r.flag(f)
		d.countDenied = &counts
	}
	if !known {
		return limits
	}
	d.Burst = r.size(fs, "burst", limiter.TokenBucket, d.Limit)
	d.Queue = r.size(fs, "queue", limiter.LeakyBucket, d.Limit)
	if len(r.faults) > faults || !hasRequests || !hasWindow {
		return limits
	}
	if err := d.Validate(); err != nil {
		r.fault(blamed(fs, d.Limit, requests, window).value, "%v", err)
		return limits
	}
	return append(limits, d)
}

// inSpelling returns what to say to who writes the flat spelling, or the other.
func inSpelling(fs *fields, flat, nested string) string {
	if fs.has("key") || fs.has("unit") || fs.has("requests_per_unit") {
		return nested
	}
	return flat
}

// blamed is the field that most likely makes the limit unsound.
func blamed(fs *fields, limit limiter.Limit, requests, window field) field {
	if limit.Window.Validate() != nil {
		return window
	}
	for _, name := range []string{"burst", "queue"} {
		if f, ok := fs.get(name); ok {
			return f
		}
	}
	return requests
}

// size reads burst or queue, which belongs to one algorithm and is by default
// the limit.
func (r *reader) size(fs *fields, name string, owner limiter.Algorithm, limit limiter.Limit) uint64 {
	f, said := fs.get(name)
	switch {
	case said && limit.Algorithm != owner:
		r.fault(f.key, "%s belongs to %v, not to %v", name, owner, limit.Algorithm)
	case said:
		n, _ := r.whole(f, 1<<53-1)
		return n
	case limit.Algorithm == owner:
		return limit.Requests
	}
	return 0
}

// oneOf returns the one of two fields that say the same.
func (r *reader) oneOf(fs *fields, name, synonym string) (field, bool) {
	f, ok := fs.get(name)
	other, both := fs.get(synonym)
	switch {
	case ok && both:
		r.fault(other.key, "%q says again what %q says on line %d", synonym, name, f.key.Line)
	case both:
		return other, true
	}
	return f, ok
}

// window reads the time over which a limit counts.
func (r *reader) window(fs *fields, f field, algorithm limiter.Algorithm) limiter.Window {
	text, ok := r.text(f)
	if !ok {
		return limiter.Window{}
	}
	u, named := parseUnit(text)
	if !named {
		return r.duration(fs, f, text)
	}
	multiplier := uint64(1)
	m, ok := fs.get("unit_multiplier")
	if ok {
		if multiplier, ok = r.whole(m, limiter.MaxRequests); !ok {
			return limiter.Window{}
		}
	}
	window, err := u.times(multiplier)
	if err != nil { // of one unit there is none
		r.fault(m.value, "%v", err)
		return limiter.Window{}
	}
	calendar := units[u].calendar
	if algorithm != limiter.FixedWindow || multiplier > 1 {
		calendar = limiter.NoCalendar
	}
	zone := r.timezone(fs, calendar, algorithm)
	if calendar != limiter.NoCalendar {
		return limiter.CalendarWindow(calendar, zone)
	}
	return window
}

// duration reads a window that is no named unit.
func (r *reader) duration(fs *fields, f field, text string) limiter.Window {
	if f.name == "unit" {
		r.fault(f.value, "unknown unit %s%s", brief(text), suggestion(text, unitNames()))
		return limiter.Window{}
	}
	length, err := time.ParseDuration(text)
	switch {
	case err != nil && strings.Trim(text, "0123456789_.") == "":
		r.fault(f.value, "window %s has no unit of time; write %[1]ss if seconds are meant", text)
		return limiter.Window{}
	case err != nil && inHours(text) != "":
		r.fault(f.value, "window %s: a duration has no unit above hours; write %s", brief(text), inHours(text))
		return limiter.Window{}
	case err != nil:
		r.fault(f.value, "window %s is neither a duration, such as 100ms, 60s or 1h30m, nor a unit%s", brief(text), suggestion(text, unitNames()))
		return limiter.Window{}
	}
	if m, ok := fs.get("unit_multiplier"); ok {
		r.fault(m.key, "unit_multiplier multiplies a named unit, and this window is %s", text)
	}
	r.timezone(fs, limiter.NoCalendar, limiter.FixedWindow)
	return limiter.Window{Length: length}
}

// inHours returns how to write so many days or weeks; "" if the text is none, or
// they are too many.
func inHours(text string) string {
	for _, u := range []unit{day, week} {
		number, ok := strings.CutSuffix(text, units[u].name[:1])
		n, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			continue
		}
		window, err := u.times(n)
		if err != nil {
			return ""
		}
		written := shortDuration(window.Length)
		if n == 1 {
			written += ", or " + u.String() + " for that of the calendar"
		}
		return written
	}
	return ""
}

// timezone reads where a calendar unit begins; nil is UTC.
func (r *reader) timezone(fs *fields, calendar limiter.Calendar, algorithm limiter.Algorithm) *time.Location {
	f, ok := fs.get("timezone")
	if !ok {
		return nil
	}
	switch {
	case algorithm != limiter.FixedWindow:
		r.fault(f.key, "timezone belongs to fixed_window; %v does not follow the calendar", algorithm)
		return nil
	case calendar == limiter.NoCalendar:
		r.fault(f.key, "timezone belongs to a window of one day, week, month or year; this one has a fixed length")
		return nil
	}
	name, ok := r.text(f)
	if !ok {
		return nil
	}
	if zone, loaded := r.zones[name]; loaded {
		return zone
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" { // "Local" differs between instances
		r.fault(f.value, "unknown timezone %s; it is an IANA name such as Europe/Berlin", brief(name))
		return nil
	}
	r.zones[name] = zone
	return zone
}
