package consul

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/rules/kv"
)

// bound is how long a store may take to notice that Consul is away: some seconds,
// and the rest is for a machine that is busy. The waits of these tests are far
// longer, or far shorter.
const (
	bound = 30 * time.Second
	never = 10 * time.Minute
)

// open returns a store on a Consul.
func open(t testing.TB, options Options) *Store {
	t.Helper()
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a key, whatever it was.
func put(s *Store, key, value string) error {
	_, err := s.Commit(context.Background(), []kv.Op{{Kind: kv.Put, Key: key, If: kv.AnyVersion, Value: []byte(value)}})
	return err
}

// list lists and fails the test if that fails.
func list(t testing.TB, s *Store, q kv.Query) kv.Listing {
	t.Helper()
	l, err := timed(t, func() (kv.Listing, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
		defer cancel()
		return s.List(ctx, q)
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// timed holds that something takes no longer than bound.
func timed[T any](t testing.TB, do func() (T, error)) (T, error) {
	t.Helper()
	begin := time.Now()
	got, err := do()
	took := time.Since(begin)
	t.Logf("after %v: %v", took.Round(time.Millisecond), err)
	if took > bound {
		t.Errorf("it took %v", took)
	}
	return got, err
}

// fails holds that listing and writing fail soon, with what the error is to say.
func fails(t testing.TB, s *Store, q kv.Query, says ...string) {
	t.Helper()
	written := make(chan error, 1)
	go func() { // at the same time, for each may take its time
		_, err := timed(t, func() (struct{}, error) { return struct{}{}, put(s, "a/key", "1") })
		written <- err
	}()
	_, err := timed(t, func() (kv.Listing, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
		defer cancel()
		return s.List(ctx, q)
	})
	wants(t, err, append(says, q.Prefix)...)
	err = <-written
	wants(t, err, append(says, "a/key")...)
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrDenied) {
		t.Errorf("it is taken for another error: %v", err)
	}
}

// wants holds that there is an error that says something.
func wants(t testing.TB, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want something of %q", err, text)
		}
	}
}

// values are those of a listing, in the order of their keys.
func values(l kv.Listing) string {
	var all []string
	for _, p := range l.Pairs {
		all = append(all, string(p.Value))
	}
	return strings.Join(all, " ")
}

func signal(t testing.TB, c *testenv.Consul, sig syscall.Signal) {
	t.Helper()
	must(t, c.Signal(sig))
}
