package ruletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpcstatus "google.golang.org/grpc/status"

	"weir/server"
)

// comparison compares the answers of a step with what it wants.
type comparison struct {
	want    *want
	answers []byte
	passed  int
	shown   *server.Trial // the last, or the first that came otherwise
	shownNo int
	astray  bool // one came otherwise
	message string
	faults  []string
}

func (c *comparison) differs(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// add takes the next answer.
func (c *comparison) add(i int, t *server.Trial, err error) {
	letter := byte('A')
	switch {
	case err != nil:
		letter = 'E'
		c.failed(i, err)
	case t.Response.OverallCode.String() == "OVER_LIMIT":
		letter = 'D'
	default:
		c.passed++
	}
	c.answers = append(c.answers, letter)
	if c.astray {
		return
	}
	c.shown, c.shownNo = t, i+1
	if t != nil && c.want.delay != nil && letter == 'A' && !c.want.delay.holds(t.Delay) {
		c.differs("delay of request %d: %v, want %v", i+1, t.Delay, c.want.delay)
		c.astray = true
	}
	c.astray = c.astray || c.want.codes != "" && letter != c.want.codes[i]
}

// failed takes the first error that differs.
func (c *comparison) failed(i int, err error) {
	st := grpcstatus.Convert(err)
	text := st.Code().String() + ": " + st.Message()
	if c.message == "" {
		c.message = text
	}
	wanted := c.want.failure
	switch {
	case c.astray:
	case wanted == "" && !strings.Contains(c.want.codes, "E"):
		c.differs("error of request %d: %s", i+1, text)
	case wanted != "" && !failureHas(wanted, st.Code().String(), text):
		c.differs("error of request %d: %s, want %q", i+1, text, wanted)
	}
}

// failureHas tells whether an error is one that is wanted: by its code, or by what is
// in its text.
func failureHas(wanted, code, text string) bool {
	for name := range strings.SplitSeq(wanted, "|") {
		if name == code && code != "" {
			return true
		}
	}
	return strings.Contains(text, wanted)
}

// finish compares what can be compared when all answers are there.
func (c *comparison) finish(out *Outcome) {
	w, answers := c.want, string(c.answers)
	if w.codes != "" && answers != w.codes {
		c.differs("codes: %s, want %s", answers, w.codes)
	}
	if w.passed != nil && !w.passed.holds(c.passed) {
		c.differs("passed: %d of %d, want %v", c.passed, len(answers), w.passed)
	}
	if w.failure != "" && !strings.Contains(answers, "E") {
		c.differs("error: none, want %q", w.failure)
	}
	if !c.astray {
		c.last()
	}
	out.Answers, out.Differs, out.Shown, out.ShownNo, out.Message = answers, append(out.Differs, c.faults...), c.shown, c.shownNo, c.message
}

// last compares the last answer.
func (c *comparison) last() {
	w := c.want
	if c.shown == nil {
		if len(c.faults) == 0 && w.ofAnswer() {
			c.differs("the last answer is an error, %s, and has nothing of what is wanted beside it", c.message)
		}
		return
	}
	t := c.shown
	if code := t.Response.OverallCode.String(); w.code != "" && code != w.code {
		c.differs("code: %s, want %s", code, w.code)
	}
	c.text("rule", t.Rule, w.rule)
	body := string(t.Response.RawBody)
	c.text("body", body, w.body)
	c.deciding(t)
	c.headers("header", t.Response.ResponseHeadersToAdd, w.headers)
	c.headers("upstream header", t.Response.RequestHeadersToAdd, w.upstream)
	c.statuses(t)
	c.limits(t)
}

// ofAnswer tells whether something of an answer is wanted that an error does not have.
func (w *want) ofAnswer() bool {
	return w.code != "" || w.rule != nil || w.limit != nil || w.remaining != nil || w.retryAfter != nil || w.reset != nil ||
		w.body != nil || w.headers != nil || w.upstream != nil || w.statuses != nil || w.limits != nil
}

// ofRequests tells whether something of all answers is wanted.
func (w *want) ofRequests() bool { return w.codes != "" || w.passed != nil || w.delay != nil }

// text compares a text; - is wanted where there is none.
func (c *comparison) text(what, came string, wanted *string) {
	if came == "" {
		came = "-"
	}
	if wanted != nil && came != *wanted {
		c.differs("%s: %s, want %s", what, came, *wanted)
	}
}

func (c *comparison) whole(what string, came uint64, wanted *uint64) {
	if wanted != nil && came != *wanted {
		c.differs("%s: %d, want %d", what, came, *wanted)
	}
}

func (c *comparison) span(what string, came time.Duration, wanted *span[time.Duration]) {
	if wanted != nil && !wanted.holds(came) {
		c.differs("%s: %v, want %v", what, came, wanted)
	}
}

func (c *comparison) waits(what string, allowed bool, came time.Duration, wanted *wait) {
	switch {
	case wanted == nil:
	case allowed:
		c.differs("%s: the limit does not refuse, want %v", what, wanted)
	case !wanted.holds(came):
		c.differs("%s: %s, want %v", what, waitText(came == 0, came.String()), wanted)
	}
}

// deciding compares the limit that the headers describe.
func (c *comparison) deciding(t *server.Trial) {
	w := c.want
	if t.Deciding < 0 {
		if w.limit != nil || w.remaining != nil || w.retryAfter != nil || w.reset != nil {
			c.differs("no limit was checked, and limit, remaining, retry_after and reset are of one (`weir explain` says why)")
		}
		return
	}
	d := t.Decisions[t.Deciding]
	c.whole("limit", d.Limit, w.limit)
	c.whole("remaining", d.Remaining, w.remaining)
	c.waits("retry_after", d.Allowed, d.RetryAfter.AsDuration(), w.retryAfter)
	c.span("reset", d.ResetAfter.AsDuration(), w.reset)
}

// headers compares headers, whose names have no case: "-" is wanted where there is
// none, and "*" for any value.
func (c *comparison) headers(what string, came []*corev3.HeaderValue, wanted map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		got := "-"
		for _, h := range came {
			if strings.EqualFold(h.Key, name) {
				got = h.Value
			}
		}
		if value := wanted[name]; got != value && !(value == "*" && got != "-") {
			c.differs("%s %s: %s, want %s", what, name, got, value)
		}
	}
}

