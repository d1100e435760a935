package limiter

import "math/bits"

// table keeps counters by digest, in one array without pointers, 40 bytes each: open
// addressing with linear probing, as full as 9 in 10, and grown by a quarter. Go's
// own maps take 75 to 110 bytes for the same, for they double.
type table struct {
	slots   []slot
	n       int
	soonest int64 // none ends before it, in expiryUnits; means nothing while it is empty
}

// slot is a counter: its digest, and its state in three words. A slot whose expiry
// is 0 is free.
//
//	time                     64 bits
//	previous, high | used    11 | 53
//	expires | previous, low  42 | 22
type slot struct {
	digest digest
	words  [3]uint64
}

const (
	usedBits     = 53 // numbers in states are below 2^53
	lowBits      = 22 // of previous, which is at most twice a limit: below 2^33
	expiresLimit = 1<<(64-lowBits) - 1

	expiryUnit = 2000 // µs: 42 bits of them last until 2248
)

// record is a State without its log, and when it ends.
type record struct {
	time, used, previous int64
	expires              int64 // in expiryUnits since 1970, above 0
}

func (s *slot) record() record {
	return record{
		time:     int64(s.words[0]),
		used:     int64(s.words[1] & (1<<usedBits - 1)),
		previous: int64(s.words[1]>>usedBits<<lowBits | s.words[2]&(1<<lowBits-1)),
		expires:  int64(s.words[2] >> lowBits),
	}
}

func (s *slot) set(r record) {
	previous := uint64(r.previous)
	s.words[0] = uint64(r.time)
	s.words[1] = uint64(r.used)&(1<<usedBits-1) | previous>>lowBits<<usedBits
	s.words[2] = uint64(min(max(r.expires, 1), expiresLimit))<<lowBits | previous&(1<<lowBits-1)
}

func (s *slot) expires() int64 { return int64(s.words[2] >> lowBits) }

func (s *slot) free() bool { return s.words[2]>>lowBits == 0 }

// home is the place that a digest has if nobody else is there.
func (t *table) home(d digest) int {
	at, _ := bits.Mul64(d[1], uint64(len(t.slots)))
	return int(at)
}

// find returns the place of the counter, or the free place where it would be.
func (t *table) find(d digest) (at int, found bool) {
	for at = t.home(d); !t.slots[at].free(); {
		if t.slots[at].digest == d {
			return at, true
		}
		if at++; at == len(t.slots) {
			at = 0
		}
	}
	return at, false
}

// get returns the counter of that digest, or nil. What it points to is good until
// the table changes.
func (t *table) get(d digest) *slot {
	if t.n == 0 {
		return nil
	}
	if at, found := t.find(d); found {
		return &t.slots[at]
	}
	return nil
}

// put sets the counter, and tells whether it is a new one.
func (t *table) put(d digest, r record) (added bool) {
	if t.n+1+t.n/9 >= len(t.slots) { // one is always free, which ends a search
		t.resize(t.n + t.n/4 + 4)
	}
	at, found := t.find(d)
	s := &t.slots[at]
	s.digest = d
	s.set(r)
	if t.n == 0 || s.expires() < t.soonest {
		t.soonest = s.expires()
	}
	if !found {
		t.n++
	}
	return !found
}

// prolong has the counter end then, if it would before.
func (t *table) prolong(d digest, expires int64) {
	if s := t.get(d); s != nil && s.expires() < expires {
		r := s.record()
		r.expires = expires
		s.set(r)
	}
}

// remove takes the counter out, and tells whether it was there.
func (t *table) remove(d digest) bool {
	if t.n == 0 {
		return false
	}
	at, found := t.find(d)
	if found {
		t.removeAt(at)
	}
	return found
}

// removeAt closes the gap: those behind it move up, unless they are at home.
func (t *table) removeAt(gap int) {
	t.n--
	for at := gap; ; {
		if at++; at == len(t.slots) {
			at = 0
		}
		s := &t.slots[at]
		if s.free() {
			break
		}
		if t.distance(t.home(s.digest), at) >= t.distance(gap, at) {
			t.slots[gap] = *s
			gap = at
		}
	}
	t.slots[gap] = slot{}
}

// distance is how many steps lie from one place forward to another.
func (t *table) distance(from, to int) int {
	if to < from {
		to += len(t.slots)
	}
	return to - from
}

// sweep removes the counters that have ended by then, in expiryUnits, after
// calling gone for each; and gives memory back when it holds few.
func (t *table) sweep(now int64, gone func(digest)) {
	if t.n > 0 && t.soonest <= now {
		t.removeEnded(now, gone)
	}
	if 2*t.n < len(t.slots) && len(t.slots) > 16 {
		t.resize(t.n + t.n/4)
	}
}

func (t *table) removeEnded(now int64, gone func(digest)) {
	t.soonest = expiresLimit
	for at := range t.slots {
		s := &t.slots[at]
		for !s.free() && s.expires() <= now { // removing moves another here
			gone(s.digest)
			t.removeAt(at)
		}
		if !s.free() {
			t.soonest = min(t.soonest, s.expires())
		}
	}
}

func (t *table) resize(size int) {
	old := t.slots
	t.slots = nil
	if size == 0 {
		return
	}
	t.slots = make([]slot, size+1)
	for i := range old {
		if s := &old[i]; !s.free() {
			at, _ := t.find(s.digest)
			t.slots[at] = *s
		}
	}
}
