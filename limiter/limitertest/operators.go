package limitertest

import (
	"context"
	"errors"
	"time"

	"weir/limiter"
)

// What operators ask of a store, of those that are a limiter.Resetter and a
// limiter.Peeker.

func (s *suite) reset(remark string, held int, keys ...string) {
	s.Helper()
	r, ok := s.store.(limiter.Resetter)
	if !ok {
		s.Fatalf("a %T is no Resetter", s.store)
	}
	var counters []limiter.Counter
	for _, key := range keys {
		counters = append(counters, limiter.Counter{Key: limiter.Key(key)})
	}
	got, err := r.Reset(context.Background(), counters)
	if err != nil {
		s.Fatalf("%s: Reset: %v", remark, err)
	}
	if got != held {
		s.Errorf("%s: %d counters held something, want %d", remark, got, held)
	}
}

func (s *suite) peek(remark, wants string, hits ...limiter.Hit) {
	s.Helper()
	p, ok := s.store.(limiter.Peeker)
	if !ok {
		s.Fatalf("a %T is no Peeker", s.store)
	}
	decisions, err := p.Peek(context.Background(), hits)
	if err != nil {
		s.Fatalf("%s: Peek: %v", remark, err)
	}
	s.match(remark, wants, decisions)
}

func testReset(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		s.reset("nothing was used", 0, "k")
		s.decide(hit("k", l, 4))
		s.decide(hit("j", l, 3))
		s.want("over the limit", "refuse left=0", hit("k", l, 1))
		s.reset("one of two, and one that is not there", 1, "k", "none")
		s.want("it begins anew", "pass left=3", hit("k", l, 1))
		s.want("the other does not", "pass left=1", hit("j", l, 0))
		s.reset("named twice, it is one", 1, "j", "j")
		s.reset("both, of which one is empty", 1, "k", "j")
		s.want("refused again as before", "refuse left=4 retry=0", hit("k", l, 5))
	})
	s.reset("none", 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.store.(limiter.Resetter).Reset(ctx, []limiter.Counter{{Key: limiter.Key("k")}}); !errors.Is(err, context.Canceled) {
		s.Errorf("Reset with a cancelled context: %v", err)
	}
}

func testPeek(s *suite) {
	s.eachAlgorithm(func(s *suite, l limiter.Limit) {
		counted := l
		counted.CountDenied = true
		s.peek("a fresh counter", "pass left=4 reset=0", hit("k", l, 1))
		s.peek("asking charged nothing", "pass left=4 reset=0", hit("k", l, 4))
		s.decide(hit("k", l, 4))
		refused := s.decide(hit("k", l, 1))[0]
		s.peek("over the limit, as if it were asked", "refuse left=0 retry="+refused.RetryAfter.String(), hit("k", l, 1))
		s.peek("what a refusal would count is not counted", "refuse left=0", hit("k", counted, 9))
		s.peek("one refuses, one does not", "refuse left=0|pass left=4", hit("k", l, 1), hit("j", l, 1))
		s.want("all is as it was", "refuse left=0 retry="+refused.RetryAfter.String()+"|pass left=4", hit("k", l, 1), hit("j", l, 1))
		s.at(refused.RetryAfter)
		s.peek("after its wait it would pass", "pass", hit("k", l, 1))
	})
	s.sub("each", limiter.Options{ChargeEach: true}, func(s *suite) {
		s.peek("each on its own", "pass left=4|refuse retry=0", hit("a", perHour(4), 1), hit("b", perHour(4), 5))
		s.want("charged neither", "pass left=4", hit("a", perHour(4), 0))
	})
	s.peek("limit 0", "refuse left=0 retry=0", hit("z", perHour(0), 1))
	s.peek("shadow and quota hits too", "pass left=4|pass left=4", shadow(hit("a", perHour(4), 1)), quota(hit("b", perHour(4), 1)))
	s.at(time.Minute)
	s.want("nothing of them was charged", "pass left=4|pass left=4", hit("a", perHour(4), 0), hit("b", perHour(4), 0))
}
