package simulate

import "time"

// Peak is the most that came within a second or a minute of the clock, and when.
type Peak struct {
	Requests uint64    `json:"requests"`
	At       time.Time `json:"at"`
}

// rate counts requests by the second or the minute, in the order of time.
type rate struct {
	unit int64 // seconds
	at   int64 // the second or minute, as its number since 1970
	now  uint64
	peak uint64
	when int64
}

func (r *rate) add(seconds int64) {
	if at := seconds / r.unit; at != r.at {
		r.at, r.now = at, 0
	}
	r.now++
	if r.now > r.peak {
		r.peak, r.when = r.now, r.at
	}
}

func (r *rate) result() Peak { return Peak{r.peak, time.Unix(r.when*r.unit, 0).UTC()} }

// Bucket is what came within a part of the log's time.
type Bucket struct {
	At       time.Time `json:"at"`
	Requests uint64    `json:"requests"`
	Refused  uint64    `json:"refused"`
	Shadow   uint64    `json:"would_be_refused"` // but for the shadow mode of rules
}

// series counts requests over the log's time, in equal parts of which it has a bounded
// number: when they become too many, each two become one.
type series struct {
	begin, width int64 // seconds
	buckets      []Bucket
}

const mostBuckets = 240

func (s *series) add(seconds int64, refused, shadow bool) {
	if s.width == 0 {
		s.begin, s.width = seconds, 1
	}
	at := (seconds - s.begin) / s.width
	for at >= mostBuckets {
		s.halve()
		at = (seconds - s.begin) / s.width
	}
	for int64(len(s.buckets)) <= at {
		s.buckets = append(s.buckets, Bucket{})
	}
	b := &s.buckets[at]
	b.Requests++
	if refused {
		b.Refused++
	}
	if shadow {
		b.Shadow++
	}
}

// halve has parts begin at multiples of their width, where the clock's do.
func (s *series) halve() {
	width := nextWidth(s.width)
	begin := s.begin - s.begin%width
	merged := make([]Bucket, 0, mostBuckets)
	for i, b := range s.buckets {
		at := (s.begin + int64(i)*s.width - begin) / width
		for int64(len(merged)) <= at {
			merged = append(merged, Bucket{})
		}
		merged[at].Requests += b.Requests
		merged[at].Refused += b.Refused
		merged[at].Shadow += b.Shadow
	}
	s.begin, s.width, s.buckets = begin, width, merged
}

// widths are times that people count in, each a multiple of the one before.
var widths = []int64{1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 24 * 3600}

func nextWidth(width int64) int64 {
	for _, w := range widths {
		if w > width {
			return w
		}
	}
	return 2 * width
}

func (s *series) result() []Bucket {
	for i := range s.buckets {
		s.buckets[i].At = time.Unix(s.begin+int64(i)*s.width, 0).UTC()
	}
	return s.buckets
}
