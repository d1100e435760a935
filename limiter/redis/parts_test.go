package redis

import (
	"testing"
	"time"

	"weir/limiter"
)

// A give-back may run when Decide has returned and its caller uses the key's
// memory for another request: it must not reach that request's counter.
func TestPartsOfARequestOwnTheirKeys(t *testing.T) {
	s := &Store{naming: NewNaming("", nil)}
	l := limiter.Limit{Requests: 5, Window: limiter.Window{Length: time.Hour}}
	memory := []byte("first second")
	hits := []limiter.Hit{{Key: memory[:5], Limit: l, Cost: 1}, {Key: memory[6:], Limit: l, Cost: 1}}
	parts := s.split(hits)
	copy(memory, "other others")
	var keys []string
	for _, p := range parts {
		for _, h := range p.hits {
			keys = append(keys, string(h.Key))
		}
	}
	if len(keys) != 2 || keys[0] != "first" || keys[1] != "second" {
		t.Errorf("the parts have the keys %q", keys)
	}
}
