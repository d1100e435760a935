// Package ruletest plays tests of rules: requests at simulated times, and what each
// is to be answered. They run through the code that serves, on counters in memory.
//
//	find.go → read*.go (a file) → play.go (a test) → compare.go (a step) → report.go, junit.go
package ruletest

import (
	"fmt"
	"time"

	"weir/rules"
)

// File is a test file.
type File struct {
	Path  string
	Tests []*Test
}

// Test is steps on counters of their own, which begin empty.
type Test struct {
	Name string
	Line int

	start     time.Time
	flags     []string
	documents []*rules.Document
	steps     []*step
	unplayed  string // why it cannot be played here; "": it can
}

// step moves the clock, and sends requests or changes the rules.
type step struct {
	line   int
	at     moment
	settle time.Duration // the clock moves on by this when all else is done

	send   *send  // nil: the step sends nothing
	reload reload // rules to put into force
	want   want
	remark string // what the step is there for
}

// send is what a step sends.
type send struct {
	asked    request
	text     string // for people
	times    int
	parallel bool          // all at once: none waits until another is answered
	every    time.Duration // the time from one to the next
	patience time.Duration // of the caller
}

// reload are new rules.
type reload struct {
	documents []*rules.Document // nil: there are none
	lenient   bool              // rules that are refused are no failure
}

// moment is when a step begins.
type moment struct {
	kind  momentKind
	at    time.Time     // absolute
	after time.Duration // since the start of the test, or since the end of the step before
}

type momentKind uint8

const (
	next     momentKind = iota // when the step before has ended
	later                      // so long after that
	elapsed                    // so long after the start of the test
	absolute                   // at a time
)

// want is what a step wants; what is nil or empty is not compared.
type want struct {
	codes   string // A, D or E for each request
	passed  *span[int]
	failure string // of an error's code or text; codes are separated by |
	delay   *span[time.Duration]

	// Of the last answer.
	code       string
	rule       *string
	limit      *uint64
	remaining  *uint64
	retryAfter *wait
	reset      *span[time.Duration]
	body       *string
	headers    map[string]string
	upstream   map[string]string
	statuses   []wantStatus
	limits     []wantLimit
}

// wantStatus is what a status of the answer is to say.
type wantStatus struct {
	code, name, unit string
	none             bool // there is no limit
	remaining, limit *uint64
	reset            *span[time.Duration]
}

// wantLimit is what one limit is to say.
type wantLimit struct {
	rule             string
	allowed          *bool
	limit, remaining *uint64
	retryAfter       *wait
	reset, delay     *span[time.Duration]
}

// span is a value, or from one to another.
type span[T int | time.Duration] struct{ least, most T }

func (s *span[T]) holds(v T) bool { return v >= s.least && v <= s.most }

func (s *span[T]) String() string {
	if s.least == s.most {
		return fmt.Sprint(s.least)
	}
	return fmt.Sprintf("%v to %v", s.least, s.most)
}

// wait is a time to wait, or that waiting cannot help.
type wait struct {
	never bool
	span[time.Duration]
}

func (w *wait) holds(v time.Duration) bool {
	if w.never {
		return v == 0
	}
	return v > 0 && w.span.holds(v)
}

func (w *wait) String() string { return waitText(w.never, w.span.String()) }

func waitText(never bool, text string) string {
	if never {
		return "none"
	}
	return text
}
