package redis

// How leases end.

// sweep returns what is to be given back: the leases that nobody spends from, and of
// others what they do not need. While Redis is away (keep) they stay.
func (t *leaseTable) sweep(now instant, keep bool) (back []errand) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, l := range s.leases {
			if e := s.tend(k, l, now, keep); e.hits > 0 {
				back = append(back, e)
			}
		}
		s.mu.Unlock()
	}
	return back
}

func (s *leaseShard) tend(k keyHash, l *lease, now instant, keep bool) errand {
	if l.left > 0 && now.reached(l.end) {
		s.count.Lost += l.left
		l.left, l.full = 0, 0
	}
	if l.hits > l.seen {
		l.active = now.mono
	}
	l.seen = l.hits
	if keep && l.left > 0 {
		return errand{}
	}
	if now.mono-l.active >= leaseIdle && l.lent+l.asked == 0 {
		return s.drop(k, l, now)
	}
	if now.mono-l.checked < leaseSpan {
		return errand{}
	}
	enough := leaseSpare * l.hits
	l.checked, l.hits, l.seen = now.mono, 0, 0
	if l.left > enough && l.left-enough > 1 {
		l.size = max(1, min(l.size, enough))
		return s.giveUp(k, l, l.left-enough/2)
	}
	return errand{}
}

// forget drops a lease without giving anything back: its counter begins anew.
func (t *leaseTable) forget(k keyHash) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[k]; l != nil {
		s.count.Lost += l.left
		l.left, l.gone, l.void = 0, true, true
		delete(s.leases, k)
	}
}

// clear empties the table, and returns what is to be given back.
func (t *leaseTable) clear(now instant) (back []errand) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k, l := range s.leases {
			if e := s.drop(k, l, now); e.hits > 0 {
				back = append(back, e)
			}
		}
		s.mu.Unlock()
	}
	return back
}
