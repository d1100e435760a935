package limitertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/limiter"
)

// algorithms are the five, each with a capacity of 4 an hour.
func algorithms() []limiter.Limit {
	hour := limiter.Window{Length: time.Hour}
	return []limiter.Limit{
		{Requests: 4, Window: hour},
		{Requests: 4, Window: hour, Algorithm: limiter.TokenBucket, Burst: 4},
		{Requests: 4, Window: hour, Algorithm: limiter.LeakyBucket, Queue: 3},
		{Requests: 4, Window: hour, Algorithm: limiter.SlidingWindowLog},
		{Requests: 4, Window: hour, Algorithm: limiter.SlidingWindowCounter},
	}
}

func perHour(n uint64) limiter.Limit {
	return limiter.Limit{Requests: n, Window: limiter.Window{Length: time.Hour}}
}

func hit(key string, l limiter.Limit, cost uint64) limiter.Hit {
	return limiter.Hit{Key: limiter.Key(key), Limit: l, Cost: cost, MaxDelay: limiter.NoDeadline}
}

func shadow(h limiter.Hit) limiter.Hit { h.Shadow = true; return h }
func quota(h limiter.Hit) limiter.Hit  { h.Quota = true; return h }
func refund(h limiter.Hit) limiter.Hit { h.Refund = true; return h }

func (s *suite) eachAlgorithm(test func(s *suite, l limiter.Limit)) {
	for _, l := range algorithms() {
		s.sub(l.Algorithm.String(), limiter.Options{}, func(s *suite) { test(s, l) })
	}
}

func testAlgorithms(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		delay := "0"
		if l.Algorithm == limiter.LeakyBucket {
			delay = "15m"
		}
		s.want("the first", "pass left=3", hit("k", l, 1))
		s.want("a cost above one", "pass left=0 delay="+delay, hit("k", l, 3))
		s.want("over the limit", "refuse left=0", hit("k", l, 1))
		s.want("another key", "pass left=3", hit("j", l, 1))
		s.want("over what can ever pass", "refuse left=3 retry=0", hit("j", l, 5))
		wait := s.decide(hit("k", l, 1))[0].RetryAfter
		s.at(wait - time.Microsecond)
		s.want("a moment too early", "refuse left=0 retry=1us", hit("k", l, 1))
		s.at(wait)
		d := s.decide(hit("k", l, 1))[0]
		if !d.Allowed {
			s.Errorf("after its retry-after of %v a hit is refused: %s", wait, Words(d))
		}
		s.at(3 * time.Hour)
		s.want("a long time after", "pass left=4 reset=0", hit("k", l, 0))
	})
}

func testDecisionsInOrder(s *suite) {
	var hits []limiter.Hit
	for i := range 5 {
		hits = append(hits, hit(strconv.Itoa(i), perHour(uint64(10+i)), uint64(i)))
	}
	s.want("hit i has limit 10 + i and cost i", "pass left=10|pass left=10|pass left=10|pass left=10|pass left=10", hits...)
	s.want("the other way round", "pass left=6|pass left=7", hits[4], hits[3])
}

func testNoHits(s *suite) { s.decide() }

func testAllOrNothing(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		a, b := hit("a", perHour(10), 1), hit("b", l, 3)
		s.want("both pass", "pass left=9|pass left=1", a, b)
		s.want("b refuses", "pass left=9|refuse left=1", a, b)
		s.want("the other way round", "refuse left=1|pass left=9", b, a)
		s.want("nothing was charged", "pass left=9|pass left=1", hit("a", a.Limit, 0), hit("b", l, 0))
	})
}

func testShadow(s *suite) {
	a, b := shadow(hit("a", perHour(1), 1)), hit("b", perHour(2), 1)
	s.want("both have room", "pass left=0|pass left=1", a, b)
	s.want("the shadow would refuse", "refuse left=0|pass left=0", a, b)
	s.want("the other refuses", "pass left=1|refuse left=0", shadow(hit("c", perHour(1), 1)), b)
	s.want("then the shadow is not charged", "pass left=1", hit("c", perHour(1), 0))
}

func testQuota(s *suite) {
	a, b := quota(hit("a", perHour(1), 1)), quota(hit("b", perHour(2), 1))
	s.want("both have room", "pass left=0|pass left=1", a, b)
	s.want("one refuses: the request passes and the other is charged", "refuse left=0|pass left=0", a, b)
	s.want("both refuse", "refuse|refuse|pass left=9", a, b, hit("c", perHour(9), 1))
	s.want("a plain limit refuses", "pass left=5|refuse", quota(hit("d", perHour(5), 1)), hit("b", perHour(2), 1))
}

