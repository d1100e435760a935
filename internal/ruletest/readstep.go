package ruletest

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// mostTimes is how often a step can send.
const mostTimes = 1_000_000

// step reads a step of a test in which common holds. It also returns why the step
// cannot be played on counters in memory; "": it can.
func (r *reader) step(n *yaml.Node, c *common) (s *step, unplayed string) {
	s = &step{line: n.Line}
	q := request{domain: c.domain}
	out := send{patience: c.patience}
	var sends, changes, wants *yaml.Node
	var parallel, times uint64
	setReload := func(to reload) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if changes != nil {
				r.fault(n, "a step changes the rules once: by reload, reload_files or rules")
			}
			changes, s.reload = n, to
		}
	}
	r.mapping(n, "a step", fields{
		"at": func(n *yaml.Node) {
			if text, ok := r.scalar(n, "at"); ok {
				at, err := parseMoment(text)
				if err != nil {
					r.fault(n, "at: %v", err)
				}
				s.at = at
			}
		},
		"remark": r.text(&s.remark, "remark"),
		"domain": r.text(&q.domain, "domain"),
		"send":   func(n *yaml.Node) { sends = n },
		"hits":   func(n *yaml.Node) { q.hits, _ = r.whole(n, "hits", 1, 1<<32-1) },
		"times":  func(n *yaml.Node) { times, _ = r.whole(n, "times", 1, mostTimes) },
		"parallel": func(n *yaml.Node) {
			parallel, _ = r.whole(n, "parallel", 1, mostTimes)
			out.parallel = true
		},
		"every":   r.duration(&out.every, "every", 0),
		"timeout": r.duration(&out.patience, "timeout", time.Nanosecond),
		"settle":  r.duration(&s.settle, "settle", 0),
		"want":    func(n *yaml.Node) { wants = n },
		"reload": func(n *yaml.Node) {
			setReload(reload{documents: r.inlineRules(n, c.domain)})(n)
		},
		"reload_files": func(n *yaml.Node) { setReload(reload{documents: r.ruleFiles(n)})(n) },
		"rules": func(n *yaml.Node) {
			setReload(reload{documents: r.inlineRules(n, c.domain), lenient: true})(n)
		},
		"do": func(n *yaml.Node) {
			what, _ := r.scalar(n, "do")
			unplayed = fmt.Sprintf("%s:%d: do: %s needs a Redis of its own, and weir test has counters in memory", r.path, n.Line, what)
		},
		"redis": func(n *yaml.Node) {
			unplayed = fmt.Sprintf("%s:%d: redis: it needs a Redis of its own, and weir test has counters in memory", r.path, n.Line)
		},
	})
	if wants != nil {
		r.want(&s.want, wants)
	}
	switch {
	case sends != nil && changes != nil:
		r.fault(changes, "a step sends requests or changes the rules, not both; make two of it")
	case sends != nil:
		r.sends(&q, sends, &out)
		r.repeats(s, n, &out, times, parallel)
		out.asked, s.send = q, &out
	case changes == nil && s.settle == 0 && unplayed == "":
		r.fault(n, "the step does nothing: it has send, reload or reload_files")
	case wants != nil && (changes == nil || s.want.ofRequests() || s.want.ofAnswer()), times+parallel > 0:
		r.fault(n, "the step sends nothing: times and parallel are those of send, and of a reload it can want only the error")
	}
	return s, unplayed
}

// repeats says how often the step sends.
func (r *reader) repeats(s *step, n *yaml.Node, out *send, times, parallel uint64) {
	if times > 0 && out.parallel {
		r.fault(n, "times sends one after another, and parallel all at once; leave one out")
	}
	if out.every > 0 && out.parallel {
		r.fault(n, "every is the time from one request to the next, and parallel sends all at once; leave one out")
	}
	out.times = int(max(times, parallel, 1))
	switch letters := len(s.want.codes); {
	case letters == 0:
	case times+parallel == 0:
		out.times = letters
	case letters != out.times:
		r.fault(n, "codes has a letter for each request: %d, and %d are sent", letters, out.times)
	}
}

// sends reads the descriptors of the request.
func (r *reader) sends(q *request, n *yaml.Node, out *send) {
	var words []string
	r.list(n, "send", true, func(item *yaml.Node) {
		target, ok := r.enter(item)
		r.leave()
		if ok && target.Kind == yaml.MappingNode {
			d := r.descriptor(item)
			q.descriptors = append(q.descriptors, d)
			words = append(words, d.String())
			return
		}
		text, ok := r.scalar(item, "a descriptor")
		if !ok {
			return
		}
		d, err := parseDescriptor(text)
		if err != nil {
			r.fault(item, "send: %v", err)
		}
		q.descriptors = append(q.descriptors, d)
		words = append(words, text)
	})
	out.text = strings.Join(words, ", ")
	if q.hits > 0 {
		out.text += fmt.Sprintf(" (hits: %d)", q.hits)
	}
}

