package consul

import (
	"syscall"
	"testing"

	"weir/internal/testenv"
	"weir/rules/kv/kvtest"
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

func signal(t testing.TB, c *testenv.Consul, sig syscall.Signal) {
	t.Helper()
	kvtest.Must(t, c.Signal(sig))
}