func testCountDenied(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		l.CountDenied = true
		s.want("refused and counted", "refuse left=0|pass left=10", hit("k", l, 9), hit("other", perHour(10), 1))
		s.want("used is past the limit: a look is refused", "refuse left=0", hit("k", l, 0))
		s.want("the other limit was not charged", "pass left=10", hit("other", perHour(10), 0))
		s.want("refused by another", "pass left=4|refuse", hit("j", l, 1), hit("none", perHour(0), 1))
	})
}

func testSameKey(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		h := hit("k", l, 1)
		s.want("two together", "pass left=2|pass left=2"+ifLeaky(l, " delay=15m"), h, h)
		s.want("three have no room", "pass left=2"+ifLeaky(l, "")+"|pass left=2|refuse left=2", h, h, h)
		s.want("nothing was charged", "pass left=2", hit("k", l, 0))
		s.want("together they can never pass", "pass|refuse retry=0", hit("k", l, 2), hit("k", l, 3))
		s.want("two fill it", "pass left=0"+ifLeaky(l, " delay=30m")+"|pass left=0"+ifLeaky(l, " delay=45m"), h, h)
	})
}

func ifLeaky(l limiter.Limit, words string) string {
	if l.Algorithm == limiter.LeakyBucket {
		return words
	}
	return ""
}

func testChargeEach(s *suite) {
	s.sub("each", limiter.Options{ChargeEach: true}, func(s *suite) {
		a, b := hit("a", perHour(5), 1), hit("b", perHour(2), 1)
		s.want("both pass", "pass left=4|pass left=1", a, b)
		s.want("the last of b", "pass left=3|pass left=0", a, b)
		s.want("b refuses, a is charged", "pass left=2|refuse left=0", a, b)
		s.want("one key: what passes is charged", "pass left=0|pass left=0|refuse left=0", a, a, a)
	})
}

func testRefunds(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		back := func(n uint64) limiter.Hit { return refund(hit("k", l, n)) }
		s.want("nothing used", "pass left=4 reset=0", back(2))
		s.decide(hit("k", l, 3))
		if l.Algorithm == limiter.LeakyBucket {
			s.want("places are promised", "pass left=1", back(2))
			return
		}
		s.want("two of three", "pass left=3", back(2))
		s.want("never below nothing used", "pass left=4", back(100))
		s.decide(hit("k", l, 4))
		s.want("refunds first, wherever they stand", "pass left=0|pass left=0", hit("k", l, 1), back(1))
		s.want("made though the request is refused", "refuse|pass left=1", hit("none", perHour(0), 1), back(1))
	})
}

func testLooks(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		look := hit("k", l, 0)
		s.want("a fresh counter", "pass left=4 reset=0", look)
		s.want("to the limit", "pass left=0", hit("k", l, 4))
		s.want("a look passes at the limit, and is not held", "pass left=0", look)
		s.want("beside a hit it sees what the hit left", "pass left=3|pass left=3", hit("j", l, 0), hit("j", l, 1))
		zero := perHour(0)
		zero.Algorithm = l.Algorithm
		s.want("limit 0 refuses looks too", "refuse left=0 retry=0 reset=0", hit("z", zero, 0))
	})
}

func testLiveChange(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		if l.Algorithm == limiter.LeakyBucket || l.Algorithm == limiter.TokenBucket {
			return // their capacity is not the limit
		}
		s.decide(hit("k", l, 4))
		l.Requests = 6
		s.want("raised: what was used stays", "pass left=2", hit("k", l, 0))
		l.Requests = 3
		s.want("lowered: no underflow, and a look is refused", "refuse left=0", hit("k", l, 0))
		l.Requests = 0
		s.want("0", "refuse left=0 retry=0", hit("k", l, 1))
	})
}

func testDeadline(s *suite) {
	l := limiter.Limit{Requests: 2, Window: limiter.Window{Length: time.Second}, Algorithm: limiter.LeakyBucket, Queue: 3}
	hurry := hit("k", l, 1)
	hurry.MaxDelay = 200 * time.Millisecond
	s.want("no delay", "pass left=3", hurry)
	s.want("a delay of 500ms does not fit", "refuse left=3 retry=300ms", hurry)
	s.want("and was not charged", "pass left=2 delay=500ms", hit("k", l, 1))
	s.at(800 * time.Millisecond)
	s.want("it fits by then", "pass delay=200ms", hurry)
}

