package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/limiter"
)

// What a Store does with its leases.

// instant is the time by both clocks; by that of tests, if there is one.
func (s *Store) instant(t time.Time) instant {
	if s.opts.Now != nil {
		since := s.opts.Now().Sub(s.opened)
		return instant{since, since}
	}
	return instant{mono: t.Sub(s.opened), wall: time.Duration(t.UnixNano() - s.opened.UnixNano())}
}

// spend decides the hits that leases cover, and has the others decided without
// them; decided is false if no lease covers any. All hits have counters of their own.
func (s *Store) spend(ctx context.Context, r *request, hits []limiter.Hit, now time.Time) (decisions []limiter.Decision, decided bool, err error) {
	if len(hits) == 1 {
		if h := &hits[0]; leasable(h) {
			d, from, ask := s.leases.spend(h, r.hashes[0], s.instant(now), false)
			if from.lease != nil {
				s.refill(h, r.hashes[0], from.lease, ask)
				return []limiter.Decision{d}, true, nil
			}
		}
		return nil, false, nil
	}
	decisions, covered := s.lend(r, hits, now)
	if covered == 0 {
		return nil, false, nil
	}
	defer clear(r.loans) // the pool must not keep them
	if covered < len(hits) {
		if slices.ContainsFunc(hits, func(h limiter.Hit) bool { return h.Quota }) { // they depend on each other
			s.settle(r, hits, decisions, false)
			return nil, false, nil
		}
		if err := s.decideRest(ctx, r, hits, decisions); err != nil {
			s.settle(r, hits, decisions, false)
			return nil, true, err
		}
	}
	s.settle(r, hits, decisions, s.opts.ChargeEach || limiter.Passes(hits, decisions))
	return decisions, true, nil
}

// lend takes out of leases what they cover.
func (s *Store) lend(r *request, hits []limiter.Hit, now time.Time) (decisions []limiter.Decision, covered int) {
	r.loans = r.loans[:0]
	for i := range hits {
		h := &hits[i]
		var from loan
		if leasable(h) {
			var d limiter.Decision
			var ask uint64
			if d, from, ask = s.leases.spend(h, r.hashes[i], s.instant(now), true); from.lease != nil {
				s.refill(h, r.hashes[i], from.lease, ask)
				if decisions == nil {
					decisions = make([]limiter.Decision, len(hits))
				}
				decisions[i] = d
				covered++
			}
		}
		r.loans = append(r.loans, from)
	}
	return decisions, covered
}

// decideRest decides the hits that have no loan, as a request of their own.
func (s *Store) decideRest(ctx context.Context, r *request, hits []limiter.Hit, decisions []limiter.Decision) error {
	var rest []limiter.Hit
	for i := range hits {
		if r.loans[i].lease == nil {
			rest = append(rest, hits[i])
		}
	}
	decided, err := s.Decide(ctx, rest)
	if err != nil {
		return err
	}
	for i := range hits {
		if r.loans[i].lease == nil {
			decisions[i], decided = decided[0], decided[1:]
		}
	}
	return nil
}

func (s *Store) settle(r *request, hits []limiter.Hit, decisions []limiter.Decision, spent bool) {
	for i, from := range r.loans {
		if from.lease == nil {
			continue
		}
		remaining := s.leases.settle(from, r.hashes[i], hits[i].Cost, spent)
		if !spent {
			decisions[i].Remaining = remaining
		}
	}
}

// noteDemand tells the leases what Redis decided, and shows in the decisions what is
// in hand beside what Redis has left.
func (s *Store) noteDemand(r *request, hits []limiter.Hit, decisions []limiter.Decision, asked time.Time) {
	for i := range hits {
		h, d := &hits[i], &decisions[i]
		if h.Limit.Lease < 2 {
			continue
		}
		k, at := r.hashes[r.index[i]], s.instant(asked)
		told := *d
		if d.Allowed {
			s.leases.show(h, d, k, at, asked)
		}
		if leasable(h) {
			back, take := s.leases.decided(h, &told, k, at, asked)
			s.giveBackSoon(back)
			s.takeSoon(h, take)
		}
	}
}

// showLeases has looks tell what this instance would answer.
func (s *Store) showLeases(hits []limiter.Hit, decisions []limiter.Decision, now time.Time) {
	for i := range hits {
		h, d := &hits[i], &decisions[i]
		if h.Limit.Lease < 2 {
			continue
		}
		s.leases.show(h, d, s.naming.hash(h.Key, h.Overflow), s.instant(now), now)
		if !d.Allowed && h.Cost > 0 && h.Cost <= d.Remaining {
			d.Allowed, d.RetryAfter = true, 0
		}
	}
}

