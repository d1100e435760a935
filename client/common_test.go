package client_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"weir/client"
	"weir/limiter"
	"weir/rules"
	"weir/server"
)

// setup is what a test wants of a server and of its client. Counters stand still,
// as on a Monday's noon.
type setup struct {
	rules    string
	service  server.Options // Rules and Store are filled in
	client   client.Options // Addr is filled in
	grpc     server.GRPCOptions
	realTime bool // counters go by the real clock
}

// weir is a server in this process, and a client of it.
type weir struct {
	*client.Client
	service *server.Service
	addr    string
}

func start(t testing.TB, s setup) *weir {
	t.Helper()
	live := rules.NewLive(rules.LiveOptions{})
	if err := live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte(s.rules)})); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, time.March, 16, 12, 0, 0, 0, time.UTC)
	memory := limiter.MemoryOptions{Now: func() time.Time { return noon }}
	if s.realTime {
		memory.Now = time.Now
	}
	s.service.Rules, s.service.Store = live, limiter.NewMemory(memory)
	service := server.NewService(s.service)
	addr := serve(t, server.NewGRPC(service, s.grpc).Server)
	s.client.Addr = addr
	if s.client.Timeout == 0 {
		s.client.Timeout = 10 * time.Second // the machine may be slow; who tests the timeout sets it
	}
	return &weir{newClient(t, s.client), service, addr}
}

// serve serves until the test ends.
func serve(t testing.TB, s *grpc.Server) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return listener.Addr().String()
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// hello is a handler that lets see that it was reached.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })

// get asks a handler, as a client of this address.
func get(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "192.0.2.7:1234"
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// headersText is headers in one line, in order of their names.
func headersText(h http.Header) string {
	var lines []string
	for name, values := range h {
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "; ")
}

// eventually polls until it holds. What it waits for has no way to tell.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30s: %s", what)
		}
	}
}

// counted counts failures.
type counted struct {
	n    atomic.Int64
	logs logs
}

func (c *counted) options(o client.Options) client.Options {
	o.Failed = func(error) { c.n.Add(1) }
	o.Logger = slog.New(slog.NewTextHandler(&c.logs, nil))
	return o
}

// logs keeps what is logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte("\n"))
}

// codes is the statuses of so many requests, such as "200 200 429".
func codes(n int, h http.Handler, path string, header ...string) string {
	var out []string
	for range n {
		out = append(out, fmt.Sprint(get(h, path, header...).Code))
	}
	return strings.Join(out, " ")
}

// post sends a body, which get has none of.
func post(h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
