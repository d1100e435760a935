package redis

import (
	"fmt"
	"testing"
	"time"

	"weir/limiter"
)

// leased is a limit of n in a window that hardly ever ends while a test runs.
func leased(n, lease uint64) limiter.Limit {
	l := perYear(n)
	l.Lease = lease
	return l
}

// at is an instant at which both clocks show the same.
func at(d time.Duration) instant { return instant{d, d} }

// grow has a table take a lease as by demand: of a counter of which so much remains.
func grow(t *testing.T, table *leaseTable, h *limiter.Hit, k keyHash, remaining uint64, now instant) errand {
	t.Helper()
	for range 10 {
		if _, take := table.decided(h, &limiter.Decision{Allowed: true, Remaining: remaining}, k, now, time.Now()); take.hits > 0 {
			return take
		}
	}
	t.Fatal("ten exact decisions in no time began no take")
	return errand{}
}

// inLease returns a table with a lease of eight hits, which ends after a second.
func inLease(t *testing.T, h *limiter.Hit, k keyHash) *leaseTable {
	t.Helper()
	table := newLeaseTable()
	take := grow(t, table, h, k, 1000, at(0))
	if take.hits != 8 {
		t.Fatalf("the first take is of %d", take.hits)
	}
	reset := time.Second + h.Limit.Numbers().Unit
	table.taken(take, granted{decision: limiter.Decision{Allowed: true, Remaining: 992, ResetAfter: reset}, receipt: 7}, at(0))
	return table
}

func spends(table *leaseTable, h *limiter.Hit, k keyHash, now instant) bool {
	_, from, _ := table.spend(h, k, now, false)
	return from.lease != nil
}

// The wall clock may be set back while a lease is held, and a machine may sleep, when
// its monotonic clock stands still. By neither is a lease spent after its window.
func TestALeaseEndsWithItsWindowWhateverTheClocksDo(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1000, 100), 1), hashKey(limiter.Key("k"))
	for _, c := range []struct {
		remark string
		now    instant
		spent  bool
	}{
		{"at once", at(0), true},
		{"just before its end", at(time.Second - 1), true},
		{"at its end", at(time.Second), false},
		{"at its end, the wall clock having been set back an hour", instant{time.Second, time.Second - time.Hour}, false},
		{"before its end, the wall clock having been set back an hour", instant{time.Second - 1, -time.Hour}, true},
		{"after it, the machine having slept", instant{time.Millisecond, time.Second}, false},
	} {
		if spent := spends(inLease(t, &h, k), &h, k, c.now); spent != c.spent {
			t.Errorf("%s: spent %v", c.remark, spent)
		}
	}
}

func TestALeaseGrowsWithUseAndShrinksWithout(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1_000_000, 100), 1), hashKey(limiter.Key("k"))
	table := newLeaseTable()
	now := time.Duration(0)
	for range 50 { // once in more than a second: a cold key
		if _, take := table.decided(&h, &limiter.Decision{Allowed: true, Remaining: 1_000_000}, k, at(now), time.Now()); take.hits > 0 {
			t.Fatalf("at %v a cold key takes %d", now, take.hits)
		}
		now += leaseIdle + time.Millisecond
	}
	year := limiter.Decision{Allowed: true, Remaining: 1_000_000, ResetAfter: limiter.MaxWindow}
	take := grow(t, table, &h, k, 1_000_000, at(now))
	sizes := []uint64{take.hits}
	table.taken(take, granted{decision: year, asked: at(now)}, at(now))
	for hits := 0; hits < 1000; hits++ {
		_, from, ask := table.spend(&h, k, at(now), false)
		if from.lease == nil {
			t.Fatal("a lease that is refilled at once does not cover a hit")
		}
		if held := from.lease.left + from.lease.asked; held > 100 {
			t.Fatalf("%d hits in hand or asked for of a lease of 100", held)
		}
		if ask > 0 {
			sizes = append(sizes, from.lease.size)
			table.taken(errand{counter: k, lease: from.lease, limit: h.Limit, hits: ask}, granted{decision: year, asked: at(now)}, at(now))
		}
	}
	if last := sizes[len(sizes)-1]; sizes[0] != 8 || last != 100 || len(sizes) > 20 {
		t.Errorf("sizes of a lease in use: %v", sizes)
	}
	l := table.shard(k).leases[k]
	left := l.left
	if back := table.sweep(at(now+leaseSpan/2), false); len(back) > 0 {
		t.Errorf("after half a second %d hits are given back", back[0].hits)
	}
	now += leaseSpan/2 + leaseIdle
	back := table.sweep(at(now), false)
	if len(back) != 1 || back[0].hits != left || !back[0].back {
		t.Errorf("of %d idle hits there are given back %+v", left, back)
	}
	if n := len(table.shard(k).leases); n != 0 {
		t.Errorf("%d idle counters are remembered", n)
	}
}

