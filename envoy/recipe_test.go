package envoy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
)

// recipe is a config of this folder that runs, with its rules in Weir.
type recipe struct {
	addr       string // Envoy's
	envoy      *testenv.Process
	weir       *testenv.Weir
	upstream   string       // its address
	upstreamed atomic.Int64 // requests that the upstream saw, unless the test brings one
}

type recipeOptions struct {
	upstream http.Handler      // nil: one that answers 200
	listener net.Addr          // of an upstream that is not HTTP; instead of upstream
	replace  map[string]string // in the config, beside the ports; each stands there
	weirArgs []string
}

// startRecipe runs NAME.yaml with rules/NAME.yaml. The timeout is longer than
// the page's, for a busy machine is no reason to let a request pass.
func startRecipe(t *testing.T, name string, o recipeOptions) *recipe {
	t.Helper()
	clearOfTheHour(t)
	r := &recipe{addr: testenv.FreeAddr(t)}
	if o.listener == nil {
		handler := o.upstream
		if handler == nil {
			handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		}
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.upstreamed.Add(1)
			handler.ServeHTTP(w, req)
		}))
		t.Cleanup(upstream.Close)
		o.listener = upstream.Listener.Addr()
	}
	r.upstream = o.listener.String()
	r.weir = testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{"rules/" + name + ".yaml"}, Args: o.weirArgs})

	src, err := os.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := string(src)
	put := func(old, new string) {
		t.Helper()
		if !strings.Contains(config, old) {
			t.Fatalf("%s.yaml has no %q", name, old)
		}
		config = strings.ReplaceAll(config, old, new)
	}
	put("port_value: 10000}", "port_value: "+port(t, r.addr)+"}")
	put("port_value: 9000}", "port_value: "+port(t, o.listener.String())+"}")
	put("port_value: 8081}", "port_value: "+port(t, r.weir.GRPCAddr)+"}")
	put(" timeout: 0.1s\n", " timeout: 10s\n")
	put("connect_timeout: 0.1s", "connect_timeout: 5s")
	for old, new := range o.replace {
		put(old, new)
	}
	r.envoy = testenv.StartEnvoy(t, testenv.EnvoyOptions{
		Config: config, Addr: r.addr,
		Args: []string{"--file-flush-interval-msec", "50"}, // of the access log
	})
	return r
}

// clearOfTheHour waits for the next hour if this one ends soon, for then the
// counters of most rules here begin anew.
func clearOfTheHour(t *testing.T) {
	t.Helper()
	const longest = 30 * time.Second // that a test takes
	now := time.Now()
	left := now.Truncate(time.Hour).Add(time.Hour).Sub(now)
	if left > longest {
		return
	}
	select {
	case <-time.After(left + time.Second):
	case <-t.Context().Done():
	}
}

// step is a request and what the client sees of its answer.
type step struct {
	remark string
	client string // its address; empty: alice's
	method string // empty: GET
	path   string
	header []string // name, value, …
	code   int
	want   map[string]string // response headers, as for response.want
}

// protocols that clients speak to Envoy.
var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// play sends the steps one after another.
func (r *recipe) play(t *testing.T, protocol string, steps []step) {
	t.Helper()
	for i, s := range steps {
		t.Run(fmt.Sprintf("%d %s", i+1, s.remark), func(t *testing.T) {
			r.send(t, protocol, s).want(t, s.code, s.want)
		})
	}
}

func (r *recipe) send(t *testing.T, protocol string, s step) response {
	t.Helper()
	if s.client == "" {
		s.client = alice
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.client)}}
	transport := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", r.addr)
		},
	}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2.0")
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), s.method, "http://upstream.test"+s.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(s.header); i += 2 {
		req.Header.Set(s.header[i], s.header[i+1])
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
	if resp.Proto != protocol {
		t.Fatalf("spoke %s, want %s", resp.Proto, protocol)
	}
	return response{what: fmt.Sprintf("%s %s as %s", s.method, s.path, s.client), code: resp.StatusCode, header: resp.Header, body: string(body)}
}

// eventually waits for what happens beside the requests.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

// Whoever copies a config finds rules beside it that Weir takes as they are.
func TestTheRulesOfTheConfigsHaveNoFaultsAndNoWarnings(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("rules")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, f := range files {
		out := weirRuns(t, "check", "rules/"+f.Name())
		if !bytes.Contains(out, []byte("no faults")) || bytes.Contains(out, []byte("warning")) {
			t.Errorf("weir check %s:\n%s", f.Name(), out)
		}
		if _, err := os.Stat(f.Name()); err != nil {
			t.Errorf("rules of no config: %v", err)
		}
	}
}

func writeRules(t *testing.T, text string) string {
	t.Helper()
	return testenv.WriteFile(t, "rules.yaml", text)
}

// The README tells what each config is for.
func TestTheREADMENamesEachConfigAndWhatItNamesIsThere(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	configs, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range configs {
		if !bytes.Contains(page, []byte(name)) {
			t.Errorf("README.md has no word on %s", name)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllSubmatch(page, -1) {
		if _, err := os.Stat(string(link[1])); err != nil {
			t.Errorf("README.md: %v", err)
		}
	}
}
