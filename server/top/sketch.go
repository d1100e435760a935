package top

import (
	"strings"
	"time"
	"unicode/utf8"

	"weir/rules"
)

// sketch has counters, and a heap of them with the least refused first.
type sketch struct {
	size  int
	slots []slot
	heap  []int32          // places in slots
	at    map[uint64]int32 // the place in slots of a key's counter
}

type slot struct {
	key          uint64
	count, err   uint64 // err of the count may be others'
	rank         int    // its place in the heap
	domain, rule string
	last         time.Time
	text         []byte // of the entries, keys and values by turns
	ends         []int  // where each of them ends in text
}

func newSketch(size int) *sketch { return &sketch{size: size, at: make(map[uint64]int32, size)} }

// clear keeps the memory of the slots.
func (s *sketch) clear() {
	s.slots, s.heap = s.slots[:0], s.heap[:0]
	clear(s.at)
}

// least is what a counter that is not there may have been refused at most.
func (s *sketch) least() uint64 {
	if len(s.slots) < s.size {
		return 0
	}
	return s.slots[s.heap[0]].count
}

func (s *sketch) add(key uint64, r *Refusal, now time.Time) {
	at, known := s.at[key]
	if !known {
		at = s.place()
		s.at[key] = at
	}
	x := &s.slots[at]
	if !known {
		x.key, x.rule = key, r.Rule
		if x.domain != r.Domain {
			x.domain = strings.Clone(r.Domain) // it may be part of a whole request
		}
	}
	x.count++
	x.last = now
	x.keep(r.Entries)
	s.up(x.rank)
	s.down(x.rank)
}

// place makes room for a counter: what was refused least goes if need be.
func (s *sketch) place() int32 {
	n := len(s.slots)
	if n == s.size {
		at := s.heap[0]
		delete(s.at, s.slots[at].key)
		s.slots[at].err = s.slots[at].count
		return at
	}
	if n < cap(s.slots) {
		s.slots = s.slots[:n+1] // with the memory of the slot that was there
	} else {
		s.slots = append(s.slots, slot{})
	}
	s.slots[n].count, s.slots[n].err, s.slots[n].rank = 0, 0, n
	s.heap = append(s.heap, int32(n))
	return int32(n)
}

func (s *sketch) count(rank int) uint64 { return s.slots[s.heap[rank]].count }

func (s *sketch) swap(i, j int) {
	s.heap[i], s.heap[j] = s.heap[j], s.heap[i]
	s.slots[s.heap[i]].rank, s.slots[s.heap[j]].rank = i, j
}

func (s *sketch) up(i int) {
	for i > 0 && s.count(i) < s.count((i-1)/2) {
		s.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (s *sketch) down(i int) {
	for {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(s.heap) && s.count(child) < s.count(least) {
				least = child
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

// maxEntries is how many entries are kept.
const maxEntries = 16

// keep copies the entries, cut: first keys and values are given what they need, up
// to the room that is left.
func (x *slot) keep(entries []rules.Entry) {
	x.text, x.ends = x.text[:0], x.ends[:0]
	for i, e := range entries {
		if i == maxEntries {
			break
		}
		for _, part := range [...]string{e.Key, e.Value} {
			x.text = append(x.text, cut(part, MaxText-len(x.text))...)
			x.ends = append(x.ends, len(x.text))
		}
	}
}

// cut shortens text to n bytes, not amid a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for back := 0; back < utf8.UTFMax && n > 0 && !utf8.RuneStart(text[n]); back++ {
		n--
	}
	return text[:n]
}

func (x *slot) entries() (out []rules.Entry) {
	from := 0
	for i := 0; i+1 < len(x.ends); i += 2 {
		out = append(out, rules.Entry{Key: string(x.text[from:x.ends[i]]), Value: string(x.text[x.ends[i]:x.ends[i+1]])})
		from = x.ends[i+1]
	}
	return out
}
