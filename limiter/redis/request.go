package redis

import (
	"crypto/sha256"
	"encoding/base64"

	"weir/limiter"
)

// keyHash is 128 bits of the SHA-256 of a counter's identity: short, and neither
// to be forged nor to be read.
type keyHash [16]byte

func hashKey(k limiter.Key) keyHash {
	sum := sha256.Sum256(k)
	return keyHash(sum[:16])
}

// CounterName is what a counter is called in Redis. One whose hits overflow into a
// queue lies beside that queue.
func CounterName(prefix string, k, overflow limiter.Key) string {
	if overflow != nil {
		prefix = QueueTag(prefix, overflow)
	}
	return hashKey(k).name(prefix)
}

// QueueTag begins all keys of a queue that hits overflow into, and puts them on one
// node of a cluster.
func QueueTag(prefix string, overflow limiter.Key) string {
	return prefix + "{" + hashKey(overflow).name("") + "}"
}

// QueueName is what the stream of who waits is called in Redis.
func QueueName(prefix string, overflow limiter.Key) string {
	return QueueTag(prefix, overflow) + "queue"
}

func (h keyHash) name(prefix string) string {
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], h[:])
	return prefix + string(text[:])
}

// request is what Decide works with for one request.
type request struct {
	hashes []keyHash // of its counters
	index  []int     // of each hit's counter in hashes
	queues []int     // by counter: the place of its queue in the script's KEYS, from 1; nil: none has one
}

// gather finds the counters of the hits.
func (r *request) gather(hits []limiter.Hit) {
	r.hashes, r.index = r.hashes[:0], r.index[:0]
	var seen map[keyHash]int // of requests with many hits
	if len(hits) > 16 {
		seen = make(map[keyHash]int, len(hits))
	}
	for i := range hits {
		h := hashKey(hits[i].Key)
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
