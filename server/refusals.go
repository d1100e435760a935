package server

import (
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"weir/limiter"
	"weir/rules"
)

// refusalLog tells the log of some refused requests: so many lines a second, each
// with how many were left out before it. It costs those that are left out a look at
// the clock.
type refusalLog struct {
	log    *slog.Logger
	lines  int
	values bool

	state *refusalState // nil: off
}

type refusalState struct {
	begin time.Time

	mu     sync.Mutex
	second time.Duration // since begin, the one that lines are counted of
	lines  int           // in it
	missed uint64        // since the last line
}

func newRefusalLog(opts *Options) refusalLog {
	l := refusalLog{log: opts.Logger, lines: opts.LogRefused, values: opts.LogValues}
	if l.lines > 0 {
		l.state = &refusalState{begin: time.Now(), second: -1}
	}
	return l
}

// due tells whether one more may be logged, and how many were left out before it.
func (s *refusalState) due(lines int) (missed uint64, due bool) {
	second := time.Since(s.begin).Truncate(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	if second != s.second {
		s.second, s.lines = second, 0
	}
	if s.lines >= lines {
		s.missed++
		return 0, false
	}
	s.lines++
	missed, s.missed = s.missed, 0
	return missed, true
}

// refused logs a refused request by the limit that its headers describe.
func (l *refusalLog) refused(c *call, decisions []limiter.Decision) {
	if l.state == nil {
		return
	}
	missed, due := l.state.due(l.lines)
	if !due {
		return
	}
	told := telling(c.plan.Hits, decisions)
	if told < 0 {
		return
	}
	h, d := &c.plan.Hits[told], &decisions[told]
	rule := "(override)"
	if r := c.plan.Rules[told]; r != nil {
		rule = r.Label()
	}
	attributes := []any{
		"domain", brief(c.request.Domain), "rule", brief(rule),
		"limit", h.Limit.Requests, "window", h.Limit.Window.String(),
	}
	if d.RetryAfter > 0 { // else waiting cannot help
		attributes = append(attributes, "retry_after", d.RetryAfter)
	}
	switch d.Origin { // refused without the store: named as weir_decisions_total does
	case limiter.OriginClosed:
		attributes = append(attributes, "outcome", "failed_closed")
	case limiter.OriginLocal:
		attributes = append(attributes, "outcome", "failed_local")
	}
	attributes = append(attributes, "left_out", missed)
	if l.values {
		attributes = append(attributes, "entries", entriesText(c, told))
	}
	l.log.Info("refused", attributes...)
}

// maxLogged is how many bytes of a text are logged.
const maxLogged = 256

// brief is a text for a line of the log, which quotes what is not printable.
func brief(text string) string {
	if len(text) <= maxLogged {
		return text
	}
	cut := maxLogged
	for cut > maxLogged-utf8.UTFMax && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// entriesText is the descriptor that a hit is of.
func entriesText(c *call, hit int) string {
	for i := range c.plan.Matches {
		if m := &c.plan.Matches[i]; hit >= m.First && hit < m.First+m.Hits {
			return entriesOfDescriptor(c.request.Descriptors[i].Entries)
		}
	}
	return ""
}

func entriesOfDescriptor(entries []rules.Entry) string {
	var b strings.Builder
	for i := range entries {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() > maxLogged {
			break
		}
		b.WriteString(brief(entries[i].Key) + "=" + brief(entries[i].Value))
	}
	return brief(b.String())
}
