package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// Who sends ever new values begins a counter with each request that passes, and with no
// other: a limit beside the rule's bounds what a flood takes of Redis, and of the
// instance, which stands by. Nobody's counter gives way.
func TestAFloodBeginsNoMoreCountersThanALimitBesideItLetsPass(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"one Redis", "a cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			standby := limiter.NewStandby(limiter.MemoryOptions{})
			var s *Store
			var keys func() []string
			if kind == "one Redis" {
				r := testenv.StartRedis(t, testenv.RedisOptions{})
				s = open(t, r.Addr, Options{Local: standby}, nil)
				keys = func() []string { return strings.Fields(r.MustDo(t, "KEYS", "*")) }
			} else {
				cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{})
				s = openCluster(t, cluster, Options{Local: standby})
				keys = func() []string {
					var all []string
					for _, node := range cluster.Nodes {
						all = append(all, strings.Fields(node.MustDo(t, "KEYS", "*"))...)
					}
					return all
				}
			}
			const lets, values = 20, 300
			for _, l := range perAlgorithm(5, 366*24*time.Hour) {
				name := l.Algorithm.String()
				honest := hit(name+" honest", l, 2)
				decide(t, s, honest)
				before := len(keys())
				passed := 0
				for i := range values {
					hits := []limiter.Hit{hit(name+" all", perYear(lets), 1), hit(fmt.Sprintf("%s value %d", name, i), l, 1)}
					if limiter.Passes(hits, decide(t, s, hits...)) {
						passed++
					}
				}
				if passed != lets {
					t.Errorf("%s: %d passed, want %d", name, passed, lets)
				}
				if begun := len(keys()) - before; begun != lets+1 { // and that of the limit beside
					t.Errorf("%s: %d values began %d counters, want %d", name, values, begun, lets+1)
				}
				if d := decide(t, s, hit(name+" honest", l, 0))[0]; d.Remaining != 3 && l.Algorithm != limiter.LeakyBucket {
					t.Errorf("%s: of another's counter %d are left, want 3", name, d.Remaining)
				}
			}
			if n := standby.Len(); n > 5*(lets+2) {
				t.Errorf("%d counters stand by, want %d at most", n, 5*(lets+2))
			}
		})
	}
}
