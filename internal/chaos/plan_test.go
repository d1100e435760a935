package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// setting is what a schedule runs on.
type setting struct {
	instances int
	redis     string // single, pair (with a replica to fail over to), clock (its clock can be set)
	persists  string // of Redis: no, everysec, always
	source    string // of rules: file, etcd, consul
	timeout   time.Duration
}

func (s setting) String() string {
	return fmt.Sprintf("%d instances, redis %s, appendfsync %s, rules by %s, --store-timeout %v", s.instances, s.redis, s.persists, s.source, s.timeout)
}

// fault is one thing that goes wrong, and when.
type fault struct {
	at, lasts time.Duration // since the schedule began; for how long
	lane      string        // what it is done to; the faults of a lane do not overlap
	instance  int           // of lanes that have one
	kind      string
}

func (f fault) String() string {
	return fmt.Sprintf("%6.2fs +%.2fs %s %s", f.at.Seconds(), f.lasts.Seconds(), f.lane, f.kind)
}

// plan is a schedule. The same seed and length make the same one.
type plan struct {
	seed   uint64
	length time.Duration
	setting
	faults []fault
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v: %v\n", p.seed, p.length, p.setting)
	for _, f := range p.faults {
		fmt.Fprintf(&b, "  %v\n", f)
	}
	return b.String()
}

// What can be done to a lane, by the setting.
func redisKinds(s setting) []string {
	kinds := []string{"stop", "flushall", "script-flush", "client-pause", "client-kill", "out-of-memory", "busy"}
	if s.redis != "clock" {
		kinds = append(kinds, "kill", "kill")
	}
	if s.persists != "no" {
		kinds = append(kinds, "full-disk", "full-disk")
	}
	switch s.redis {
	case "pair":
		kinds = append(kinds, "failover", "failover", "failover-kill", "failover-kill", "replica")
	case "clock":
		kinds = append(kinds, "clock-ahead", "clock-back", "clock-ahead", "clock-back")
	}
	return kinds
}

var (
	netKinds    = []string{"delay", "jitter", "loss", "half-open", "refuse", "reset", "cut", "slow-bytes"}
	weirKinds   = []string{"kill", "kill", "stop"}
	clientKinds = []string{"connections", "slow-http1", "slow-http2", "oversized", "big-headers", "flood"}
)

func rulesKinds(s setting) []string {
	if s.source == "file" {
		return []string{"change", "change", "broken-change"}
	}
	return append([]string{"change", "change", "change", "broken-change", "stop", "with-redis-away"}, netKinds...)
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// newPlan makes a schedule by chance.
func newPlan(seed uint64, length time.Duration, clocks bool) *plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &plan{seed: seed, length: length}
	p.instances = 2 + r.IntN(2)
	p.redis = pick(r, "single", "single", "pair", "pair", "clock")
	p.persists = pick(r, "no", "everysec", "always")
	p.source = pick(r, "file", "file", "etcd", "consul")
	p.timeout = pick(r, 10*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond)
	if p.redis == "clock" && !clocks {
		p.redis = "single"
	}
	// The gaps have whole seconds in which all is well between faults of a lane, so
	// that what the store is asked for is known again.
	p.lane(r, "redis", 0, redisKinds(p.setting), 5*time.Second)
	p.lane(r, "rules", 0, rulesKinds(p.setting), 5*time.Second)
	p.lane(r, "clients", 0, clientKinds, 6*time.Second)
	for i := range p.instances {
		p.lane(r, fmt.Sprint("net", i), i, netKinds, 7*time.Second)
		p.lane(r, fmt.Sprint("weir", i), i, weirKinds, 14*time.Second)
	}
	return p
}

// lane fills a lane with faults, with gaps of the mean that is given.
func (p *plan) lane(r *rand.Rand, lane string, instance int, kinds []string, gap time.Duration) {
	at := time.Duration(r.Float64() * float64(gap))
	for {
		lasts := 50*time.Millisecond + time.Duration(r.ExpFloat64()*float64(600*time.Millisecond))
		lasts = min(lasts, 2500*time.Millisecond)
		if at+lasts > p.length {
			return
		}
		p.faults = append(p.faults, fault{at, lasts, lane, instance, pick(r, kinds...)})
		at += lasts + gap/2 + time.Duration(r.Float64()*float64(gap))
	}
}