func (c *comparison) statuses(t *server.Trial) {
	if c.want.statuses == nil {
		return
	}
	came := t.Response.Statuses
	if len(came) != len(c.want.statuses) {
		c.differs("statuses: %d, one for each descriptor, want %d", len(came), len(c.want.statuses))
		return
	}
	for i, w := range c.want.statuses {
		s, what := came[i], fmt.Sprintf("status %d: ", i+1)
		if code := s.Code.String(); w.code != "" && code != w.code {
			c.differs("%scode: %s, want %s", what, code, w.code)
		}
		remaining := uint64(s.LimitRemaining)
		c.whole(what+"remaining", remaining, w.remaining)
		c.span(what+"reset", s.DurationUntilReset.AsDuration(), w.reset)
		limit := s.CurrentLimit
		switch wantsLimit := w.limit != nil || w.unit != "" || w.name != ""; {
		case w.none && limit != nil:
			c.differs("%snone: it has a limit, %d per %v", what, limit.RequestsPerUnit, limit.Unit)
		case wantsLimit && limit == nil:
			c.differs("%sit has no limit", what)
		case wantsLimit:
			requests := uint64(limit.RequestsPerUnit)
			c.whole(what+"limit", requests, w.limit)
			if unit := limit.Unit.String(); w.unit != "" && unit != w.unit {
				c.differs("%sunit: %s, want %s", what, unit, w.unit)
			}
			if w.name != "" && limit.Name != w.name {
				c.differs("%sname: %s, want %s", what, limit.Name, w.name)
			}
		}
	}
}

func (c *comparison) limits(t *server.Trial) {
	if c.want.limits == nil {
		return
	}
	if len(t.Decisions) != len(c.want.limits) {
		c.differs("limits: %d were checked, want %d", len(t.Decisions), len(c.want.limits))
		return
	}
	for i, w := range c.want.limits {
		d, what := t.Decisions[i], fmt.Sprintf("limit %d: ", i+1)
		if w.rule != "" && d.Rule != w.rule {
			c.differs("%srule: %s, want %s", what, d.Rule, w.rule)
		}
		if w.allowed != nil && d.Allowed != *w.allowed {
			c.differs("%sallowed: %v, want %v", what, d.Allowed, *w.allowed)
		}
		c.whole(what+"limit", d.Limit, w.limit)
		c.whole(what+"remaining", d.Remaining, w.remaining)
		c.waits(what+"retry_after", d.Allowed, d.RetryAfter.AsDuration(), w.retryAfter)
		c.span(what+"reset", d.ResetAfter.AsDuration(), w.reset)
		c.span(what+"delay", d.Delay.AsDuration(), w.delay)
	}
}
