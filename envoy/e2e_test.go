// Package envoy_test runs envoy.yaml, as the README quotes it, against the real
// Envoy and the real Weir.
package envoy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
)

// An hour is longer than any test, and neither a log nor a leaky bucket has a
// boundary that a test could straddle.
const rules = `
rules:
  - name: posts-by-address
    match: {endpoint: /posts, remote_address: "*"}
    limit: 3
    window: 1h
    algorithm: sliding_window_log
  - name: likes-by-address
    match: {endpoint: /likes, remote_address: "*"}
    limit: 3
    window: 1h
    algorithm: sliding_window_log
  - name: "rep\r\norts: é"
    endpoint: /reports
    limit: 2
    window: 1h
    algorithm: sliding_window_log
  - name: orders
    endpoint: /orders
    limit: 5
    window: 1s
    algorithm: leaky_bucket
    queue: 1
`

// Clients. All of 127.0.0.0/8 is the loopback interface's on Linux.
const (
	alice = "127.0.0.1"
	bob   = "127.0.0.2"
	carol = "127.0.0.3"
)

func TestOverLimitIs429WithHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for i, remaining := range []string{"2", "1", "0"} {
		// Each with a query of its own: it is no part of the endpoint.
		r := s.get(t, alice, fmt.Sprintf("/posts?page=%d", i))
		r.want(t, http.StatusOK, map[string]string{
			"X-Ratelimit-Limit":       "3",
			"X-Ratelimit-Remaining":   remaining,
			"X-Ratelimit-Retry-After": "",
			"Retry-After":             "",
		})
	}
	before := s.upstreamed.Load()
	r := s.get(t, alice, "/posts")
	r.want(t, http.StatusTooManyRequests, map[string]string{
		"X-Ratelimit-Limit":     "3",
		"X-Ratelimit-Remaining": "0",
	})
	// The first request leaves the window an hour after it came.
	for _, name := range []string{"Retry-After", "X-Ratelimit-Retry-After"} {
		values := r.header.Values(name)
		if len(values) != 1 {
			t.Errorf("%s: %q, want one value", name, values)
			continue
		}
		if s, err := strconv.Atoi(values[0]); err != nil || s < 3500 || s > 3600 {
			t.Errorf("%s: %q, want the seconds of an hour, or a few less", name, values[0])
		}
	}
	if got := s.upstreamed.Load(); got != before {
		t.Errorf("the upstream saw %d requests, one of them refused", got)
	}
}

func TestLimitIsPerAddressAndPerPath(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for range 3 {
		s.get(t, alice, "/posts").want(t, http.StatusOK, nil)
	}
	s.get(t, alice, "/posts").want(t, http.StatusTooManyRequests, nil)
	for _, c := range []struct {
		client, path string
		code         int
		remaining    string
		remark       string
	}{
		{bob, "/posts", 200, "2", "another client"},
		{alice, "/likes", 200, "2", "another path"},
		{alice, "/about", 200, "", "a path without a rule: no limit, no headers"},
		{alice, "/posts?x=1&y=2", 429, "0", "the query is no part of the path"},
		{alice, "//posts", 429, "0", "another spelling of the path"},
		{alice, "/x/../posts", 429, "0", "another spelling of the path"},
		{alice, "/po%73ts", 429, "0", "another spelling of the path"},
		{bob, "/posts", 200, "1", "the other client still has its own"},
		{alice, "/reports", 200, "1", "one limit for all clients"},
		{bob, "/reports", 200, "0", "one limit for all clients"},
		{carol, "/reports", 429, "0", "one limit for all clients"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			s.get(t, c.client, c.path).want(t, c.code, map[string]string{"X-Ratelimit-Remaining": c.remaining})
		})
	}
	t.Run("a forged X-Forwarded-For", func(t *testing.T) {
		s.get(t, alice, "/posts", "X-Forwarded-For", "192.0.2.1").want(t, http.StatusTooManyRequests, nil)
	})
}

