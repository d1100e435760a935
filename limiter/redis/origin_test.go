package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/testenv"
	"weir/limiter"
)

func TestDecisionsTellWhoDecided(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	var waited atomic.Int64
	reasons := make(chan string, 100)
	s := openURL(t, Options{URL: "redis://" + r.Addr, Timeout: 500 * time.Millisecond, DenyCache: time.Minute, Events: Events{
		Failed: func(err error) { reasons <- Reason(err) },
		Waited: func(d time.Duration) { waited.Add(int64(d)) },
	}})
	l := limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Hour}}
	want := func(remark string, allowed bool, origin limiter.Origin, h limiter.Hit) {
		t.Helper()
		if d := decide(t, s, h)[0]; d.Allowed != allowed || d.Origin != origin {
			t.Errorf("%s: allowed %t by %v, want %t by %v", remark, d.Allowed, d.Origin, allowed, origin)
		}
	}
	want("passes", true, limiter.OriginStore, hit("k", l, 1))
	want("Redis refuses", false, limiter.OriginStore, hit("k", l, 1))
	want("as it said", false, limiter.OriginDenyCache, hit("k", l, 1))
	if n := s.DenyCached(); n != 1 {
		t.Errorf("%d refusals are remembered", n)
	}
	r.Kill()
	want("a refusal outlives its store", false, limiter.OriginDenyCache, hit("k", l, 1))
	for range 2 * failuresToOpen { // asked in vain, and not asked while the breaker is open
		want("local", true, limiter.OriginLocal, hit(fmt.Sprint(time.Now()), l, 1))
	}
	want("allow", true, limiter.OriginOpen, onFailure(limiter.FailAllow, hit("k2", l, 1)))
	want("deny", false, limiter.OriginClosed, onFailure(limiter.FailDeny, hit("k2", l, 1)))
	if waited.Load() <= 0 || len(reasons) == 0 {
		t.Errorf("waited %v for %d decisions", time.Duration(waited.Load()), len(reasons))
	}
	for len(reasons) > 0 {
		if reason := <-reasons; reason != "refused" && reason != "connection" && reason != "timeout" {
			t.Errorf("a Redis that has gone fails as %q", reason)
		}
	}
}

func TestReasonsAreFew(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{Password: "secret"})
	client := goredis.NewClient(&goredis.Options{Addr: r.Addr})
	defer client.Close()
	noAuth := client.Get(t.Context(), "k").Err()
	for _, x := range []struct {
		err  error
		want string
	}{
		{noAuth, "auth"},
		{fmt.Errorf("asking: %w", errTimeout), "timeout"},
		{context.DeadlineExceeded, "timeout"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "refused"},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, "connection"},
		{io.EOF, "connection"},
		{goredis.ErrClosed, "connection"},
		{goredis.ErrAutoPipelineQueueFull, "overload"},
		{errReply, "reply"},
		{errCalendar, "calendar"},
		{errors.New("what a client sent"), "other"},
	} {
		got := Reason(x.err)
		if got != x.want || !slices.Contains(Reasons(), got) {
			t.Errorf("%v is %q, want %q, one of %v", x.err, got, x.want, Reasons())
		}
	}
}

func TestALimitOfZeroSaysNothingOfRedis(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := openURL(t, Options{URL: "redis://" + r.Addr, Events: Events{Failed: ignored}})
	l := limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Hour}}
	r.Kill()
	zero := onFailure(limiter.FailAllow, hit("zero", limiter.Limit{Window: l.Window}, 1))
	for range failuresToOpen {
		decide(t, s, hit("k", l, 1))
		if d := decide(t, s, zero)[0]; d.Allowed || d.Origin != limiter.OriginStore {
			t.Errorf("it needs no store to refuse: %+v", d)
		}
	}
	if s.Healthy() {
		t.Error("the breaker is not open")
	}
	if d := decide(t, s, zero)[0]; d.Allowed {
		t.Errorf("nor has it more to say now: %+v", d)
	}
}
