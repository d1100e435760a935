package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/rules"
	"weir/rules/consul"
	"weir/rules/etcd"
	"weir/rules/kv"
)

const prefix = "weir/rules"

// server is a real Consul or etcd, and what both can be asked for.
type server struct {
	kv.Store
	url    string
	kill   func()
	start  func(empty bool) // at the same address again
	put    func(key, value string)
	delete func(key string)
}

// onBoth runs a test on a real Consul and on a real etcd.
func onBoth(t *testing.T, test func(t *testing.T, s *server)) {
	t.Run("consul", func(t *testing.T) { t.Parallel(); test(t, startConsul(t)) })
	t.Run("etcd", func(t *testing.T) { t.Parallel(); test(t, startEtcd(t)) })
}

func startConsul(t *testing.T) *server {
	dir := t.TempDir()
	c := testenv.StartConsul(t, testenv.ConsulOptions{Dir: dir})
	store, err := consul.New(consul.Options{Addr: c.Addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &server{Store: store, url: "consul://" + c.Addr + "/" + prefix}
	s.kill = func() { c.Kill() }
	s.start = func(empty bool) {
		if empty {
			dir = t.TempDir()
		}
		c = testenv.StartConsul(t, testenv.ConsulOptions{Addr: c.Addr, Dir: dir})
	}
	s.put = func(key, value string) { c.Put(t, key, value) }
	s.delete = func(key string) { c.Delete(t, key) }
	return s
}

func startEtcd(t *testing.T) *server {
	dir := t.TempDir()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{Dir: dir})
	store, err := etcd.New(etcd.Options{Endpoints: []string{e.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &server{Store: store, url: "etcd://" + e.Addr + "/" + prefix}
	s.kill = func() { e.Kill() }
	s.start = func(empty bool) {
		if empty {
			dir = t.TempDir()
		}
		e = testenv.StartEtcd(t, testenv.EtcdOptions{Addr: e.Addr, Dir: dir})
	}
	s.put = func(key, value string) { e.Put(t, key, value) }
	s.delete = func(key string) { e.Delete(t, key) }
	return s
}

// rule is a document with a rule for each endpoint.
func rule(endpoints ...string) string {
	text := "rules:\n"
	for _, e := range endpoints {
		text += fmt.Sprintf("  - {endpoint: %s, limit: 1, window: 1s}\n", e)
	}
	return text
}

// files are documents by name: pairs of a name and a text.
func files(pairs ...string) map[string][]byte {
	m := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = []byte(pairs[i+1])
	}
	return m
}

// many are n documents of one rule each, whose text says which edition it is.
func many(n int, edition string) map[string][]byte {
	m := map[string][]byte{}
	for i := range n {
		m[fmt.Sprintf("team-%d/rules-%03d.yaml", i%7, i)] = []byte(fmt.Sprintf("# edition %s\nrules: [{endpoint: /%d, name: %s, limit: 1, window: 1s}]\n", edition, i, edition))
	}
	return m
}

// read is a source that runs, and the Live that it feeds.
type read struct {
	live *rules.Live
	log  *logged

	mu       sync.Mutex
	versions []string // of the set, at each apply that went well
}

type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const sourceName = "source"

// reading runs a source on a store until the test ends.
func reading(t *testing.T, store kv.Reader, url string, alarm time.Duration) *read {
	t.Helper()
	r := &read{log: new(logged)}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.live = rules.NewLive(rules.LiveOptions{Logger: log})
	src := kv.NewSource(kv.SourceOptions{Store: store, Prefix: prefix, URL: url, Logger: log})
	if alarm > 0 {
		src.SetAlarm(alarm)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- src.Run(ctx, func(s rules.Snapshot) error {
			err := r.live.Apply(sourceName, s)
			if err == nil {
				r.mu.Lock()
				r.versions = append(r.versions, r.live.Current().Version())
				r.mu.Unlock()
			}
			return err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the source ended with %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// has tells whether the endpoint has a rule in force.
func (r *read) has(endpoint string) bool {
	return r.live.Current().Explain("default", []rules.Entry{{Key: "endpoint", Value: endpoint}}).Rule != nil
}

func (r *read) status() rules.SourceStatus { return r.live.Status().Sources[sourceName] }

// seen are the versions of sets that were in force.
func (r *read) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.versions...)
}

// eventually waits for what must come true, far longer than it should take.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 30 s: %s", what)
		}
	}
}

// failing is a store of which the writes begin to fail, as those of a client
// that dies or is cut off.
type failing struct {
	kv.Store
	mu     sync.Mutex
	left   int  // commits that still go well; below 0: all
	answer bool // the first one that fails is done, and only its answer lost
	again  bool // those after it go well
	before func(commit int)

	commit    int
	documents int // commits before this one that wrote documents
}

var errCut = errors.New("cut off")

func (f *failing) Commit(ctx context.Context, ops []kv.Op) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit++
	if f.before != nil {
		f.before(f.commit)
	}
	if f.left == 0 {
		if f.answer {
			f.answer = false
			_, _ = f.Store.Commit(ctx, ops)
		}
		if f.again {
			f.left = -1
		}
		return 0, errCut
	}
	f.left--
	if slices.ContainsFunc(ops, func(op kv.Op) bool { return strings.HasPrefix(op.Key, prefix+"/team-") }) {
		f.documents++
	}
	return f.Store.Commit(ctx, ops)
}

func info(message string) kv.Info {
	return kv.Info{By: "alice@example", At: time.Date(2026, 12, 2, 9, 0, 0, 0, time.UTC), Message: message}
}

func stateOf(t *testing.T, r *kv.Repository) *kv.State {
	t.Helper()
	s, err := r.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pushed(t *testing.T, r *kv.Repository, files map[string][]byte, message string) kv.Version {
	t.Helper()
	v, err := r.Push(t.Context(), stateOf(t, r), files, info(message))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// text lists documents, for comparing.
func text(files map[string][]byte) string {
	var all strings.Builder
	for _, name := range sortedKeys(files) {
		fmt.Fprintf(&all, "%s: %s\n", name, files[name])
	}
	return all.String()
}
