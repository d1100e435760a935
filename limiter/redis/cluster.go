package redis

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/limiter"
)

// On a cluster the counters of a request lie in several slots, and no script sees
// them all. So each part is charged on its own, all parts at once; if one
// refuses, what the others were charged is given back. In between, others may be
// refused that would have passed: the limit is never exceeded, at worst briefly
// under-used. Leaky buckets come last, one after another, for they promise places.

// part is the hits of a request whose counters lie in one slot.
type part struct {
	request
	hits   []limiter.Hit
	places []int // of its hits in the request
	leaky  bool  // it may promise a place
	answer answer
	err    error
}

// split puts the hits into parts, in the order of their first hit.
func (s *Store) split(hits []limiter.Hit) []*part {
	var parts []*part
	bySlot := map[uint16]*part{}
	for i := range hits {
		slot := slotOf(s.naming.Counter(hits[i].Key, hits[i].Overflow))
		p := bySlot[slot]
		if p == nil {
			p = new(part)
			bySlot[slot] = p
			parts = append(parts, p)
		}
		h := hits[i]
		h.Key = slices.Clone(h.Key) // a give-back may outlive the request
		p.hits, p.places = append(p.hits, h), append(p.places, i)
		p.leaky = p.leaky || hits[i].Limit.Algorithm == limiter.LeakyBucket && hits[i].Cost > 0 && !hits[i].Refund
	}
	for _, p := range parts {
		p.gather(s.naming, p.hits)
	}
	return parts
}

// askParts decides a request whose counters lie in several slots.
func (s *Store) askParts(ctx context.Context, parts []*part, hits []limiter.Hit) ([]limiter.Decision, error) {
	decisions := make([]limiter.Decision, len(hits))
	for i := range decisions {
		decisions[i].Allowed = true // until its part has answered
	}
	if s.opts.ChargeEach {
		s.runParts(ctx, parts, modeEach)
		return decisions, collect(parts, decisions)
	}
	var plain, leaky []*part
	for _, p := range parts {
		if p.leaky {
			leaky = append(leaky, p)
		} else {
			plain = append(plain, p)
		}
	}
	s.runParts(ctx, plain, modePart)
	err := collect(plain, decisions)
	for _, p := range leaky {
		if err != nil {
			break
		}
		mode := byte(modePart)
		if !limiter.Passes(hits, decisions) {
			mode = modeRefused
		}
		s.runParts(ctx, []*part{p}, mode)
		err = collect([]*part{p}, decisions)
	}
	if err != nil {
		go s.giveBack(context.WithoutCancel(ctx), parts) // nobody waits for it
		return nil, err
	}
	if !limiter.Passes(hits, decisions) {
		s.giveBack(context.WithoutCancel(ctx), parts) // also for a caller that leaves
		err = collect(parts, decisions)
		for i := range decisions {
			decisions[i].Delay, decisions[i].Queued = 0, false
		}
	}
	return decisions, err
}

// runParts asks for all parts at once: those on one node share a round trip.
func (s *Store) runParts(ctx context.Context, parts []*part, mode byte) {
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() { p.answer, p.err = s.run(ctx, &s.scripts.multi, mode, &p.request, p.hits, time.Now()) })
	}
	wg.Wait()
}

// collect puts the parts' decisions in their places.
func collect(parts []*part, decisions []limiter.Decision) error {
	for _, p := range parts {
		if p.err != nil {
			return p.err
		}
		for i, at := range p.places {
			decisions[at] = p.answer.decisions[i]
		}
	}
	return nil
}

// giveBack takes back what the parts were charged, as their receipts name it, and
// updates their decisions. A part that it does not reach stays charged until its
// window ends.
func (s *Store) giveBack(ctx context.Context, parts []*part) {
	var wg sync.WaitGroup
	for _, p := range parts {
		back := part{}
		for i, receipt := range p.answer.receipts {
			if h := p.hits[i]; receipt >= 0 && h.Cost > 0 && !h.Refund {
				h.MaxDelay = h.Limit.Duration(receipt) // the script's patience, in units
				back.hits, back.places = append(back.hits, h), append(back.places, i)
			}
		}
		if len(back.hits) == 0 {
			continue
		}
		wg.Go(func() {
			back.gather(s.naming, back.hits)
			a, err := s.run(ctx, &s.scripts.giveBack, modeAllOrNothing, &back.request, back.hits, time.Now())
			if err != nil {
				s.log.Debug("a refused request's charge was not given back", "err", err)
				return
			}
			for i, at := range back.places {
				p.show(p.index[at], &a.decisions[i])
			}
		})
	}
	wg.Wait()
}

// show makes all hits on a counter tell the state that the decision tells.
func (p *part) show(counter int, d *limiter.Decision) {
	for i := range p.hits {
		if p.index[i] == counter {
			p.answer.decisions[i].Remaining, p.answer.decisions[i].ResetAfter = d.Remaining, d.ResetAfter
		}
	}
}

// slotOf is the slot of a key: CRC-16/XMODEM of what stands in its first braces,
// or of all of it, modulo 16384 (Redis cluster specification).
func slotOf(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
