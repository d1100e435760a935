package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weir/internal/testenv"
	"weir/rules/kv"
	"weir/rules/kv/kvtest"
)

func TestEtcdKeepsTheContract(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	kvtest.Run(t, func(t *testing.T) kv.Store { return openAt(t, e) })
}

func TestAnEtcdThatIsKilledIsNoticedByWhoWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{Dir: dir})
	s := openAt(t, e)
	kvtest.Must(t, kvtest.Put(s, "a/1", "kept"))
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
	e.Kill()
	kvtest.Wants(t, kvtest.Ended(t, done).Err, "listing a/", e.Addr, "connection refused")
	for _, q := range []kv.Query{
		{Prefix: "a/"},
		{Prefix: "a/", Stale: true},
		{Prefix: "a/", Since: before.Index, Wait: kvtest.Never},
	} {
		kvtest.Fails(t, s, q, e.Addr, "connection refused")
	}

	e = testenv.StartEtcd(t, testenv.EtcdOptions{Dir: dir, Addr: e.Addr})
	begin := time.Now()
	for {
		l, err := s.List(t.Context(), kv.Query{Prefix: "a/"})
		if err == nil {
			if kvtest.Values(l) != "kept" || l.Index < before.Index || l.Pairs[0].Version != before.Pairs[0].Version {
				t.Errorf("before %+v, with the same data %+v", before, l)
			}
			break
		}
		if time.Since(begin) > kvtest.Bound {
			t.Fatalf("it is not found again: %v", err)
		}
	}
	t.Logf("found again after %v", time.Since(begin))
	done = kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
	e.Put(t, "a/1", "changed")
	if got := kvtest.Ended(t, done); got.Err != nil || kvtest.Values(got.Listing) != "changed" {
		t.Errorf("after it was back: %+v", got)
	}
}

// Its client would find the new one, and watch it from a revision that this one
// has not reached.
func TestAnEtcdThatBeganAnewIsNoticedByWhoWaits(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	for i := range 100 {
		kvtest.Must(t, kvtest.Put(s, "a/1", fmt.Sprint(i)))
	}
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never, Stale: true})
	e.Kill()
	e = testenv.StartEtcd(t, testenv.EtcdOptions{Addr: e.Addr})
	if got := kvtest.Ended(t, done); got.Err == nil && (len(got.Pairs) > 0 || got.Index >= before.Index) {
		t.Errorf("before, the index was %d, and of an empty store there is %+v", before.Index, got)
	}
	for _, stale := range []bool{false, true} {
		got := kvtest.List(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never, Stale: stale})
		if len(got.Pairs) > 0 || got.Index >= before.Index {
			t.Errorf("before, the index was %d, and of an empty store there is %+v", before.Index, got)
		}
	}
	e.Put(t, "a/1", "new")
	got := kvtest.List(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
	if kvtest.Values(got) != "new" || got.Index >= before.Index {
		t.Errorf("before, the index was %d, and of a new store there is %+v", before.Index, got)
	}
}

func TestAnEtcdThatHangsIsAnErrorSoonAfterTheWait(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	kvtest.Must(t, kvtest.Put(s, "a/1", "kept"))
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	long := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: 2 * time.Second})
	signal(t, e, syscall.SIGSTOP)
	kvtest.Wants(t, kvtest.Ended(t, done).Err, "listing a/", e.Addr)
	kvtest.Fails(t, s, kv.Query{Prefix: "a/", Stale: true}, e.Addr)
	kvtest.Fails(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never}, e.Addr)
	kvtest.Wants(t, kvtest.Ended(t, long).Err, "listing a/", e.Addr) // also before its wait is over, by a ping
	fresh := openAt(t, e)
	kvtest.Fails(t, fresh, kv.Query{Prefix: "a/"}, e.Addr)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.List(ctx, kv.Query{Prefix: "a/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("of who has left: %v", err)
	}
	signal(t, e, syscall.SIGCONT)
	for begin := time.Now(); ; {
		l, err := s.List(t.Context(), kv.Query{Prefix: "a/1"})
		if err == nil && kvtest.Values(l) == "kept" {
			break
		}
		if time.Since(begin) > kvtest.Bound {
			t.Fatalf("after it goes on: %+v, %v", l, err)
		}
	}
}

