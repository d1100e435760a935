package redis

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// What a counter costs in Redis, its key and time to live included, as Redis
// itself says: what docs and capacity planning go by.
func TestCountersAreSmall(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{KeyPrefix: DefaultKeyPrefix}, nil)
	const limit = 1_000_000
	for _, l := range perAlgorithm(limit, time.Hour) {
		if l.Algorithm == limiter.SlidingWindowLog {
			continue
		}
		most := 180
		if l.Algorithm == limiter.FixedWindow {
			most = 150
		}
		for _, cost := range []uint64{1, limit} { // the counter's size does not depend on its number
			key := fmt.Sprint(l.Algorithm, cost)
			decide(t, s, hit(key, l, cost))
			n := usage(t, r, key)
			t.Logf("%v: %d bytes", l.Algorithm, n)
			if n > most {
				t.Errorf("%v, used %d: %d bytes, want at most %d", l.Algorithm, cost, n, most)
			}
		}
	}
	const perHit = 45
	for _, hits := range []int{100, 1000} {
		l := limiter.Limit{Requests: limiter.MaxLogLimit, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.SlidingWindowLog}
		key := fmt.Sprint(l.Algorithm, hits)
		for range hits {
			decide(t, s, hit(key, l, 1))
		}
		n := usage(t, r, key)
		t.Logf("%v: %d bytes, %.1f for each of %d hits", l.Algorithm, n, float64(n)/float64(hits), hits)
		if n > perHit*hits {
			t.Errorf("%v of %d hits: %d bytes, want at most %d for each", l.Algorithm, hits, n, perHit)
		}
	}
}

func usage(t *testing.T, r *testenv.Redis, key string) int {
	t.Helper()
	n, err := strconv.Atoi(r.MustDo(t, "MEMORY", "USAGE", NewNaming("", nil).Counter(limiter.Key(key), nil), "SAMPLES", "0"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKeysInRedisTellNothingOfTheirCounters(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{KeyPrefix: DefaultKeyPrefix}, nil)
	decide(t, s, hit("remote_address=192.0.2.1", perYear(5), 1), hit("a {tag}", perYear(5), 1))
	for _, key := range strings.Fields(r.MustDo(t, "KEYS", "*")) {
		if !strings.HasPrefix(key, DefaultKeyPrefix) || len(key) != len(DefaultKeyPrefix)+22 || strings.ContainsAny(key, "{}") || strings.Contains(key, "192") {
			t.Errorf("key %q", key)
		}
	}
}
