package redis

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// A refusal that the deny cache remembers, and what the instance counts by itself
// while Redis is away, are reset with the counter.
func TestAResetIsSeenAtOnceWhereItIsMade(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	denied := 0
	s := open(t, redis.Addr, Options{DenyCache: time.Minute, Events: Events{DenyCached: func() { denied++ }, Failed: ignored}}, nil)
	h := hit("k", perYear(1), 1)
	counters := []limiter.Counter{{Key: h.Key}}
	reset := func(want int) {
		t.Helper()
		if held, err := s.Reset(t.Context(), counters); err != nil || held != want {
			t.Errorf("Reset: %d, %v; want %d", held, err, want)
		}
	}
	decide(t, s, h)
	for range 3 {
		if decide(t, s, h)[0].Allowed {
			t.Fatal("a limit of 1 let two pass")
		}
	}
	if denied == 0 {
		t.Fatal("the deny cache remembers nothing")
	}
	reset(1)
	if d := decide(t, s, h)[0]; !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
	reset(1)
	reset(0)
	decide(t, s, h)
	reset(1)
	redis.Stop(t)
	await(t, "Redis is away", func() bool {
		_, err := s.Reset(t.Context(), counters)
		return errors.Is(err, limiter.ErrUnavailable)
	})
	if d := decide(t, s, h)[0]; !d.Allowed {
		t.Errorf("the standby was not reset: %+v", d)
	}
}

// An operator who resets a queueing rule's counter drops its bucket, and not those
// who wait.
func TestAResetKeepsTheQueue(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, redis.Addr, Options{KeyPrefix: "q:"}, nil)
	h := limiter.Hit{Key: limiter.Key("k"), Limit: limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.LeakyBucket, Queue: 5}, Cost: 1, Overflow: limiter.Key("q")}
	decide(t, s, h)
	redis.MustDo(t, "XADD", QueueName("q:", h.Overflow), "*", "a", "b")
	if held, err := s.Reset(t.Context(), []limiter.Counter{{Key: h.Key, Overflow: h.Overflow}, {Key: h.Key}}); err != nil || held != 1 {
		t.Errorf("Reset: %d, %v", held, err)
	}
	if n := redis.MustDo(t, "XLEN", QueueName("q:", h.Overflow)); n != "1" {
		t.Errorf("%s wait, of 1", n)
	}
	if d := decide(t, s, h)[0]; !d.Queued {
		t.Errorf("behind one who waits: %+v", d)
	}
}

func TestGenerationsAreSharedAndOutliveWhatTheyHide(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	a, b := open(t, redis.Addr, Options{KeyPrefix: "g:"}, nil), open(t, redis.Addr, Options{KeyPrefix: "g:"}, nil)
	read := func(s *Store, known uint64) *Generations {
		t.Helper()
		g, err := s.Generations(t.Context(), known)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if g := read(a, 0); g != nil {
		t.Errorf("before any: %+v", g)
	}
	next := func(names ...string) *Generations {
		t.Helper()
		if err := a.NextGeneration(t.Context(), names...); err != nil {
			t.Fatal(err)
		}
		return read(a, 0)
	}
	first, second := next("x"), next("x", "y")
	if len(first.Of) != 1 || len(second.Of) != 2 || second.Version == first.Version || second.Of["x"] == first.Of["x"] || second.Of["y"] == 0 {
		t.Errorf("after a reset %+v, after another %+v", first, second)
	}
	if g := read(b, 0); g == nil || g.Version != second.Version || !maps.Equal(g.Of, second.Of) {
		t.Errorf("another instance sees %+v, want %+v", g, second)
	}
	if again := read(b, second.Version); again != nil {
		t.Errorf("nothing new: %+v", again)
	}
	if ttl := redis.MustDo(t, "PTTL", "g:resets"); len(ttl) < len(fmt.Sprint((2 * limiter.MaxWindow).Milliseconds())) {
		t.Errorf("they live %s ms", ttl)
	}
	redis.MustDo(t, "FLUSHALL") // and with them all counters
	if g := read(b, second.Version); g == nil || g.Version != 0 || len(g.Of) > 0 {
		t.Errorf("after all is gone: %+v", g)
	}
	// As many resets as before the loss, which an instance may have missed.
	if g := next("y"); g.Version == first.Version || g.Of["y"] == first.Of["x"] {
		t.Errorf("after all was lost the numbers are those of before: %+v, and %+v", first, g)
	}
	redis.MustDo(t, "HSET", "g:resets", "version", "3", "x", "many")
	if _, err := b.Generations(t.Context(), 0); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("a field that is no number: %v", err)
	}
	redis.Stop(t)
	if _, err := b.Generations(t.Context(), 0); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("Redis is away: %v", err)
	}
}

// Redis may take longer for it than requests wait, which is no reason to say that it
// was not done.
func TestAnOperatorWaitsLongerThanRequestsDo(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, redis.Addr, Options{KeyPrefix: "w:", Timeout: 5 * time.Millisecond}, nil)
	for what, do := range map[string]func() error{
		"NextGeneration": func() error { return s.NextGeneration(t.Context(), "x") },
		"Generations":    func() error { _, err := s.Generations(t.Context(), 0); return err },
		"Reset": func() error {
			_, err := s.Reset(t.Context(), []limiter.Counter{{Key: limiter.Key("k")}})
			return err
		},
	} {
		redis.MustDo(t, "CLIENT", "PAUSE", "200", "ALL")
		if err := do(); err != nil {
			t.Errorf("%s, with Redis late by 200 ms: %v", what, err)
		}
	}
}

// What docs/redis.md says that an operator's methods need is enough, and without it
// requests are decided all the same.
func TestOperatorsCommandsAreThoseOfTheDocs(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	const decisions = "+evalsha +eval +script|load +info +ping +hello +select +get +psetex +incrby +del +pttl +time +exists +lindex +lrange +llen +lpos +lpush +lrem +lset +ltrim +rpop +rpush +pexpire"
	const operators = "+unlink +hget +hgetall +hincrby +expire"
	user := func(name, commands string) *Store {
		redis.MustDo(t, append([]string{"ACL", "SETUSER", name, "on", ">secret", "~acl:*"}, strings.Fields(commands)...)...)
		return openURL(t, Options{URL: "redis://" + name + ":secret@" + redis.Addr, KeyPrefix: "acl:"})
	}
	h := hit("k", perYear(5), 1)
	all := user("all", decisions+" "+operators)
	decide(t, all, h)
	if held, err := all.Reset(t.Context(), []limiter.Counter{{Key: h.Key}}); err != nil || held != 1 {
		t.Errorf("Reset: %d, %v", held, err)
	}
	if err := all.NextGeneration(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if g, err := all.Generations(t.Context(), 0); err != nil || g.Version == 0 {
		t.Errorf("Generations: %+v, %v", g, err)
	}
	if _, err := all.Peek(t.Context(), []limiter.Hit{h}); err != nil {
		t.Error(err)
	}
	few := user("few", decisions)
	decide(t, few, h)
	if _, err := few.Peek(t.Context(), []limiter.Hit{h}); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"Reset":          func() error { _, err := few.Reset(t.Context(), []limiter.Counter{{Key: h.Key}}); return err }(),
		"NextGeneration": few.NextGeneration(t.Context(), "x"),
		"Generations":    func() error { _, err := few.Generations(t.Context(), 0); return err }(),
	} {
		if !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("%s without its commands: %v", what, err)
		}
	}
	if !few.Healthy() {
		t.Error("what an operator may not do opens the breaker")
	}
}
