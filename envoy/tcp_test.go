package envoy_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTCPConnectionsOverTheLimitAreClosed(t *testing.T) {
	t.Parallel()
	// An upstream that speaks first, as many databases do.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = io.WriteString(conn, "welcome\n")
			_ = conn.Close()
		}
	}()
	r := startRecipe(t, "tcp", recipeOptions{listener: listener.Addr(), weirArgs: []string{"--dynamic-metadata", "weir"}})
	served := func(client string) bool {
		t.Helper()
		seen := accepted.Load()
		text, err := dialFrom(t, client, r.addr)
		switch {
		case text == "welcome\n" && err == nil:
			return true
		case text != "" || accepted.Load() != seen:
			t.Errorf("%s is refused, and has read %q; the upstream saw %d connections", client, text, accepted.Load()-seen)
		}
		return false
	}
	for i, want := range []bool{true, true, true, false, false} {
		if got := served(bob); got != want {
			t.Errorf("connection %d of one client, three are allowed: served %v", i+1, got)
		}
	}
	// Beside that of the probe that waited for Envoy; in any order, for each
	// connection is logged at its end.
	log := strings.Join(r.accessLog(t, 6), "")
	refused := fmt.Sprintf(`{"client":%q,"flags":"-","refused_by":["connections"],"remaining":0,"rule":"connections"}`, bob)
	if n := strings.Count(log, refused); n != 2 {
		t.Errorf("the log tells of %d refused connections, want 2:\n%s", n, log)
	}
	for remaining := range 3 {
		line := fmt.Sprintf(`{"client":%q,"flags":"-","refused_by":null,"remaining":%d,"rule":"connections"}`, bob, remaining)
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("the log has %d lines of a connection that left %d, want one:\n%s", n, remaining, log)
		}
	}
	if !served(carol) {
		t.Error("another client is refused")
	}
	// All of them have five. Whether the probe was counted that waited for Envoy,
	// is not known: it left at once.
	more := 0
	for more < 2 && served(carol) {
		more++
	}
	if more == 2 {
		t.Error("six connections were served, five are allowed")
	}
}

// dialFrom returns what a connection brings until its end.
func dialFrom(t *testing.T, client, addr string) (string, error) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}, Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
