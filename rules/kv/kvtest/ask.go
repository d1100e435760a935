package kvtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"weir/rules/kv"
)

// What tests of one store ask it, beside the suite.

// Bound is how long a store may take to notice that its server is away: some seconds,
// and the rest is for a machine that is busy. The waits of such tests are far longer
// (Never), or far shorter.
const (
	Bound = 30 * time.Second
	Never = never
)

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Put writes a key, whatever it was.
func Put(s kv.Store, key, value string) error {
	_, err := s.Commit(context.Background(), []kv.Op{{Kind: kv.Put, Key: key, If: kv.AnyVersion, Value: []byte(value)}})
	return err
}

func list(t testing.TB, s kv.Store, q kv.Query) (kv.Listing, error) {
	t.Helper()
	return Timed(t, func() (kv.Listing, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*Bound)
		defer cancel()
		return s.List(ctx, q)
	})
}

// List lists, within Bound, and ends the test if that fails.
func List(t testing.TB, s kv.Store, q kv.Query) kv.Listing {
	t.Helper()
	l, err := list(t, s, q)
	Must(t, err)
	return l
}

// Timed holds that something takes no longer than Bound.
func Timed[T any](t testing.TB, do func() (T, error)) (T, error) {
	t.Helper()
	begin := time.Now()
	got, err := do()
	took := time.Since(begin)
	t.Logf("after %v: %v", took.Round(time.Millisecond), err)
	if took > Bound {
		t.Errorf("it took %v", took)
	}
	return got, err
}

// Fails holds that listing and writing fail within Bound, with what the error is to say.
func Fails(t testing.TB, s kv.Store, q kv.Query, says ...string) {
	t.Helper()
	written := make(chan error, 1)
	go func() { // at the same time, for each may take its time
		_, err := Timed(t, func() (struct{}, error) { return struct{}{}, Put(s, "a/key", "1") })
		written <- err
	}()
	_, err := list(t, s, q)
	Wants(t, err, append(says, q.Prefix)...)
	err = <-written
	Wants(t, err, append(says, "a/key")...)
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrDenied) {
		t.Errorf("it is taken for another error: %v", err)
	}
}

// Wants holds that there is an error that says something.
func Wants(t testing.TB, err error, says ...string) {
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

// Values are those of a listing, in the order of their keys.
func Values(l kv.Listing) string {
	var all []string
	for _, p := range l.Pairs {
		all = append(all, string(p.Value))
	}
	return strings.Join(all, " ")
}

// Listed is what became of a List.
type Listed struct {
	kv.Listing
	Err error
}

// Wait begins a List, holds that it waits, and returns what it will return.
func Wait(t testing.TB, s kv.Store, q kv.Query) chan Listed {
	t.Helper()
	done := make(chan Listed, 1)
	go func() {
		l, err := s.List(context.Background(), q)
		done <- Listed{l, err}
	}()
	select {
	case got := <-done:
		t.Fatalf("it did not wait: %+v", got)
	case <-time.After(500 * time.Millisecond):
	}
	return done
}

// Ended is what became of who waited, within Bound.
func Ended(t testing.TB, done chan Listed) Listed {
	t.Helper()
	got, _ := Timed(t, func() (Listed, error) {
		select {
		case got := <-done:
			return got, got.Err
		case <-time.After(2 * Bound):
			return Listed{}, errors.New("it still waits")
		}
	})
	return got
}
