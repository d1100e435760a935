package etcd

import (
	"syscall"
	"testing"

	"weir/internal/testenv"
	"weir/rules/kv/kvtest"
)

// open returns a store on an etcd.
func open(t testing.TB, options Options) *Store {
	t.Helper()
	s, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func openAt(t testing.TB, e *testenv.Etcd) *Store {
	t.Helper()
	return open(t, Options{Endpoints: []string{e.Addr}})
}

func signal(t testing.TB, e *testenv.Etcd, sig syscall.Signal) {
	t.Helper()
	kvtest.Must(t, e.Signal(sig))
}