// descriptor reads one that is written out: entries, hits, refund, limit.
func (r *reader) descriptor(n *yaml.Node) (d descriptor) {
	r.mapping(n, "a descriptor", fields{
		"entries": func(n *yaml.Node) {
			if target, ok := r.enter(n); ok && target.Kind == yaml.MappingNode {
				for i := 0; i+1 < len(target.Content); i += 2 {
					value, _ := r.scalar(target.Content[i+1], "a value")
					d.entries = append(d.entries, entry{target.Content[i].Value, value})
				}
			} else {
				r.fault(n, "entries is a mapping of keys to values, in their order, not %s", kindOf(target))
			}
			r.leave()
		},
		"hits":   r.optionalWhole(&d.hits, "hits"),
		"refund": r.truth(&d.refund, "refund"),
		"limit": func(n *yaml.Node) {
			if text, ok := r.scalar(n, "limit"); ok {
				var err error
				if d.limit, err = parseOwnLimit(text); err != nil {
					r.fault(n, "%v", err)
				}
			}
		},
	})
	return d
}

func (d *descriptor) String() string {
	var pairs []string
	for _, e := range d.entries {
		pairs = append(pairs, e.key+"="+e.value)
	}
	text := strings.Join(pairs, ",")
	if d.hits != nil {
		text += fmt.Sprintf(" hits=%d", *d.hits)
	}
	if d.refund {
		text += " refund"
	}
	if l := d.limit; l != nil {
		text += fmt.Sprintf(" limit=%d/%s", l.requests, l.unit)
	}
	return text
}

// want reads what a step wants.
func (r *reader) want(w *want, n *yaml.Node) {
	var admitted, between *span[int]
	var after, within time.Duration
	r.mapping(n, "want", fields{
		"codes": func(n *yaml.Node) {
			w.codes, _ = r.scalar(n, "codes")
			if strings.Trim(w.codes, "ADE") != "" || w.codes == "" {
				r.fault(n, "codes has a letter for each request, A (passes), D (is refused) or E (is an error), not %q", w.codes)
			}
		},
		"code":        r.choice(&w.code, "code", "OK", "OVER_LIMIT"),
		"passed":      r.numbers(&w.passed, "passed"),
		"admitted":    r.numbers(&admitted, "admitted"),
		"between":     r.numbers(&between, "between"),
		"error":       r.text(&w.failure, "error"),
		"rule":        r.optionalText(&w.rule, "rule"),
		"limit":       r.optionalWhole(&w.limit, "limit"),
		"remaining":   r.optionalWhole(&w.remaining, "remaining"),
		"retry_after": r.waiting(&w.retryAfter, "retry_after"),
		"reset":       r.durations(&w.reset, "reset"),
		"delay":       r.durations(&w.delay, "delay"),
		"after":       r.duration(&after, "after", 0),
		"within":      r.duration(&within, "within", 0),
		"body":        r.optionalText(&w.body, "body"),
		"headers":     r.wordMap(&w.headers, "headers"),
		"upstream":    r.wordMap(&w.upstream, "upstream"),
		"statuses": func(n *yaml.Node) {
			w.statuses = []wantStatus{}
			r.list(n, "statuses", false, func(n *yaml.Node) { w.statuses = append(w.statuses, r.wantStatus(n)) })
		},
		"limits": func(n *yaml.Node) {
			w.limits = []wantLimit{}
			r.list(n, "limits", false, func(n *yaml.Node) { w.limits = append(w.limits, r.wantLimit(n)) })
		},
	})
	for _, other := range []*span[int]{admitted, between} {
		if other != nil && w.passed != nil {
			r.fault(n, "passed, admitted and between say the same; leave all but one out")
		}
		if other != nil {
			w.passed = other
		}
	}
	if after > 0 || within > 0 {
		if w.delay != nil {
			r.fault(n, "delay says all that after and within do; leave them out")
		}
		w.delay = &span[time.Duration]{after, within}
		if within == 0 {
			w.delay.most = 1<<63 - 1
		}
	}
}

func (r *reader) wantStatus(n *yaml.Node) (w wantStatus) {
	r.mapping(n, "a status", fields{
		"code":      r.choice(&w.code, "code", "OK", "OVER_LIMIT"),
		"name":      r.text(&w.name, "name"),
		"unit":      r.choice(&w.unit, "unit", append(units(), "WEEK")...),
		"none":      r.truth(&w.none, "none"),
		"remaining": r.optionalWhole(&w.remaining, "remaining"),
		"limit":     r.optionalWhole(&w.limit, "limit"),
		"reset":     r.durations(&w.reset, "reset"),
	})
	return w
}

func (r *reader) wantLimit(n *yaml.Node) (w wantLimit) {
	r.mapping(n, "a limit", fields{
		"rule":        r.text(&w.rule, "rule"),
		"allowed":     r.optionalTruth(&w.allowed, "allowed"),
		"limit":       r.optionalWhole(&w.limit, "limit"),
		"remaining":   r.optionalWhole(&w.remaining, "remaining"),
		"retry_after": r.waiting(&w.retryAfter, "retry_after"),
		"reset":       r.durations(&w.reset, "reset"),
		"delay":       r.durations(&w.delay, "delay"),
	})
	return w
}
