package redis

import "weir/limiter"

// request is what Decide works with for one request.
type request struct {
	hashes []keyHash // of its counters
	index  []int     // of each hit's counter in hashes
	loans  []loan    // by hit; used where leases are
	queues []int     // by counter: the place of its queue in the script's KEYS, from 1; nil: none has one
}

// gather finds the counters of the hits.
func (r *request) gather(n *Naming, hits []limiter.Hit) {
	r.hashes, r.index = r.hashes[:0], r.index[:0]
	var seen map[keyHash]int // of requests with many hits
	if len(hits) > 16 {
		seen = make(map[keyHash]int, len(hits))
	}
	for i := range hits {
		h := n.hash(hits[i].Key, hits[i].Overflow)
		at, found := seen[h]
		for j := 0; seen == nil && j < len(r.hashes) && !found; j++ {
			at, found = j, r.hashes[j] == h
		}
		if !found {
			at = len(r.hashes)
			r.hashes = append(r.hashes, h)
			if seen != nil {
				seen[h] = at
			}
		}
		r.index = append(r.index, at)
	}
}

// keys are the counters' names, in the order of hashes, and then those of the
// queues that they overflow into.
func (r *request) keys(prefix string, hits []limiter.Hit) []string {
	names := make([]string, len(r.hashes))
	for i, h := range r.hashes {
		names[i] = h.name(prefix)
	}
	r.queues = nil
	for i := range hits {
		h, counter := &hits[i], r.index[i]
		if h.Overflow == nil {
			continue
		}
		if r.queues == nil {
			r.queues = make([]int, len(r.hashes))
		}
		if r.queues[counter] == 0 {
			names[counter] = r.hashes[counter].name(QueueTag(prefix, h.Overflow))
			names = append(names, QueueName(prefix, h.Overflow))
			r.queues[counter] = len(names)
		}
	}
	return names
}
