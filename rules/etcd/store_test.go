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
	must(t, put(s, "a/1", "kept"))
	before := list(t, s, kv.Query{Prefix: "a/"})
	done := waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never})
	e.Kill()
	wants(t, ended(t, done).err, "listing a/", e.Addr, "connection refused")
	for _, q := range []kv.Query{
		{Prefix: "a/"},
		{Prefix: "a/", Stale: true},
		{Prefix: "a/", Since: before.Index, Wait: never},
	} {
		fails(t, s, q, e.Addr, "connection refused")
	}

	e = testenv.StartEtcd(t, testenv.EtcdOptions{Dir: dir, Addr: e.Addr})
	begin := time.Now()
	for {
		l, err := s.List(t.Context(), kv.Query{Prefix: "a/"})
		if err == nil {
			if values(l) != "kept" || l.Index < before.Index || l.Pairs[0].Version != before.Pairs[0].Version {
				t.Errorf("before %+v, with the same data %+v", before, l)
			}
			break
		}
		if time.Since(begin) > bound {
			t.Fatalf("it is not found again: %v", err)
		}
	}
	t.Logf("found again after %v", time.Since(begin))
	done = waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never})
	e.Put(t, "a/1", "changed")
	if got := ended(t, done); got.err != nil || values(got.Listing) != "changed" {
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
		must(t, put(s, "a/1", fmt.Sprint(i)))
	}
	before := list(t, s, kv.Query{Prefix: "a/"})
	done := waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never, Stale: true})
	e.Kill()
	e = testenv.StartEtcd(t, testenv.EtcdOptions{Addr: e.Addr})
	if got := ended(t, done); got.err == nil && (len(got.Pairs) > 0 || got.Index >= before.Index) {
		t.Errorf("before, the index was %d, and of an empty store there is %+v", before.Index, got)
	}
	for _, stale := range []bool{false, true} {
		got := list(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never, Stale: stale})
		if len(got.Pairs) > 0 || got.Index >= before.Index {
			t.Errorf("before, the index was %d, and of an empty store there is %+v", before.Index, got)
		}
	}
	e.Put(t, "a/1", "new")
	got := list(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never})
	if values(got) != "new" || got.Index >= before.Index {
		t.Errorf("before, the index was %d, and of a new store there is %+v", before.Index, got)
	}
}

func TestAnEtcdThatHangsIsAnErrorSoonAfterTheWait(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	must(t, put(s, "a/1", "kept"))
	before := list(t, s, kv.Query{Prefix: "a/"})
	long := waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never})
	done := waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: 2 * time.Second})
	signal(t, e, syscall.SIGSTOP)
	wants(t, ended(t, done).err, "listing a/", e.Addr)
	fails(t, s, kv.Query{Prefix: "a/", Stale: true}, e.Addr)
	fails(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never}, e.Addr)
	wants(t, ended(t, long).err, "listing a/", e.Addr) // also before its wait is over, by a ping
	fresh := openAt(t, e)
	fails(t, fresh, kv.Query{Prefix: "a/"}, e.Addr)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.List(ctx, kv.Query{Prefix: "a/"}); !errors.Is(err, context.Canceled) {
		t.Errorf("of who has left: %v", err)
	}
	signal(t, e, syscall.SIGCONT)
	for begin := time.Now(); ; {
		l, err := s.List(t.Context(), kv.Query{Prefix: "a/1"})
		if err == nil && values(l) == "kept" {
			break
		}
		if time.Since(begin) > bound {
			t.Fatalf("after it goes on: %+v, %v", l, err)
		}
	}
}

func TestHistoryThatWasCompactedIsNoHindrance(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	must(t, put(s, "a/1", "old"))
	before := list(t, s, kv.Query{Prefix: "a/"})
	for range 10 {
		must(t, put(s, "a/1", "new"))
	}
	now := list(t, s, kv.Query{Prefix: "a/"})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr}})
	must(t, err)
	defer client.Close()
	_, err = client.Compact(t.Context(), int64(now.Index))
	must(t, err)
	if got := list(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never}); values(got) != "new" {
		t.Errorf("from what is compacted: %+v", got)
	}
	done := waiting(t, s, kv.Query{Prefix: "a/", Since: now.Index, Wait: never})
	must(t, put(s, "b/1", "elsewhere"))
	must(t, put(s, "a/1", "newer"))
	if got := ended(t, done); values(got.Listing) != "newer" {
		t.Errorf("after what is compacted: %+v", got)
	}
}

func TestOneEndpointOfSeveralMayBeAway(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	away := testenv.FreeAddr(t)
	for _, endpoints := range [][]string{{away, e.Addr}, {e.Addr, away}} {
		s := open(t, Options{Endpoints: endpoints})
		must(t, put(s, "a/1", "x"))
		before := list(t, s, kv.Query{Prefix: "a/"})
		done := waiting(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: never})
		must(t, put(s, "a/1", "y"))
		if got := ended(t, done); values(got.Listing) != "y" {
			t.Errorf("%v: %+v", endpoints, got)
		}
	}
	e.Kill()
	fails(t, open(t, Options{Endpoints: []string{away, e.Addr}}), kv.Query{Prefix: "a/"}, away+","+e.Addr, "connection refused")
}

func TestAnEtcdThatHasLostItsClusterSaysSo(t *testing.T) {
	t.Parallel()
	path, err := testenv.FindEtcd()
	must(t, err)
	addr, peer := testenv.FreeAddr(t), "http://"+testenv.FreeAddr(t)
	nobody := "http://" + testenv.FreeAddr(t)
	testenv.Start(t, testenv.Program{Path: path, Addr: addr, Args: []string{
		"--name", "one", "--data-dir", t.TempDir(), "--listen-client-urls", "http://" + addr, "--advertise-client-urls", "http://" + addr,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one=" + peer + ",two=" + nobody,
		"--logger", "zap", "--log-level", "error"}, Env: []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH}})
	fails(t, open(t, Options{Endpoints: []string{addr}}), kv.Query{Prefix: "a/"}, addr)
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
		wants(t, err, c.says, e.Addr)
		if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrDenied) {
			t.Errorf("%s: it is taken for another error: %v", c.remark, err)
		}
	}
	if l := list(t, s, kv.Query{Prefix: "a/"}); len(l.Pairs) != 0 {
		t.Errorf("there is %+v", l.Pairs)
	}
}

func TestAStoreThatIsClosedLetsGoOfWhoWaits(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	s := openAt(t, e)
	must(t, put(s, "a/1", "x"))
	done := waiting(t, s, kv.Query{Prefix: "a/", Since: list(t, s, kv.Query{Prefix: "a/"}).Index, Wait: never})
	must(t, s.Close())
	wants(t, ended(t, done).err, "listing a/")
	wants(t, put(s, "a/1", "y"), "closed")
	must(t, s.Close())
}
