package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// Of a limit that has much left a hit takes no script; near its end each does.
func TestHitsOnAFixedWindowSeldomTakeAScript(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	l := perYear(plainSpare + 100)
	for n := range l.Requests {
		h := hit("counter", l, 1)
		h.OnFailure = limiter.FailAllow
		if d := decide(t, s, h)[0]; !d.Allowed || d.Remaining != l.Requests-1-n || d.ResetAfter <= 0 {
			t.Fatalf("hit %d: %+v", n+1, d)
		}
	}
	if d := decide(t, s, hit("counter", l, 1))[0]; d.Allowed || d.RetryAfter <= 0 {
		t.Errorf("a hit over the limit: %+v", d)
	}
	if plain, scripts := calls(t, r, "incrby"), calls(t, r, "evalsha"); scripts < plainSpare || scripts > plainSpare+30 || plain < 70 {
		t.Errorf("%d hits took %d scripts (and %d INCRBY, with those in scripts), want about %d", l.Requests+1, scripts, plain, plainSpare)
	}
}

// Refused hits that plain commands have counted are taken back: what is used is the
// limit, whoever asks and however many at once.
func TestPlainCommandsAdmitExactlyTheLimitAndChargeNothingElse(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var stores []*Store
	for range 3 {
		s := open(t, r.Addr, Options{KeyPrefix: "shared:"}, nil)
		s.spare = 0
		stores = append(stores, s)
	}
	for round := range 20 {
		name := fmt.Sprint("counter ", round)
		l := perYear(50)
		var admitted atomic.Int64
		var calling sync.WaitGroup
		begin := make(chan struct{})
		for i := range 60 {
			s := stores[i%3]
			decide(t, s, hit(name, l, 0)) // so that each knows of the counter
			calling.Go(func() {
				<-begin
				for range 3 {
					d, err := s.Decide(context.Background(), []limiter.Hit{hit(name, l, 1)})
					if err != nil {
						t.Error(err)
					} else if d[0].Allowed {
						admitted.Add(1)
					} else if d[0].RetryAfter <= 0 || d[0].Remaining != 0 {
						t.Errorf("a refusal: %+v", d[0])
					}
				}
			})
		}
		close(begin)
		calling.Wait()
		raised := perYear(60)
		left := decide(t, stores[0], hit(name, raised, 0))[0].Remaining
		if n := admitted.Load(); n != 50 || left != 10 {
			t.Fatalf("%d of 50 were admitted, and of a limit raised by 10 there are %d left", n, left)
		}
	}
}

// A counter that vanishes between two hits begins anew, with a time to live.
func TestACounterThatVanishedBeginsAnew(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	l := perYear(1000)
	key := s.naming.Counter(limiter.Key("counter"), nil)
	for _, vanish := range [][]string{{"DEL", key}, {"FLUSHALL"}, {"PEXPIRE", key, "0"}, {"SET", key, "7"}} {
		for range 5 {
			decide(t, s, hit("counter", l, 1))
		}
		r.MustDo(t, vanish...)
		for i := range uint64(3) {
			if d := decide(t, s, hit("counter", l, 1))[0]; !d.Allowed || d.Remaining != 999-i {
				t.Errorf("%s: hit %d after it: %+v", vanish[0], i+1, d)
			}
			if ttl := pttl(t, r, key); ttl < 1 {
				t.Errorf("%s: after hit %d it has a time to live of %d", vanish[0], i+1, ttl)
			}
		}
		r.MustDo(t, "DEL", key)
	}
}

// While counters vanish under load nothing stays that has no time to live, and what
// is admitted between two of those times is counted.
func TestCountersThatVanishUnderLoadLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	l := perYear(1_000_000)
	done := make(chan struct{})
	var calling sync.WaitGroup
	var admitted atomic.Int64
	for i := range 32 {
		calling.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if decide(t, s, hit(fmt.Sprint("counter ", (i+n)%4), l, 1))[0].Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	for range 50 {
		time.Sleep(5 * time.Millisecond)
		r.MustDo(t, "FLUSHALL")
	}
	close(done)
	calling.Wait()
	if admitted.Load() < 100 {
		t.Errorf("only %d hits were made", admitted.Load())
	}
	for key := range strings.FieldsSeq(r.MustDo(t, "KEYS", "*")) {
		if ttl := pttl(t, r, key); ttl < 1 {
			t.Errorf("%q has a time to live of %d", key, ttl)
		}
	}
}

// A counter that a plain command made anew, whose answer was lost, is deleted later.
func TestALostAnswerLeavesNoCounterForEver(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	p := startProxy(t, r.Addr)
	s := open(t, p.Addr(), Options{Timeout: 200 * time.Millisecond, Events: Events{Failed: func(error) {}}}, nil)
	l := perYear(1000)
	key := s.naming.Counter(limiter.Key("counter"), nil)
	decide(t, s, hit("counter", l, 1))
	r.MustDo(t, "DEL", key)
	p.Lose(1, false)
	if d := decide(t, s, hit("counter", l, 1))[0]; !d.Allowed || p.Lost() == 0 {
		t.Fatalf("%+v, and %d answers were lost", d, p.Lost())
	}
	if ttl := pttl(t, r, key); ttl != -1 {
		t.Fatalf("the counter has a time to live of %d: nothing is to be seen here", ttl)
	}
	await(t, "the counter is deleted", func() bool { return pttl(t, r, key) == -2 })
}

// What is looked at again and has a time to live stays.
func TestOnlyCountersWithoutATimeToLiveAreDeleted(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	l := perYear(1000)
	decide(t, s, hit("counter", l, 1))
	key := s.naming.Counter(limiter.Key("counter"), nil)
	r.MustDo(t, "SET", "bare", "3")
	r.MustDo(t, "SET", "text", "text")
	r.MustDo(t, "RPUSH", "list", "1")
	for _, name := range []string{key, "bare", "text", "list", "nothing"} {
		s.loose.add(name)
	}
	s.deleteLoose(t.Context())
	for name, want := range map[string]string{key: "1", "bare": "0", "text": "1", "list": "1"} {
		if got := r.MustDo(t, "EXISTS", name); got != want {
			t.Errorf("%s: EXISTS says %s, want %s", name, got, want)
		}
	}
	if len(s.loose.take()) > 0 {
		t.Error("they are to be looked at once more")
	}
}

// A plain command adds nothing to such a key, and a script decides instead, at once.
func TestForeignContentUnderAPlainCounterHeals(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{}, nil)
	for _, f := range foreign {
		key := s.naming.Counter(limiter.Key(f.name), nil)
		h := hit(f.name, perYear(1000), 1)
		for range 3 {
			decide(t, s, h)
		}
		r.MustDo(t, "DEL", key)
		r.MustDo(t, words(f.command, key)...)
		if d := decide(t, s, h)[0]; !d.Allowed || d.Origin != limiter.OriginStore || d.Remaining != 999 {
			t.Errorf("%s: %+v, want that the counter begins anew", f.name, d)
		}
		r.MustDo(t, "DEL", key)
	}
}