func testLargeNumbers(s *suite) {
	l := perHour(limiter.MaxRequests)
	s.want("a cost of 2^64 - 1 never passes", "refuse left=4294967295 retry=0", hit("k", l, 1<<64-1))
	s.want("the largest that does", "pass left=0", hit("k", l, limiter.MaxRequests))
	s.want("one more", "refuse left=0 retry=1h", hit("k", l, 1))
	ms := limiter.Limit{Requests: limiter.MaxRequests, Window: limiter.Window{Length: time.Second}, Algorithm: limiter.TokenBucket, Burst: limiter.MaxRequests}
	s.want("the largest bucket", "pass left=0 reset=1s", hit("b", ms, limiter.MaxRequests))
}

func testAnyKey(s *suite) {
	long := strings.Repeat("k", 1<<20)
	keys := []string{"", "\x00", "\x00\x00", "a", "a\x00", "\xff\xfe", "{a}", "a b\r\n", "é", long, long + "k"}
	for i, key := range keys {
		for range i + 1 {
			s.decide(hit(key, perHour(100), 1))
		}
	}
	for i, key := range keys {
		if d := s.decide(hit(key, perHour(100), 0))[0]; d.Remaining != uint64(100-i-1) {
			s.Errorf("key %.9q of %d bytes: %d left, want %d", key, len(key), d.Remaining, 100-i-1)
		}
	}
}

func testManyHits(s *suite) {
	var hits []limiter.Hit
	for i := range 100 {
		hits = append(hits, hit(strconv.Itoa(i%50), perHour(3), 1))
	}
	for i, d := range s.decide(hits...) {
		if !d.Allowed || d.Remaining != 1 {
			s.Fatalf("hit %d of 100 on 50 keys: %s, want a pass with 1 left", i, Words(d))
		}
	}
	for i, d := range s.decide(hits...) {
		if d.Allowed != (i < 50) || d.Remaining != 1 {
			s.Fatalf("hit %d of 100 on 50 keys with 1 left each: %s", i, Words(d))
		}
	}
}

func testContextDone(s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.store.Decide(ctx, []limiter.Hit{hit("k", perHour(4), 1)})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("Decide with a cancelled context: %v, want %v", err, context.Canceled)
	}
	s.want("nothing was charged", "pass left=4", hit("k", perHour(4), 0))
}

func testHoldsNothing(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		key := []byte("key-0")
		hits := []limiter.Hit{{Key: key, Limit: l, Cost: 1, MaxDelay: limiter.NoDeadline}}
		first, second := s.decide(hits...), s.decide(hits...)
		copy(key, bytes.Repeat([]byte("x"), len(key)))
		hits[0] = hit("another", perHour(1), 1)
		if first[0].Remaining != 3 || second[0].Remaining != 2 {
			s.Errorf("decisions changed with later ones: %s, then %s", Words(first[0]), Words(second[0]))
		}
		s.want("the counter keeps its key", "pass left=2", hit("key-0", l, 0))
		s.want("the caller's new bytes are another key", "pass left=4", hit("xxxxx", l, 0))
	})
}

func testCalendar(s *suite) {
	kathmandu := time.FixedZone("", 5*3600+45*60)
	s.clock.Set(time.Date(2024, time.February, 29, 23, 0, 0, 0, kathmandu)) // a Thursday
	for _, c := range []struct {
		unit  limiter.Calendar
		reset string
	}{{limiter.Day, "1h"}, {limiter.Week, "73h"}, {limiter.Month, "1h"}, {limiter.Year, "7345h"}} {
		h := hit(c.unit.String(), limiter.Limit{Requests: 2, Window: limiter.CalendarWindow(c.unit, kathmandu)}, 1)
		s.want("the first in its "+c.unit.String(), "pass left=1 reset="+c.reset, h)
	}
	s.clock.Add(time.Hour)
	for unit, want := range map[limiter.Calendar]string{limiter.Day: "left=1 reset=24h", limiter.Week: "left=0 reset=72h", limiter.Month: "left=1 reset=744h", limiter.Year: "left=0 reset=7344h"} {
		h := hit(unit.String(), limiter.Limit{Requests: 2, Window: limiter.CalendarWindow(unit, kathmandu)}, 1)
		s.want(fmt.Sprintf("March begins: %v", unit), "pass "+want, h)
	}
}

func testClockStepsBack(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		s.at(100 * time.Hour)
		s.decide(hit("k", l, 3))
		s.at(99 * time.Hour)
		s.want("one window back: read as of its own time", "pass left=1", hit("k", l, 0))
		s.at(98*time.Hour - time.Millisecond)
		s.want("farther: dropped", "pass left=4", hit("k", l, 0))
	})
}
