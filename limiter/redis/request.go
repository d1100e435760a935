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

// KeyName is what a counter is called in Redis.
func KeyName(prefix string, k limiter.Key) string { return hashKey(k).name(prefix) }

func (h keyHash) name(prefix string) string {
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], h[:])
	return prefix + string(text[:])
}

// request is what Decide works with for one request.
type request struct {
	hashes []keyHash // of its counters
	index  []int     // of each hit's counter in hashes
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

// keys are the counters' names, in the order of hashes.
func (r *request) keys(prefix string) []string {
	names := make([]string, len(r.hashes))
	for i, h := range r.hashes {
		names[i] = h.name(prefix)
	}
	return names
}
