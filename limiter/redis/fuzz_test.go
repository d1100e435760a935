package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/limiter/limitertest"
)

// prefixed is a store whose keys are those of one run, so that each run has new
// counters in one Redis.
type prefixed struct {
	limiter.Store
	run string
}

func (p prefixed) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	own := make([]limiter.Hit, len(hits))
	for i, h := range hits {
		h.Key = limiter.Key(p.run + string(h.Key))
		if h.Overflow != nil {
			h.Overflow = limiter.Key(p.run + string(h.Overflow))
		}
		own[i] = h
	}
	return p.Store.Decide(ctx, own)
}

// FuzzLuaAgreesWithThePureFunctions plays random traces through a real Redis: all
// algorithms, single hits and several, each charging mode, and plain commands to the
// end of a limit.
func FuzzLuaAgreesWithThePureFunctions(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, uint8(1<<(seed%5)), seed%4 == 0, seed%2 == 0)
	}
	f.Add(uint64(99), uint8(31), false, true)
	redis := testenv.StartRedis(f, testenv.RedisOptions{})
	var now atomic.Pointer[func() time.Time]
	stores := map[string]*Store{}
	for _, each := range []bool{false, true} {
		for _, plain := range []bool{false, true} {
			s := open(f, redis.Addr, Options{Options: limiter.Options{ChargeEach: each}}, func() time.Time {
				if clock := now.Load(); clock != nil {
					return (*clock)()
				}
				return time.Now()
			})
			if plain {
				s.spare = 0
			}
			stores[fmt.Sprint(each, plain)] = s
		}
	}
	runs := 0
	f.Fuzz(func(t *testing.T, seed uint64, which uint8, each, plain bool) {
		var algorithms []limiter.Algorithm
		for a := range limiter.Algorithm(5) {
			if which&(1<<a) != 0 {
				algorithms = append(algorithms, a)
			}
		}
		if runs++; runs%200 == 0 {
			redis.MustDo(t, "FLUSHALL")
		}
		s, run := stores[fmt.Sprint(each, plain)], fmt.Sprintf("run %d ", runs)
		limitertest.Replay(t, limitertest.ReplayOptions{
			Steps: 60, Seed: seed, Algorithms: algorithms, ChargeEach: each,
			Forget: func(t *testing.T, key limiter.Key) { // a key lives a minute of Redis's time, which may be days of the trace's
				redis.MustDo(t, "DEL", s.naming.Counter(limiter.Key(run+string(key)), nil))
			},
			New: func(_ *testing.T, _ limiter.Options, clock func() time.Time) limiter.Store {
				now.Store(&clock)
				return prefixed{s, run}
			},
		})
	})
}

// FuzzURLs holds that a URL is taken or refused, and that neither its errors nor the
// form in which it is shown have its password.
func FuzzURLs(f *testing.F) {
	const secret = "sesame"
	for _, url := range [][3]string{
		{"redis", "", "h:1/2"}, {"rediss", "u", "[::1]"}, {"unix", "u", "/run/redis.sock?db=1"}, {"redis+sentinel", "", "a:1,b/m/3?sentinel_password=x"},
		{"redis+cluster", "u", "a,b:7?tls=true"}, {"redis", "u", "h/x?read_timeout=1s"}, {"redis", "u:a/", "h"}, {"http", "u", "h"},
		{"redis", "u", "h:99999"}, {"redis", "u", "h#x"}, {"redis", "u%", "@h?a=%"}, {"redis", "u/", "/@"}, {"redis", "", "h\n/ "}, {"redis", "?", ""}, {"redis", "#", "h"},
	} {
		f.Add(url[0], url[1], url[2])
	}
	f.Fuzz(func(t *testing.T, scheme, user, rest string) {
		url := scheme + "://" + user + ":" + secret + "@" + rest
		client, err := Dial(url, DialOptions{Timeout: time.Second})
		switch {
		case err == nil:
			_ = client.Close()
		case !errors.Is(err, ErrURL):
			t.Fatalf("%q: %v", url, err)
		}
		if strings.Contains(scheme+user+rest, secret) {
			return
		}
		if text := Redact(url); strings.Contains(text, secret) {
			t.Fatalf("%q is shown as %q", url, text)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Fatalf("%q: the error shows the password: %v", url, err)
		}
	})
}

// FuzzReplies holds that no answer of Redis ends the process: it is read as a
// decision of each hit, or refused.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6}, uint8(1), false)
	f.Add([]byte{0, 0, 3, 4, 5, 6, 1, 7, 8}, uint8(2), true)
	f.Add([]byte{255}, uint8(1), false)
	f.Fuzz(func(t *testing.T, script []byte, n uint8, receipts bool) {
		hits := make([]limiter.Hit, n%5)
		for i := range hits {
			hits[i] = hit("k", perAlgorithm(3, time.Minute)[i], 1)
		}
		reply := make([]int64, len(script))
		for i, b := range script {
			if reply[i] = int64(b); b > 127 {
				reply[i] = -(1 << (b % 64)) // -1 among them
			}
		}
		a, err := decode(reply, hits, receipts, window{tag: 1, left: 5})
		switch {
		case err != nil && !errors.Is(err, errReply):
			t.Fatal(err)
		case err == nil && !a.outside && len(a.decisions) != len(hits):
			t.Fatalf("%d decisions on %d hits", len(a.decisions), len(hits))
		}
	})
}
