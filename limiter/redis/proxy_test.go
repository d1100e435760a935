package redis

import (
	"testing"

	"weir/internal/chaos"
)

// startProxy starts one between a store and Redis, for what networks do.
func startProxy(t testing.TB, target string) *chaos.Proxy {
	t.Helper()
	p, err := chaos.NewProxy("", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
