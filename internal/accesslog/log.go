// Package accesslog reads access logs as requests for decisions: it knows several
// formats, what fields their lines have, and how a mapping turns fields into
// descriptors.
//
//	files → lines → fields (a parser for each format) → descriptors (Mapping) → in the order of time
package accesslog

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"weir/rules"
)

// Options say what to read, and how. Files and Mapping are required; the zero value
// of the rest is its default.
type Options struct {
	Files     []string  // "-" is Stdin
	Stdin     io.Reader //
	Format    string    // one of Formats; "": each file's is recognised by its first line
	Mapping   *Mapping
	Zone      *time.Location // of times that name no zone; nil: UTC
	Tolerance time.Duration  // lines that are late by so much are sorted; 0: DefaultTolerance; below 0: none
}

// DefaultTolerance is how late a line may be, since servers write lines when requests
// end.
const DefaultTolerance = 10 * time.Second

// maxHeld bounds the requests that wait for others that may have come before them.
const maxHeld = 50_000

// maxExamples is how many unreadable lines are told of.
const maxExamples = 5

// Request is a line of a log, as the request that it was.
type Request struct {
	rules.Request
	At time.Time

	order   uint64 // as read
	at      int64  // At, in µs since 1970
	entries []rules.Entry
}

// Stats is what was made of the lines.
type Stats struct {
	Files      []FileStats   `json:"files"`
	Requests   uint64        `json:"requests"`
	LeftOut    uint64        `json:"left_out"`   // by the mapping's when and unless
	Unreadable uint64        `json:"unreadable"` // lines
	Late       uint64        `json:"late"`       // more than the tolerance behind another, and left out
	Examples   []string      `json:"examples,omitempty"`
	Zoneless   bool          `json:"zoneless"` // there were times without a zone
	Zone       string        `json:"zone"`     // that they were taken to be of
	Unmet      []string      `json:"unmet,omitempty"`
	Tolerance  time.Duration `json:"-"`
}

// FileStats is a file and its lines.
type FileStats struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Lines  uint64 `json:"lines"`
}

// Log is several files, read as one in the order of time.
type Log struct {
	opts    Options
	mapper  mapper
	files   []*file
	waiting queue
	free    []*Request
	last    *Request // that Next returned
	newest  int64    // time read
	reached int64    // time returned
	read    uint64

	leftOut, late uint64
}

// Open opens the files and recognises their formats. Faults of the mapping, such as
// fields that a format does not have, are rules.Faults.
func Open(opts Options) (*Log, error) {
	if opts.Zone == nil {
		opts.Zone = time.UTC
	}
	if opts.Tolerance == 0 {
		opts.Tolerance = DefaultTolerance
	}
	l := &Log{opts: opts, mapper: newMapper(opts.Mapping), newest: math.MinInt64, reached: math.MinInt64}
	for _, name := range opts.Files {
		f, err := openFile(name, &l.opts)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.files = append(l.files, f)
	}
	for _, f := range slices.Clone(l.files) {
		if err := l.advance(f); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close closes the files.
func (l *Log) Close() {
	for _, f := range l.files {
		f.close()
	}
}

// Next returns the next request, which is good until Next is called again; io.EOF
// after the last one.
func (l *Log) Next() (*Request, error) {
	if l.last != nil {
		l.free, l.last = append(l.free, l.last), nil
	}
	for !l.due() {
		f := l.earliest()
		if f == nil {
			break
		}
		if err := l.take(f); err != nil {
			return nil, err
		}
	}
	if len(l.waiting) == 0 {
		return nil, io.EOF
	}
	l.last, _ = heap.Pop(&l.waiting).(*Request)
	l.reached = l.last.at
	return l.last, nil
}

// due tells whether no line that may still come is before the first that waits.
func (l *Log) due() bool {
	n := len(l.waiting)
	return n > 0 && (n > maxHeld || l.waiting[0].at <= l.newest-max(0, l.opts.Tolerance.Microseconds()))
}

// earliest is the file whose next line is the oldest; nil: all have ended. Files are
// few.
func (l *Log) earliest() (first *file) {
	for _, f := range l.files {
		if f.next != nil && (first == nil || f.next.at < first.next.at) {
			first = f
		}
	}
	return first
}

// take puts the file's next request among those that wait, and reads on.
func (l *Log) take(f *file) error {
	r := f.next
	f.next = nil
	if r.at < l.reached {
		l.late++
		l.free = append(l.free, r)
	} else {
		l.newest = max(l.newest, r.at)
		heap.Push(&l.waiting, r)
	}
	return l.advance(f)
}

// advance reads the file's next line that is a request.
func (l *Log) advance(f *file) error {
	for {
		ok, err := f.read()
		if err != nil || !ok {
			return err
		}
		r := l.blank()
		if !l.mapper.fill(r, f.values) {
			l.leftOut++
			l.free = append(l.free, r)
			continue
		}
		l.read++
		r.order, r.at = l.read, f.at
		r.At = time.UnixMicro(f.at).UTC()
		f.next = r
		return nil
	}
}

func (l *Log) blank() *Request {
	n := len(l.free)
	if n == 0 {
		return new(Request)
	}
	r := l.free[n-1]
	l.free = l.free[:n-1]
	return r
}

// Progress is how many bytes of the files were read, of how many, and lines; the
// total is 0 where it is not known.
func (l *Log) Progress() (bytes, total int64, lines uint64) {
	known := true
	for _, f := range l.files {
		bytes += f.counted.n
		total += f.size
		lines += f.lines
		known = known && f.size > 0
	}
	if !known {
		total = 0
	}
	return bytes, total, lines
}

// Stats tells what was made of the lines so far.
func (l *Log) Stats() Stats {
	s := Stats{Requests: l.read - l.late, LeftOut: l.leftOut, Late: l.late, Zone: l.opts.Zone.String(), Tolerance: max(0, l.opts.Tolerance)}
	met := make([]bool, len(l.opts.Mapping.fields))
	for _, f := range l.files {
		s.Files = append(s.Files, FileStats{f.name, f.format, f.lines})
		s.Unreadable += f.unreadable
		s.Examples = append(s.Examples, f.examples...)
		s.Zoneless = s.Zoneless || f.times.zoneless
		for i := range met {
			met[i] = met[i] || i < len(f.met) && f.met[i]
		}
	}
	s.Examples = s.Examples[:min(len(s.Examples), maxExamples)]
	if l.read > 0 {
		for i, is := range met {
			if !is {
				s.Unmet = append(s.Unmet, l.opts.Mapping.unmet(i))
			}
		}
	}
	return s
}

// ErrNoRequests is what Check wraps if no line of the log was a request.
var ErrNoRequests = errors.New("no line is a request")

// Check says what is wrong with a log of which nothing could be made.
func (s *Stats) Check() error {
	if s.Requests > 0 {
		return nil
	}
	why := "the log is empty"
	switch {
	case s.Unreadable > 0:
		why = fmt.Sprintf("%d could not be read:\n  %s", s.Unreadable, strings.Join(s.Examples, "\n  "))
	case s.LeftOut > 0:
		why = fmt.Sprintf("%d were left out, as the mapping's when and unless say", s.LeftOut)
	}
	return fmt.Errorf("%w; %s", ErrNoRequests, why)
}

// queue is a heap of requests, the oldest first, and of one time the first read.
type queue []*Request

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}

func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(r any) {
	if request, ok := r.(*Request); ok {
		*q = append(*q, request)
	}
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	r := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return r
}