func TestHistoryThatWasCompactedIsNoHindrance(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	kvtest.Must(t, kvtest.Put(s, "a/1", "old"))
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	for range 10 {
		kvtest.Must(t, kvtest.Put(s, "a/1", "new"))
	}
	now := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr}})
	kvtest.Must(t, err)
	defer client.Close()
	_, err = client.Compact(t.Context(), int64(now.Index))
	kvtest.Must(t, err)
	if got := kvtest.List(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never}); kvtest.Values(got) != "new" {
		t.Errorf("from what is compacted: %+v", got)
	}
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: now.Index, Wait: kvtest.Never})
	kvtest.Must(t, kvtest.Put(s, "b/1", "elsewhere"))
	kvtest.Must(t, kvtest.Put(s, "a/1", "newer"))
	if got := kvtest.Ended(t, done); kvtest.Values(got.Listing) != "newer" {
		t.Errorf("after what is compacted: %+v", got)
	}
}

func TestOneEndpointOfSeveralMayBeAway(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	away := testenv.FreeAddr(t)
	for _, endpoints := range [][]string{{away, e.Addr}, {e.Addr, away}} {
		s := open(t, Options{Endpoints: endpoints})
		kvtest.Must(t, kvtest.Put(s, "a/1", "x"))
		before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
		done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
		kvtest.Must(t, kvtest.Put(s, "a/1", "y"))
		if got := kvtest.Ended(t, done); kvtest.Values(got.Listing) != "y" {
			t.Errorf("%v: %+v", endpoints, got)
		}
	}
	e.Kill()
	kvtest.Fails(t, open(t, Options{Endpoints: []string{away, e.Addr}}), kv.Query{Prefix: "a/"}, away+","+e.Addr, "connection refused")
}

func TestAnEtcdThatHasLostItsClusterSaysSo(t *testing.T) {
	t.Parallel()
	path, err := testenv.FindEtcd()
	kvtest.Must(t, err)
	addr, peer := testenv.FreeAddr(t), "http://"+testenv.FreeAddr(t)
	nobody := "http://" + testenv.FreeAddr(t)
	testenv.Start(t, testenv.Program{Path: path, Addr: addr, Args: []string{
		"--name", "one", "--data-dir", t.TempDir(), "--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one=" + peer + ",two=" + nobody,
		"--logger", "zap", "--log-level", "error"}, Env: []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}})
	kvtest.Fails(t, open(t, Options{Endpoints: []string{addr}}), kv.Query{Prefix: "a/"}, addr)
}

func TestWhatEtcdDoesNotTakeIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	large := bytes.Repeat([]byte("x"), 1600<<10)
	many := make([]kv.Op, 200)
	for i := range many {
		many[i] = kv.Op{Kind: kv.Put, Key: fmt.Sprintf("a/%d", i)}
	}
	for _, c := range []struct {
		remark string
		ops    []kv.Op
		says   string
	}{
		{"a value that is too large", []kv.Op{{Kind: kv.Put, Key: "a/large", Value: large}}, "too large"},
		{"values that are too large together", []kv.Op{
			{Kind: kv.Put, Key: "a/1", Value: large[:limits.Value]},
			{Kind: kv.Put, Key: "a/2", Value: large[:limits.Value]}}, "larger than max"},
		{"too many operations", many, "too many operations"},
		{"no key", []kv.Op{{Kind: kv.Put}}, "key is not provided"},
		{"a key twice", []kv.Op{{Kind: kv.Put, Key: "a/1", If: kv.AnyVersion}, {Kind: kv.Put, Key: "a/1", If: kv.AnyVersion}}, "duplicate key"},
	} {
		_, err := s.Commit(t.Context(), c.ops)
		t.Logf("%s: %v", c.remark, err)
		kvtest.Wants(t, err, c.says, e.Addr)
		if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrDenied) {
			t.Errorf("%s: it is taken for another error: %v", c.remark, err)
		}
	}
	if l := kvtest.List(t, s, kv.Query{Prefix: "a/"}); len(l.Pairs) != 0 {
		t.Errorf("there is %+v", l.Pairs)
	}
}

func TestAStoreThatIsClosedLetsGoOfWhoWaits(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	kvtest.Must(t, kvtest.Put(s, "a/1", "x"))
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: kvtest.List(t, s, kv.Query{Prefix: "a/"}).Index, Wait: kvtest.Never})
	kvtest.Must(t, s.Close())
	kvtest.Wants(t, kvtest.Ended(t, done).Err, "listing a/")
	kvtest.Wants(t, kvtest.Put(s, "a/1", "y"), "closed")
	kvtest.Must(t, s.Close())
}
