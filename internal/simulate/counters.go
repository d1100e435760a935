package simulate

import (
	"hash/maphash"
	"slices"

	"weir/limiter"
	"weir/rules"
)

// counters numbers the counters of a replay, and keeps what is told of each.
type counters struct {
	seeds   [2]maphash.Seed
	numbers map[[2]uint64]uint32 // by 128 bits of the key's hash
	list    []counter
}

// counter is one of a limit: of a rule's first limit with what came and what became of
// it.
type counter struct {
	limit          uint32 // its place among those of the replay
	asked, refused uint32
	second, minute uint32 // the last ones, since 1970
	inSecond       uint32
	inMinute       uint32
	peakOfSeconds  uint32
	peakOfMinutes  uint32
}

func newCounters() counters {
	return counters{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, numbers: map[[2]uint64]uint32{}}
}

// number is the counter's. New ones are of the limit.
func (c *counters) number(key limiter.Key, limit uint32) uint32 {
	digest := [2]uint64{maphash.Bytes(c.seeds[0], key), maphash.Bytes(c.seeds[1], key)}
	n, ok := c.numbers[digest]
	if !ok {
		n = uint32(len(c.list))
		c.numbers[digest] = n
		c.list = append(c.list, counter{limit: limit})
	}
	return n
}

// add counts a request.
func (c *counter) add(seconds int64, refused bool) {
	c.asked++
	if refused {
		c.refused++
	}
	if second := uint32(seconds); second != c.second {
		c.second, c.inSecond = second, 0
	}
	c.inSecond++
	c.peakOfSeconds = max(c.peakOfSeconds, c.inSecond)
	if minute := uint32(seconds / 60); minute != c.minute {
		c.minute, c.inMinute = minute, 0
	}
	c.inMinute++
	c.peakOfMinutes = max(c.peakOfMinutes, c.inMinute)
}

// ranking has the counters with the highest values of some kind that only grows. What
// they are called is kept of them alone.
type ranking struct {
	size  int
	items []ranked // the highest first
}

type ranked struct {
	counter uint32
	value   uint32
	name    string
}

// note notes that a counter has reached a value.
func (r *ranking) note(number, value uint32, rule *rules.Rule, entries []rules.Entry) {
	if full := len(r.items) == r.size; r.size == 0 || full && value <= r.items[r.size-1].value {
		return
	}
	at := slices.IndexFunc(r.items, func(item ranked) bool { return item.counter == number })
	if at < 0 {
		if len(r.items) < r.size {
			r.items = append(r.items, ranked{})
		}
		at = len(r.items) - 1
		r.items[at] = ranked{counter: number, name: nameOf(rule, entries)}
	}
	r.items[at].value = value
	for ; at > 0 && r.items[at].value > r.items[at-1].value; at-- {
		r.items[at], r.items[at-1] = r.items[at-1], r.items[at]
	}
}
