package redis

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/testenv"
	"weir/limiter"
)

// foreign are commands that put something under a key that no script wrote.
var foreign = []struct{ name, command string }{
	{"text", "SET K hello"},
	{"empty text", "SET K |"},
	{"a number too large", "SET K 99999999999999999999"},
	{"a negative number", "SET K -5"},
	{"a fraction", "SET K 1.5"},
	{"not a number", "SET K nan"},
	{"a list of one", "RPUSH K a"},
	{"a list of texts", "RPUSH K a b c"},
	{"a list without a cost", "RPUSH K 5 3"},
	{"a list with a cost that is no number", "RPUSH K 5 1 x"},
	{"a hash", "HSET K a b"},
	{"a set", "SADD K a"},
	{"a sorted set", "ZADD K 1 a"},
	{"a stream", "XADD K * a b"},
}

// words are the command's, on that key.
func words(command, key string) (words []string) {
	for _, w := range strings.Fields(command) {
		words = append(words, strings.NewReplacer("K", key, "|", "").Replace(w))
	}
	return words
}

func TestForeignContentUnderAKeyHeals(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	for _, several := range []bool{false, true} {
		for _, l := range perAlgorithm(3, limiter.MaxWindow) {
			name := l.Algorithm.String()
			if several {
				name += " beside another hit"
			}
			t.Run(name, func(t *testing.T) {
				var healed atomic.Int64
				s := open(t, r.Addr, Options{Events: Events{Healed: func(n int64) { healed.Add(n) }}}, nil)
				for _, f := range foreign {
					healed.Store(0)
					key := s.naming.Counter(limiter.Key(f.name), nil)
					r.MustDo(t, words(f.command, key)...)
					h := hit(f.name, l, 1)
					hits := []limiter.Hit{h}
					if several {
						hits = append(hits, hit("other"+f.name, l, 1))
					}
					d := decide(t, s, hits...)
					if !d[0].Allowed || d[0].Remaining != 2 {
						t.Errorf("%s: %+v", f.name, d[0])
					}
					if n := healed.Load(); n != 1 {
						t.Errorf("%s: %d keys were told to have healed", f.name, n)
					}
					if ttl := r.MustDo(t, "PTTL", key); strings.HasPrefix(ttl, "-") {
						t.Errorf("%s: its time to live is %s", f.name, ttl)
					}
					healed.Store(0)
					if d := decide(t, s, hits...); d[0].Remaining != 1 || healed.Load() != 0 {
						t.Errorf("%s: the next hit: %+v, healed %d", f.name, d[0], healed.Load())
					}
					r.MustDo(t, "DEL", key)
				}
			})
		}
	}
}

// Foreign content that a look or a refund meets is no fault.
func TestForeignContentIsNotUse(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	for _, l := range perAlgorithm(3, limiter.MaxWindow) {
		for i, h := range []limiter.Hit{hit("k", l, 0), refund(hit("k", l, 1)), hit("k", l, 4)} {
			r.MustDo(t, "SET", s.naming.Counter(limiter.Key("k"), nil), "hello")
			if d := decide(t, s, h); d[0].Remaining != 3 || d[0].Allowed != (i < 2) {
				t.Errorf("%v, hit %d: %+v", l.Algorithm, i, d[0])
			}
		}
	}
}

func TestAKeyWithoutATimeToLiveHeals(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var healed atomic.Int64
	s := open(t, r.Addr, Options{Events: Events{Healed: func(n int64) { healed.Add(n) }}}, nil)
	for _, l := range perAlgorithm(2, limiter.MaxWindow) {
		for _, several := range []bool{false, true} {
			name := fmt.Sprintf("%v %t", l.Algorithm, several)
			hits := []limiter.Hit{hit(name, l, 1)}
			if several {
				hits = append(hits, hit("other "+name, l, 1))
			}
			key := s.naming.Counter(hits[0].Key, nil)
			decide(t, s, hits...)
			r.MustDo(t, "PERSIST", key)
			decide(t, s, hits...)
			// A fixed window is only added to: it keeps the time to live that it has.
			if ttl := r.MustDo(t, "PTTL", key); ttl == "-1" && l.Algorithm != limiter.FixedWindow {
				t.Errorf("%s: the next write gives it no time to live", name)
			}
			r.MustDo(t, "PERSIST", key)
			healed.Store(0)
			if d := decide(t, s, hits...); d[0].Allowed {
				t.Errorf("%s: the third of two: %+v", name, d[0])
			}
			if ttl := r.MustDo(t, "PTTL", key); ttl == "-1" {
				t.Errorf("%s: a refusal gives it no time to live: it would refuse for ever", name)
			}
			if n := healed.Load(); n != 1 {
				t.Errorf("%s: %d keys were told to have healed", name, n)
			}
		}
	}
}

// A script that fails on one key says nothing of Redis, which decides the others.
func TestAScriptThatFailsOnAKeyOpensNoBreaker(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	r.MustDo(t, "SET", "K", "text")
	c := goredis.NewClient(&goredis.Options{Addr: r.Addr})
	defer c.Close()
	err := c.Eval(t.Context(), "return redis.call('INCRBY', KEYS[1], 1)", []string{"K"}).Err()
	if !isERR(err) {
		t.Fatalf("%v, want an ERR of a script", err)
	}
	for range 100 {
		s.blame(err)
	}
	if !s.Healthy() {
		t.Errorf("the breaker is open after %v", err)
	}
}
