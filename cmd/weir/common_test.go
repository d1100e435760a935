package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"weir/internal/testenv"
)

// TestMain keeps the environment of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// result is what a run of the program leaves behind.
type result struct {
	code           int
	stdout, stderr string
}

func weir(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// want checks the exit code, and that all of the texts are in one of the outputs.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("no %q in the output", text)
		}
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
}

// running is `weir serve` within the test's process.
type running struct {
	grpcAddr, httpAddr string
	stdout, stderr     *output
	stop               func() int // ends it, and returns the exit code
}

// serving runs `weir serve` with flags, on ports of its own, until the test ends.
func serving(t *testing.T, flags ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &running{stdout: new(output), stderr: new(output)}
	args := append([]string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--drain-delay", "0"}, flags...)
	done := make(chan struct{})
	code := -1
	go func() { defer close(done); code = run(ctx, args, s.stdout, s.stderr) }()
	s.stop = func() int {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatal("serve does not stop")
		}
		return code
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("serve printed\n%s%s", s.stdout, s.stderr)
		}
	})
	eventually(t, "serving", func() bool {
		select {
		case <-done:
			t.Fatalf("serve ended with %d:\n%s%s", code, s.stdout, s.stderr)
		default:
		}
		return strings.Contains(s.stdout.String(), "  HTTP ")
	})
	addrs := regexp.MustCompile(`(?m)^  (?:gRPC|HTTP) (\S+)`).FindAllStringSubmatch(s.stdout.String(), -1)
	s.grpcAddr, s.httpAddr = addrs[0][1], addrs[1][1]
	return s
}

// decide asks the server once, by the command.
func (s *running) decide(t *testing.T, args ...string) result {
	t.Helper()
	return weir(t, append([]string{"decide", "--addr", s.grpcAddr}, args...)...)
}

// codes asks so often, and returns the verdicts as letters: A allowed, D denied.
func (s *running) codes(t *testing.T, times int, args ...string) string {
	t.Helper()
	r := s.decide(t, append(args, "--times", fmt.Sprint(times))...)
	if r.code != 0 {
		t.Fatalf("decide: %d %s", r.code, r.stderr)
	}
	var codes strings.Builder
	for line := range strings.Lines(r.stdout) {
		switch line {
		case "OK\n":
			codes.WriteByte('A')
		case "OVER_LIMIT\n":
			codes.WriteByte('D')
		}
	}
	return codes.String()
}

// get asks over HTTP.
func (s *running) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + s.httpAddr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// client is a client of a server anywhere.
func client(t *testing.T, addr string) rls.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// eventually waits for what another goroutine or process will do.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// rulesFile writes a rule file for a test.
func rulesFile(t *testing.T, text string) string {
	t.Helper()
	return testenv.WriteFile(t, "rules.yaml", text)
}

// replace puts other text in a file, whole at once.
func replace(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), ".next")
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// taken is an address that somebody listens on.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// output is written while it is read.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
