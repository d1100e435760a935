package proc

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestPortsAreFreeAndDistinct(t *testing.T) {
	var c net.ListenConfig
	taken, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	p := &Ports{next: port, last: port}
	if got, err := p.Take(t.Context()); !errors.Is(err, ErrNoPorts) {
		t.Errorf("it gives a port that is taken: %v, %v", got, err)
	}
	for _, s := range []string{"", "5", "5-", "9-5", "0-5", "1-70000", "a-b"} {
		if _, err := ParsePorts(s); err == nil {
			t.Errorf("%q is a range", s)
		}
	}
}

func TestGroupEndsWhatItStarted(t *testing.T) {
	var g Group
	// Nothing listens there, so it never comes up; the child must end all the same.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	p, err := g.Start(ctx, Program{Name: "sleep", Path: "/bin/sh", Args: []string{"-c", "sleep 1000 & wait"}, Dir: t.TempDir(), Addr: "127.0.0.1:1"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("it is up: %v", err)
	}
	if err := p.Alive(); err != nil {
		t.Fatal(err)
	}
	g.Close()
	if p.Alive() == nil {
		t.Error("it still runs")
	}
}

func TestAProgramThatFailsIsQuoted(t *testing.T) {
	var g Group
	defer g.Close()
	_, err := g.Start(t.Context(), Program{Name: "bad", Path: "/bin/sh", Args: []string{"-c", "echo the reason; exit 3"}, Dir: t.TempDir(), Addr: "127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}
