package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

var someSecret = []byte("0123456789abcdef0123456789abcdef")

func TestASecretKeepsNamesFromBeingTried(t *testing.T) {
	t.Parallel()
	plain, secret, other := NewNaming("", nil), NewNaming("", someSecret), NewNaming("", []byte("another secret of some length"))
	for _, key := range []string{"", "k", strings.Repeat("long", 100), "\x00\xff"} {
		k := limiter.Key(key)
		sum := sha256.Sum256(k)
		mac := hmac.New(sha256.New, someSecret)
		mac.Write(k)
		text := func(b []byte) string { return "weir:" + base64.RawURLEncoding.EncodeToString(b[:16]) }
		if got, want := plain.Counter(k, nil), text(sum[:]); got != want {
			t.Errorf("without a secret %q is %s, want %s", key, got, want)
		}
		for range 3 { // the same each time, though the HMAC is used again
			if got, want := secret.Counter(k, nil), text(mac.Sum(nil)); got != want {
				t.Errorf("with a secret %q is %s, want %s", key, got, want)
			}
		}
		if secret.Counter(k, nil) == other.Counter(k, nil) {
			t.Errorf("two secrets give %q one name", key)
		}
		queue := limiter.Key("some queue")
		if got, want := secret.Counter(k, queue), QueueCounter("weir:", k, queue); got != want || got != plain.Counter(k, queue) {
			t.Errorf("the counter of a queue is %s, and for workers, who know no secret, %s", got, want)
		}
	}
}

func TestANamingMayBeUsedAtOnce(t *testing.T) {
	t.Parallel()
	n := NewNaming("", someSecret)
	want := make([]string, 100)
	for i := range want {
		want[i] = NewNaming("", someSecret).Counter(limiter.Key(fmt.Sprint(i)), nil)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range want {
				if got := n.Counter(limiter.Key(fmt.Sprint(i)), nil); got != want[i] {
					t.Errorf("%d is %s, want %s", i, got, want[i])
				}
			}
		})
	}
	wg.Wait()
}

func TestStoresShareCountersIfTheirSecretIsTheSame(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	with := func(secret []byte) *Store {
		return open(t, r.Addr, Options{KeyPrefix: "shared:", KeySecret: secret}, nil)
	}
	one, two, none := with(someSecret), with(someSecret), with(nil)
	several := []limiter.Hit{hit("a", perYear(5), 1), hit("b", perYear(5), 1)}
	for _, step := range []struct {
		s      *Store
		want   uint64
		remark string
	}{
		{one, 4, "a counter begins"},
		{two, 3, "the same secret: the same counter"},
		{none, 4, "no secret: another one"},
		{with([]byte("another secret of some length")), 4, "another secret: another one"},
		{one, 2, "and none disturbs it"},
	} {
		for _, d := range decide(t, step.s, several...) {
			if d.Remaining != step.want {
				t.Errorf("%s: %d remain, want %d", step.remark, d.Remaining, step.want)
			}
		}
	}
	if got := r.MustDo(t, "GET", NewNaming("shared:", someSecret).Counter(limiter.Key("a"), nil)); got == "" {
		t.Errorf("the counter is not where its name says; there are\n%s", r.MustDo(t, "KEYS", "*"))
	}
}

func TestACounterOfAQueueIsWhereItsWorkerLooks(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, testenv.RedisOptions{})
	s := open(t, r.Addr, Options{KeyPrefix: "queued:", KeySecret: someSecret}, nil)
	orders := hit("orders", limiter.Limit{Requests: 1, Window: limiter.Window{Length: time.Hour}, Algorithm: limiter.LeakyBucket, Queue: 2}, 1)
	orders.Overflow = limiter.Key("orders' queue")
	decide(t, s, orders)
	decide(t, s, orders, hit("other", perYear(5), 1)) // several limits are another script
	if name := QueueCounter("queued:", orders.Key, orders.Overflow); r.MustDo(t, "EXISTS", name) != "1" {
		t.Errorf("%s is not there, but\n%s", name, r.MustDo(t, "KEYS", "*"))
	}
	if n := strings.Count(r.MustDo(t, "KEYS", "queued:{*"), "queued:"); n != 1 {
		t.Errorf("the bucket is in %d places:\n%s", n, r.MustDo(t, "KEYS", "*"))
	}
}

// BenchmarkName is what it costs to name a counter of usual length.
func BenchmarkName(b *testing.B) {
	key := limiter.Key("0123456789abcdef/api/posts 192.0.2.1")
	for name, secret := range map[string][]byte{"sha256": nil, "hmac": someSecret} {
		b.Run(name, func(b *testing.B) {
			n := NewNaming("", secret)
			b.ReportAllocs()
			for b.Loop() {
				n.hash(key, nil)
			}
		})
	}
}