// errands are what goes on in the background, until they are ended.
type errands struct {
	mu      sync.Mutex
	ended   bool
	running sync.WaitGroup
}

// begin runs f, or is false if they were ended.
func (e *errands) begin(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.running.Go(f)
	}
	return !e.ended
}

// end lets no more begin, and waits for those that run.
func (e *errands) end() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.running.Wait()
}

func (s *Store) refill(h *limiter.Hit, k keyHash, l *lease, ask uint64) {
	if ask > 0 {
		s.takeSoon(h, errand{counter: k, lease: l, limit: h.Limit, hits: ask})
	}
}

// takeSoon takes hits for a lease.
func (s *Store) takeSoon(h *limiter.Hit, e errand) {
	if e.hits == 0 {
		return
	}
	hit := limiter.Hit{Key: slices.Clone(h.Key), Limit: e.limit, Cost: e.hits, OnFailure: h.OnFailure}
	hit.Limit.CountDenied = false // a take is no try of anybody's
	if !s.errands.begin(func() { s.take(&hit, e) }) {
		s.leases.taken(e, granted{failed: true}, s.instant(time.Now()))
	}
}

// take asks Redis for hits as for any hit of that cost, with a receipt.
func (s *Store) take(hit *limiter.Hit, e errand) {
	now := time.Now()
	g := granted{asked: s.instant(now), failed: true}
	if !s.breaker.isOpen() {
		hits, r := []limiter.Hit{*hit}, request{hashes: []keyHash{e.counter}, index: []int{0}}
		a, err := s.run(context.Background(), &s.scripts.multi, modePart, &r, hits, now)
		if g.failed = err != nil; g.failed {
			g.lost = true
			s.blame(err)
			s.log.Debug("hits for a lease were not taken", "err", err)
		} else {
			s.breaker.succeeded()
			s.opts.Local.Learn(hits, a.decisions, now)
			g.decision, g.receipt = a.decisions[0], a.receipts[0]
		}
	}
	s.giveBackSoon(s.leases.taken(e, g, s.instant(time.Now())))
}

func (s *Store) giveBackSoon(e errand) {
	if e.hits > 0 && !s.errands.begin(func() { s.giveBackAll([]errand{e}) }) {
		s.leases.counted(&e, false)
	}
}

// giversBack is how many counters are given back to at once.
const giversBack = 64

// giveBackAll gives back what leases do not need, each to its window. After a first
// failure the rest stays charged until that ends.
func (s *Store) giveBackAll(all []errand) {
	if len(all) == 1 {
		s.giveBackOne(&all[0])
		return
	}
	next := make(chan *errand)
	failing, failed := context.WithCancel(context.Background())
	defer failed()
	var giving sync.WaitGroup
	for range min(giversBack, len(all)) {
		giving.Go(func() {
			for e := range next {
				if !s.giveBackOne(e) {
					failed()
				}
			}
		})
	}
	for i := range all {
		if failing.Err() != nil {
			s.leases.counted(&all[i], false)
			continue
		}
		next <- &all[i]
	}
	close(next)
	giving.Wait()
}

func (s *Store) giveBackOne(e *errand) bool {
	hit := limiter.Hit{Limit: e.limit, Cost: e.hits, MaxDelay: e.limit.Duration(e.receipt)} // the script's patience, in units
	r := request{hashes: []keyHash{e.counter}, index: []int{0}}
	_, err := s.run(context.Background(), &s.scripts.giveBack, modeAllOrNothing, &r, []limiter.Hit{hit}, time.Now())
	if err != nil {
		s.blame(err)
		s.log.Debug("what a lease did not need was not given back", "err", err)
	} else {
		s.breaker.succeeded()
		s.denied.charged(e.counter) // what was refused may pass now
	}
	s.leases.counted(e, err == nil)
	return err == nil
}

// tendLeases gives back what is not needed, until the context ends.
func (s *Store) tendLeases(ctx context.Context) {
	tick := time.NewTicker(leaseTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if back := s.leases.sweep(s.instant(now), s.breaker.isOpen()); len(back) > 0 {
				s.giveBackAll(back)
			}
		}
	}
}

// endLeases gives everything back.
func (s *Store) endLeases() {
	s.errands.end()
	back := s.leases.clear(s.instant(time.Now()))
	if s.breaker.isOpen() || len(back) == 0 {
		return
	}
	s.giveBackAll(back)
}

// Leases tells what became of leases, and how many counters have hits in hand.
func (s *Store) Leases() (counts LeaseCounts, held int) { return s.leases.totals() }
