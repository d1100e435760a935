package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/rules/kv"
	"weir/rules/kv/kvtest"
)

func TestConsulKeepsTheContract(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	kvtest.Run(t, func(t *testing.T) kv.Store { return open(t, Options{Addr: c.Addr}) })
}

func TestAConsulThatIsKilledIsNoticedByWhoWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := testenv.StartConsul(t, testenv.ConsulOptions{Dir: dir})
	s := open(t, Options{Addr: c.Addr})
	kvtest.Must(t, kvtest.Put(s, "a/1", "kept"))
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: kvtest.Never})
	c.Kill()
	select {
	case got := <-done:
		kvtest.Wants(t, got.Err, "listing a/", c.Addr)
	case <-time.After(kvtest.Bound):
		t.Fatal("it still waits")
	}
	for _, q := range []kv.Query{
		{Prefix: "a/"},
		{Prefix: "a/", Stale: true},
		{Prefix: "a/", Since: before.Index, Wait: kvtest.Never},
	} {
		kvtest.Fails(t, s, q, c.Addr, "connection refused")
	}

	c = testenv.StartConsul(t, testenv.ConsulOptions{Dir: dir, Addr: c.Addr})
	after := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	if kvtest.Values(after) != "kept" || after.Index < before.Index || after.Pairs[0].Version != before.Pairs[0].Version {
		t.Errorf("before %+v, with the same data %+v", before, after)
	}
	done = kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: after.Index, Wait: kvtest.Never})
	c.Put(t, "a/1", "changed")
	if got := <-done; got.Err != nil || kvtest.Values(got.Listing) != "changed" {
		t.Errorf("after it was back: %+v", got)
	}
}

func TestAConsulThatBeganAnewIsSeenByItsIndex(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	s := open(t, Options{Addr: c.Addr})
	for i := range 200 { // so that the index is ahead of what a start takes
		kvtest.Must(t, kvtest.Put(s, "a/1", fmt.Sprint(i)))
	}
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	c.Kill()
	c = testenv.StartConsul(t, testenv.ConsulOptions{Addr: c.Addr})
	for _, stale := range []bool{false, true} {
		got := kvtest.List(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: time.Second, Stale: stale})
		if len(got.Pairs) != 0 || got.Index >= before.Index {
			t.Errorf("before, the index was %d, and of an empty store there is %+v", before.Index, got)
		}
	}
	c.Put(t, "a/1", "new")
	got := kvtest.List(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: time.Second})
	if kvtest.Values(got) != "new" || got.Index >= before.Index {
		t.Errorf("before, the index was %d, and of a new store there is %+v", before.Index, got)
	}
}

func TestAConsulThatHangsIsAnErrorSoonAfterTheWait(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	s := open(t, Options{Addr: c.Addr})
	kvtest.Must(t, kvtest.Put(s, "a/1", "kept"))
	before := kvtest.List(t, s, kv.Query{Prefix: "a/"})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "a/", Since: before.Index, Wait: 2 * time.Second})
	signal(t, c, syscall.SIGSTOP)
	select {
	case got := <-done:
		kvtest.Wants(t, got.Err, "listing a/", c.Addr, "no answer within")
	case <-time.After(kvtest.Bound):
		t.Fatal("it still waits")
	}
	kvtest.Fails(t, s, kv.Query{Prefix: "a/", Stale: true}, c.Addr, "no answer within")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.List(ctx, kv.Query{Prefix: "a/"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("of who has left: %v", err)
	}
	signal(t, c, syscall.SIGCONT)
	if got := kvtest.List(t, s, kv.Query{Prefix: "a/"}); !strings.HasPrefix(kvtest.Values(got), "kept") { // what was not answered may be written now
		t.Errorf("after it goes on: %+v", got)
	}
}

func TestAConsulWithoutALeaderSaysSo(t *testing.T) {
	t.Parallel()
	path, err := testenv.FindConsul()
	kvtest.Must(t, err)
	addr := testenv.FreeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	ports := testenv.FreePorts(t, 2)
	testenv.Start(t, testenv.Program{Path: path, Addr: addr, Args: []string{
		"agent", "-server", "-bootstrap-expect=3", "-data-dir", t.TempDir(), "-bind=127.0.0.1", "-node=lonely", "-log-level=warn",
		"-http-port=" + port, "-server-port=" + fmt.Sprint(ports[0]), "-serf-lan-port=" + fmt.Sprint(ports[1]),
		"-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1", "-grpc-tls-port=-1"}})
	s := open(t, Options{Addr: addr})
	kvtest.Fails(t, s, kv.Query{Prefix: "a/"}, addr, "No cluster leader")
}

func TestWhatIsNoConsulIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	defer elsewhere.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"a page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") },
		"an empty list": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "[]")
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusMovedPermanently)
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "rpc error", http.StatusInternalServerError)
		},
	} {
		server := httptest.NewServer(answer)
		s := open(t, Options{Addr: server.Listener.Addr().String(), Token: "secret"})
		_, err := s.List(t.Context(), kv.Query{Prefix: "a/"})
		t.Logf("%s: %v", name, err)
		kvtest.Wants(t, err, "listing a/", server.Listener.Addr().String())
		err = kvtest.Put(s, "a/1", "1")
		t.Logf("%s: %v", name, err)
		kvtest.Wants(t, err, "a/1", server.Listener.Addr().String())
		large := strings.Repeat("x", limits.Value)
		if err := kvtest.Put(s, "a/1", large); err == nil {
			t.Errorf("%s: a large value was written", name)
		}
		server.Close()
	}
	if seen.Load() > 0 {
		t.Error("a redirect was followed, with the token")
	}
}

func TestWhatConsulDoesNotTakeIsAnErrorThatSaysSo(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	s := open(t, Options{Addr: c.Addr})
	large := bytes.Repeat([]byte("x"), limits.Value+1)
	for _, c := range []struct {
		remark string
		ops    []kv.Op
		says   []string
	}{
		{"a value that is too large", []kv.Op{{Kind: kv.Put, Key: "a/large", Value: large}}, []string{"a/large", "too large", "524288"}},
		{"values that are too large together", []kv.Op{
			{Kind: kv.Put, Key: "a/1", Value: large[:limits.Bytes]},
			{Kind: kv.Put, Key: "a/2", Value: large[:limits.Bytes]}}, []string{"too large", "524288"}},
		{"too many operations", make([]kv.Op, 200), []string{"too many operations"}},
		{"a key that is not UTF-8", []kv.Op{{Kind: kv.Put, Key: "a/\xff"}}, []string{`"a/\xff"`, "UTF-8"}},
		{"no key", []kv.Op{{Kind: kv.Put}}, []string{"Must provide key"}},
	} {
		for i := range c.ops {
			if c.ops[i].Key == "" && len(c.ops) > 1 {
				c.ops[i] = kv.Op{Kind: kv.Put, Key: fmt.Sprintf("a/%d", i)}
			}
		}
		_, err := s.Commit(t.Context(), c.ops)
		t.Logf("%s: %v", c.remark, err)
		kvtest.Wants(t, err, c.says...)
		if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrDenied) {
			t.Errorf("%s: it is taken for another error: %v", c.remark, err)
		}
	}
	if l := kvtest.List(t, s, kv.Query{Prefix: "a/"}); len(l.Pairs) != 0 {
		t.Errorf("there is %+v", l.Pairs)
	}
	kvtest.Wants(t, kvtest.Put(open(t, Options{Addr: c.Addr, Datacenter: "nowhere"}), "a/1", "1"), "nowhere")
}