// A hot key that has cooled keeps no more than it needs.
func TestALeaseOfMoreThanIsNeededIsGivenBackInPart(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1_000_000, 1000), 1), hashKey(limiter.Key("k"))
	table := inLease(t, &h, k)
	l := table.shard(k).leases[k]
	l.left, l.full, l.size, l.end = 1000, 1000, 1000, at(time.Hour)
	for range 10 {
		spends(table, &h, k, at(time.Second/2))
	}
	back := table.sweep(at(leaseSpan), false)
	if len(back) != 1 || back[0].hits != 990-20 || l.left != 20 || l.size != 40 {
		t.Errorf("of 990 hits, 10 being needed in a second: back %+v, left %d, size %d", back, l.left, l.size)
	}
}

// What the last of a limit is worth is for all instances to have, hit by hit.
func TestTheEndOfALimitIsNotLeased(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1000, 100), 1), hashKey(limiter.Key("k"))
	for _, c := range []struct{ remaining, take uint64 }{{1000, 8}, {64, 8}, {63, 7}, {16, 2}, {15, 0}, {0, 0}} {
		table := newLeaseTable()
		var took uint64
		for range 4 {
			_, take := table.decided(&h, &limiter.Decision{Allowed: true, Remaining: c.remaining}, k, at(0), time.Now())
			took += take.hits
		}
		if took != c.take {
			t.Errorf("of %d that are left, %d are taken, want %d", c.remaining, took, c.take)
		}
	}
}

// Hits that are lent to requests which are not decided count as held.
func TestALeaseIsNeverMoreThanTheRuleSays(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1_000_000, 8), 1), hashKey(limiter.Key("k"))
	table := inLease(t, &h, k)
	var loans []loan
	for range 8 {
		_, from, ask := table.spend(&h, k, at(0), true)
		if ask > 0 {
			t.Fatalf("%d hits are asked for while %d of 8 are in hand or lent", ask, 8)
		}
		loans = append(loans, from)
	}
	for i, from := range loans {
		table.settle(from, k, 1, i%2 == 0)
	}
	if l := table.shard(k).leases[k]; l.left != 4 || l.lent != 0 {
		t.Errorf("of 8 that were lent, half were put back: left %d, lent %d", l.left, l.lent)
	}
}

// What is put back after the window, or after the limit has changed, is not to be
// spent again.
func TestHitsOfAnotherWindowAreNotPutBack(t *testing.T) {
	t.Parallel()
	h, k := hit("k", leased(1000, 100), 1), hashKey(limiter.Key("k"))
	table := inLease(t, &h, k)
	_, from, _ := table.spend(&h, k, at(0), true)
	take := grow(t, table, &h, k, 1000, at(time.Second))
	table.taken(take, granted{decision: limiter.Decision{Allowed: true, Remaining: 900, ResetAfter: time.Minute}, receipt: 8, asked: at(time.Second)}, at(time.Second))
	table.settle(from, k, 1, false)
	if l := table.shard(k).leases[k]; l.left != take.hits || l.lent != 0 {
		t.Errorf("left %d of the second window's %d, lent %d", l.left, take.hits, l.lent)
	}
	counts, _ := table.totals()
	if counts.Lost != 8 {
		t.Errorf("%d hits are told to be lost, of 8 that the first window's end found unused", counts.Lost)
	}
}

func TestTheTableOfLeasesIsBounded(t *testing.T) {
	t.Parallel()
	table := newLeaseTable()
	h := hit("", leased(1000, 100), 1)
	hot := hashKey(limiter.Key("hot"))
	table.taken(grow(t, table, &h, hot, 1000, at(0)), granted{decision: limiter.Decision{Allowed: true, ResetAfter: time.Hour}}, at(0))
	const most = leaseShards * maxLeases
	for i := range 10 * most {
		table.decided(&h, &limiter.Decision{Allowed: true, Remaining: 1000}, hashKey(fmt.Append(nil, i)), at(0), time.Now())
	}
	held := 0
	for i := range table.shards {
		held += len(table.shards[i].leases)
	}
	if held > most || held < most/2 {
		t.Errorf("%d counters are remembered, and %d may be", held, most)
	}
	if !spends(table, &h, hot, at(0)) {
		t.Error("hits in hand were evicted")
	}
	table.sweep(at(time.Minute), false)
	table.sweep(at(2*time.Minute), false) // the first saw that the hot one was in use
	for i := range table.shards {
		if n := len(table.shards[i].leases); n > 0 {
			t.Fatalf("after a minute %d counters of a shard are remembered", n)
		}
	}
}

// A take's answer may be heard after one that Redis gave later.
func TestATakeDoesNotMakeMoreOfWhatWasUsedMeanwhile(t *testing.T) {
	t.Parallel()
	table := newLeaseTable()
	h := hit("", leased(1000, 8), 1)
	k := hashKey(limiter.Key("k"))
	take := grow(t, table, &h, k, 990, at(0))
	asked := time.Now()
	table.decided(&h, &limiter.Decision{Allowed: true, Remaining: 979}, k, at(0), asked) // of 990, the take had its hits, and three others theirs
	table.taken(take, granted{decision: limiter.Decision{Allowed: true, Remaining: 982, ResetAfter: time.Hour}, asked: at(0)}, at(0))
	if d, _, _ := table.spend(&h, k, at(0), false); d.Remaining > 979+take.hits-1 {
		t.Errorf("%d remain, want %d at most", d.Remaining, 979+take.hits-1)
	}
}