func TestLeakyBucketHoldsUntilItsTurn(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	begin := time.Now()
	s.get(t, alice, "/orders").want(t, http.StatusOK, nil)
	s.get(t, alice, "/orders").want(t, http.StatusOK, nil)
	if took := time.Since(begin); took < 190*time.Millisecond {
		t.Errorf("two requests at five a second took %v, want 200ms", took)
	}
}

func TestFailOpenWhenWeirIsStopped(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for range 3 {
		s.get(t, alice, "/posts").want(t, http.StatusOK, nil)
	}
	s.get(t, alice, "/posts").want(t, http.StatusTooManyRequests, nil)
	s.weir.Stop(t)
	for range 5 {
		s.get(t, alice, "/posts").want(t, http.StatusOK, map[string]string{"X-Ratelimit-Limit": ""})
	}
}

func TestFailureModeDenyWhenWeirIsStopped(t *testing.T) {
	t.Parallel()
	s := start(t, map[string]string{"failure_mode_deny: false": "failure_mode_deny: true"})
	s.get(t, alice, "/about").want(t, http.StatusOK, nil)
	s.weir.Stop(t)
	before := s.upstreamed.Load()
	s.get(t, alice, "/about").want(t, http.StatusInternalServerError, nil)
	if got := s.upstreamed.Load(); got != before {
		t.Errorf("the upstream saw %d requests, one of them without a decision", got)
	}
}

// setup is Envoy between a client and an upstream, with Weir beside it.
type setup struct {
	envoy      string // address
	weir       *testenv.Weir
	upstreamed atomic.Int64 // requests that the upstream saw
	told       atomic.Value // the http.Header of the last one
}

// start runs all three, with envoy.yaml but for its ports, what the test
// replaces, and the timeout: a busy machine may be away for longer than 100 ms,
// and Envoy would then let pass what a test wants to see refused.
func start(t *testing.T, replace map[string]string, args ...string) *setup {
	t.Helper()
	s := &setup{envoy: testenv.FreeAddr(t)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.upstreamed.Add(1)
		s.told.Store(r.Header)
		_, _ = io.WriteString(w, "from the upstream\n")
	}))
	t.Cleanup(upstream.Close)
	s.weir = testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{testenv.WriteFile(t, "rules.yaml", rules)}, Args: args})

	src, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := string(src)
	put := func(old, new string) {
		t.Helper()
		if n := strings.Count(config, old); n != 1 {
			t.Fatalf("envoy.yaml has %q %d times, want once", old, n)
		}
		config = strings.Replace(config, old, new, 1)
	}
	put("port_value: 10000}", "port_value: "+port(t, s.envoy)+"}")
	put("port_value: 9000}", "port_value: "+port(t, upstream.Listener.Addr().String())+"}")
	put("port_value: 8081}", "port_value: "+port(t, s.weir.GRPCAddr)+"}")
	put("timeout: 0.1s #", "timeout: 10s #")
	for old, new := range replace {
		put(old, new)
	}
	testenv.StartEnvoy(t, testenv.EnvoyOptions{Config: config, Addr: s.envoy})
	return s
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

type response struct {
	what   string
	code   int
	header http.Header
	body   string
}

// get asks Envoy from a client's address, with the path as it is written.
func (s *setup) get(t *testing.T, client, path string, header ...string) response {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", s.envoy)
		},
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://upstream.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.URL.Opaque = "//upstream.test" + path // sent as it is, not cleaned
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{what: fmt.Sprintf("%s as %s", path, client), code: resp.StatusCode, header: resp.Header, body: string(body)}
}

// want checks the status, and that each header is there once with that value, or
// not at all if the value is empty.
func (r response) want(t *testing.T, code int, headers map[string]string) {
	t.Helper()
	if r.code != code {
		t.Errorf("%s: status %d, want %d", r.what, r.code, code)
	}
	for name, want := range headers {
		values := r.header.Values(name)
		if want == "" && len(values) == 0 || len(values) == 1 && values[0] == want {
			continue
		}
		t.Errorf("%s: header %s is %q, want %q", r.what, name, values, want)
	}
}
