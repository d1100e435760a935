package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

// commands are those that an ACL user needs on one Redis.
const commands = "-@all +info +ping +hello +select +script|load +evalsha +eval +time +get +incrby +psetex +del +exists +pttl +pexpire " +
	"+llen +lindex +lrange +ltrim +lset +lpush +rpush +rpop +lrem +lpos"

func TestEachWayToReachRedisDecides(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		opts testenv.RedisOptions
		url  func(r *testenv.Redis) string
	}{
		{"password", testenv.RedisOptions{Password: "se/cret"}, func(r *testenv.Redis) string { return "redis://:se%2Fcret@" + r.Addr }},
		{"database", testenv.RedisOptions{}, func(r *testenv.Redis) string { return "redis://" + r.Addr + "/7" }},
		{"ACL user", testenv.RedisOptions{Password: "other", Users: []string{"weir on >secret ~acl:* " + commands}},
			func(r *testenv.Redis) string { return "redis://weir:secret@" + r.Addr }},
		{"ACL user that may not ask for the version", testenv.RedisOptions{Password: "other", Users: []string{"weir on >secret ~acl:* " + commands + " -info"}},
			func(r *testenv.Redis) string { return "redis://weir:secret@" + r.Addr }},
		{"TLS", testenv.RedisOptions{TLS: tlsFiles, Password: "secret"}, func(r *testenv.Redis) string { return "rediss://:secret@" + r.Addr }},
		{"TLS by name", testenv.RedisOptions{TLS: tlsFiles}, func(r *testenv.Redis) string {
			return "rediss://" + strings.Replace(r.Addr, "127.0.0.1", "localhost", 1)
		}},
		{"TLS without verification", testenv.RedisOptions{TLS: tlsFiles}, func(r *testenv.Redis) string { return "rediss://" + r.Addr + "?skip_verify=true" }},
		{"unix socket", testenv.RedisOptions{Socket: true, Password: "secret"}, func(r *testenv.Redis) string { return "unix://:secret@" + r.Socket }},
		{"unix socket, database", testenv.RedisOptions{Socket: true}, func(r *testenv.Redis) string { return "unix://" + r.Socket + "?db=2" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, c.opts)
			s := openURL(t, Options{URL: c.url(r), KeyPrefix: "acl:"})
			for _, l := range perAlgorithm(3, limiter.MaxWindow) {
				key := l.Algorithm.String()
				h := hit(key, l, 1)
				if d := decide(t, s, h); !d[0].Allowed || d[0].Remaining != 2 {
					t.Errorf("%v: %+v", l.Algorithm, d[0])
				}
				if d := decide(t, s, h); !d[0].Allowed || d[0].Remaining != 1 {
					t.Errorf("%v: the second: %+v", l.Algorithm, d[0])
				}
				if d := decide(t, s, h, refund(h), hit(key+"2", l, 4)); d[0].Remaining != 2-leaky(l) {
					t.Errorf("%v: %+v", l.Algorithm, d[0])
				}
			}
			if strings.Contains(s.String(), "secret") {
				t.Errorf("it tells its password: %v", s)
			}
		})
	}
}

// leaky is 1 for a leaky bucket, which gives no place back.
func leaky(l limiter.Limit) uint64 {
	if l.Algorithm == limiter.LeakyBucket {
		return 1
	}
	return 0
}

// A Redis that cannot be used is logged with what to do, and its failure policies
// decide.
func TestARedisThatRefusesIsLoggedWithWhatToDo(t *testing.T) {
	t.Parallel()
	foreign, err := testenv.MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		opts  testenv.RedisOptions
		url   func(r *testenv.Redis) string
		wants []string
	}{
		{"wrong password", testenv.RedisOptions{Password: "right"}, func(r *testenv.Redis) string { return "redis://:secret@" + r.Addr },
			[]string{"WRONGPASS", "correct the user and the password"}},
		{"no password", testenv.RedisOptions{Password: "secret"}, func(r *testenv.Redis) string { return "redis://" + r.Addr },
			[]string{"NOAUTH", "redis://:PASSWORD@host"}},
		{"unknown user", testenv.RedisOptions{}, func(r *testenv.Redis) string { return "redis://weir:secret@" + r.Addr },
			[]string{"WRONGPASS", "correct the user and the password"}},
		{"a user who may not load scripts", testenv.RedisOptions{Users: []string{"weir on >secret ~* +@read"}}, func(r *testenv.Redis) string { return "redis://weir:secret@" + r.Addr },
			[]string{"NOPERM", "ACL"}},
		{"a certificate of nobody", testenv.RedisOptions{TLS: foreign}, func(r *testenv.Redis) string { return "rediss://:secret@" + r.Addr },
			[]string{"certificate", "SSL_CERT_FILE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, c.opts)
			var book *logBook
			var s *Store
			await(t, "the last attempt is not cut short", func() bool {
				book = new(logBook)
				s = openAny(t, Options{URL: c.url(r), Logger: book.logger(), Timeout: time.Second, Events: Events{Failed: ignored}}, 100*time.Millisecond)
				return !strings.Contains(book.String(), context.DeadlineExceeded.Error())
			})
			if s.Healthy() {
				t.Error("it passes for healthy")
			}
			if d := decide(t, s, hit("k", perYear(5), 1)); !d[0].Allowed || d[0].Remaining != 4 {
				t.Errorf("its local counter says %+v", d[0])
			}
			if _, err := s.Decide(t.Context(), []limiter.Hit{onFailure(limiter.FailError, hit("k", perYear(5), 1))}); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("with policy error it says %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			for _, want := range c.wants {
				if !strings.Contains(book.String(), want) {
					t.Errorf("the log has no %q:\n%s", want, book.String())
				}
			}
			if strings.Contains(book.String(), "secret") {
				t.Errorf("the password stands in the log:\n%s", book.String())
			}
		})
	}
}

func TestARedisThatIsDownAtTheStartIsUsedWhenItComesUp(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	var book logBook
	opened := make(chan bool, 4)
	begin := time.Now()
	s := openAny(t, Options{URL: "redis://" + addr, Logger: book.logger(), Timeout: time.Second, Events: Events{
		Failed: ignored, Breaker: func(open bool) { opened <- open },
	}}, 200*time.Millisecond)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Open took %v, and its context 200 ms", took)
	}
	if !<-opened || s.Healthy() {
		t.Error("it passes for healthy")
	}
	for n := range uint64(3) {
		if d := decide(t, s, hit("k", perYear(5), 1)); !d[0].Allowed || d[0].Remaining != 4-n {
			t.Errorf("its local counter says %+v", d[0])
		}
	}
	r := testenv.StartRedis(t, testenv.RedisOptions{Addr: addr})
	if <-opened {
		t.Error("its breaker opens when Redis comes up")
	}
	await(t, "it is healthy", s.Healthy)
	if d := decide(t, s, hit("k", perYear(5), 1)); d[0].Remaining != 4 {
		t.Errorf("Redis begins with %+v; what was decided without it is not written back", d[0])
	}
	if n := calls(t, r, "evalsha"); n != 1 {
		t.Errorf("Redis was asked %d times, want once", n)
	}
	if !strings.Contains(book.String(), "Redis answers") {
		t.Errorf("the log does not say that Redis is back:\n%s", book.String())
	}
}
