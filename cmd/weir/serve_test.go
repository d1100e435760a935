package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/internal/testenv"
)

// Limits are logs and buckets, which have no edge that a test could fall on.

func TestServeWithoutFlagsSaysWhatItServesAndALineToTry(t *testing.T) {
	w := testenv.StartWeir(t, testenv.WeirOptions{})
	eventually(t, "the announcement", func() bool { return strings.Contains(w.Output(), "try: ") })
	for _, want := range []string{"serves 6 rules in 1 domain from sample.yaml (embedded), counters in memory", "gRPC " + w.GRPCAddr, "HTTP " + w.HTTPAddr} {
		if !strings.Contains(w.Output(), want) {
			t.Errorf("it does not say %q:\n%s", want, w.Output())
		}
	}
	line := regexp.MustCompile(`(?m)^try: (.*)$`).FindStringSubmatch(w.Output())[1]
	words := strings.Fields(line)
	if words[0] != testenv.WeirBinary(t) || words[1] != "decide" {
		t.Fatalf("the line to try is %q", line)
	}
	r := weir(t, words[1:]...)
	r.want(t, exitDone, "OVER_LIMIT\n  endpoint=/api/posts user=alice: OVER_LIMIT, limit 2 a second", "Retry-After: 1")
	if n := strings.Count(r.stdout, "\nOK\n") + strings.Count(r.stdout[:3], "OK\n"); n != 2 {
		t.Errorf("%d passed, want 2:\n%s", n, r.stdout)
	}
}

func TestServeAnswersHTTP(t *testing.T) {
	s := serving(t)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ok\n", "/rules": `"sample.yaml (embedded)"`} {
		if code, body := s.get(t, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %q", path, code, body, want)
		}
	}
	body := `{"domain": "default", "descriptors": [{"entries": [{"key": "endpoint", "value": "/api/rewards"}, {"key": "device", "value": "d"}]}]}`
	var codes []int
	for range 6 {
		resp, err := http.Post("http://"+s.httpAddr+"/json", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	if got := fmt.Sprint(codes); got != "[200 200 200 200 200 429]" {
		t.Errorf("/json answered %s", got)
	}
}

// sourceStatus is what /rules says of one source.
func (s *running) sourceStatus(t *testing.T, path string) (version, lastError string) {
	t.Helper()
	code, body := s.get(t, "/rules")
	var status struct {
		Version string
		Sources map[string]struct {
			LastError string `json:"last_error"`
		}
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil || code != http.StatusOK {
		t.Fatalf("/rules: %d, %v: %s", code, err, body)
	}
	return status.Version, status.Sources[path].LastError
}

func TestRulesReloadWhileServing(t *testing.T) {
	path := rulesFile(t, `rules: [{endpoint: /a, limit: 1, window: 1h, algorithm: token_bucket, burst: 1}]`)
	s := serving(t, "--rules", path)
	if got := s.codes(t, 2, "default", "endpoint=/a"); got != "AD" {
		t.Fatalf("at first: %s, want AD", got)
	}
	replace(t, path, `rules: [{endpoint: /a, limit: 1, window: 1h, algorithm: token_bucket, burst: 3}]`)
	begin := time.Now()
	first, _ := s.sourceStatus(t, path)
	eventually(t, "the new limit", func() bool { now, _ := s.sourceStatus(t, path); return now != first })
	if took := time.Since(begin); took > 5*time.Second { // a second, when the machine is idle
		t.Errorf("live after %v", took)
	}
	if got := s.codes(t, 3, "default", "endpoint=/a"); got != "AAD" {
		t.Errorf("with two more: %s, want AAD, since one was used", got)
	}

	good, _ := s.sourceStatus(t, path)
	replace(t, path, fiveFaults)
	eventually(t, "the refusal", func() bool { _, why := s.sourceStatus(t, path); return why != "" })
	version, why := s.sourceStatus(t, path)
	if version != good || strings.Count(why, path) != 5 || !strings.Contains(why, `did you mean "limit"?`) {
		t.Errorf("/rules: version %s (was %s), error %s; want the one before and all five faults", version, good, why)
	}
	if got := s.codes(t, 1, "default", "endpoint=/a"); got != "D" {
		t.Errorf("after a bad change: %s, want the last good rules", got)
	}
	if code, _ := s.get(t, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz after a bad change: %d", code)
	}
	if log := s.stderr.String(); !strings.Contains(log, "rules refused, those before stay in force") {
		t.Errorf("the log does not tell of the refusal:\n%s", log)
	}
	replace(t, path, `rules: []`)
	eventually(t, "no rules", func() bool { _, why := s.sourceStatus(t, path); return why == "" })
	if got := s.codes(t, 1, "default", "endpoint=/a"); got != "A" {
		t.Errorf("without rules: %s", got)
	}
}

func TestBadRulesAtStartEndWithAllFaults(t *testing.T) {
	bad, worse := rulesFile(t, fiveFaults), rulesFile(t, "rules:\n  - {endpoint: /a}\n")
	good := rulesFile(t, "rules: [{endpoint: /a, limit: 1, window: 1s}]")
	empty := t.TempDir()
	missing := filepath.Join(empty, "missing.yaml")
	for _, x := range []struct {
		remark string
		rules  []string
		want   []string
	}{
		{"a file that is not there", []string{missing}, []string{missing + ": no such file"}},
		{"an empty folder", []string{empty}, []string{"no rule files"}},
		{"faults", []string{bad}, []string{bad + ":3:", bad + ":4:", bad + ":5:", bad + ":6:", bad + ":7:"}},
		{"faults in two sources", []string{bad, worse}, []string{bad + ":3:", bad + ":7:", worse + ":2:"}},
		{"faults, and nothing", []string{good, missing, worse}, []string{missing + ": no such file", worse + ":2:"}},
		{"the same rule twice", []string{good, rulesFile(t, "rules: [{endpoint: /a, limit: 2, window: 1s}]")}, []string{"has a rule already", good + ":1:"}},
	} {
		args := []string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}
		for _, path := range x.rules {
			args = append(args, "--rules", path)
		}
		r := weir(t, args...)
		said := r.stderr[max(0, strings.LastIndex(r.stderr, "weir: ")):] // past the log
		for _, want := range x.want {
			if r.code != exitFailed || !strings.Contains(said, want) {
				t.Errorf("%s: exit code %d, want 1 and %q in\n%s", x.remark, r.code, want, said)
			}
		}
		if strings.Contains(r.stdout, "serves") {
			t.Errorf("%s: it said that it serves", x.remark)
		}
	}
}

func TestSeveralSourcesServeTogether(t *testing.T) {
	s := serving(t,
		"--rules", rulesFile(t, "rules: [{endpoint: /a, limit: 0, window: 1s}]"),
		"--rules", rulesFile(t, "rules: [{endpoint: /b, limit: 0, window: 1s}]"))
	if got := s.codes(t, 1, "default", "endpoint=/a") + s.codes(t, 1, "default", "endpoint=/b") + s.codes(t, 1, "default", "endpoint=/c"); got != "DDA" {
		t.Errorf("got %s, want DDA", got)
	}
}

func TestAPortInUseIsAnError(t *testing.T) {
	for _, flag := range []string{"--grpc-addr", "--http-addr"} {
		addr := taken(t)
		args := []string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", flag, addr}
		weir(t, args...).want(t, exitFailed, flag, addr, "address already in use")
	}
}

func TestServeOnAUnixSocket(t *testing.T) {
	dir := t.TempDir()
	grpcSocket, httpSocket := filepath.Join(dir, "grpc.sock"), filepath.Join(dir, "http.sock")
	stale(t, grpcSocket)
	s := serving(t, "--grpc-addr", "unix:"+grpcSocket, "--http-addr", "unix:"+httpSocket)
	s.decide(t, "default", "endpoint=/api/posts", "user=alice").want(t, exitDone, "OK\n  endpoint=/api/posts")
	if !strings.Contains(s.stdout.String(), "--addr unix:"+grpcSocket) {
		t.Errorf("the line to try does not say where:\n%s", s.stdout)
	}
	overSocket := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", httpSocket)
	}}}
	resp, err := overSocket.Get("http://weir/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	overSocket.CloseIdleConnections()

	weir(t, "serve", "--grpc-addr", "unix:"+grpcSocket, "--http-addr", "127.0.0.1:0").want(t, exitFailed, "another process listens there")
	if code := s.stop(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	for _, path := range []string{grpcSocket, httpSocket} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", path, err)
		}
	}
	file := testenv.WriteFile(t, "file", "precious")
	weir(t, "serve", "--grpc-addr", "unix:"+file, "--http-addr", "127.0.0.1:0").want(t, exitFailed, "--grpc-addr")
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("a file that is no socket was touched: %q, %v", b, err)
	}
}

// stale leaves a socket behind that nobody listens on, as a killed process does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// A socket whose listener is too busy to be reached looks stale to a careless eye.
func TestABusySocketIsNotTaken(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a full queue refuses elsewhere, as if nobody listened")
	}
	path := filepath.Join(t.TempDir(), "busy.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 100 { // until its queue is full
		conn, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer conn.Close()
	}
	weir(t, "serve", "--grpc-addr", "unix:"+path, "--http-addr", "127.0.0.1:0").want(t, exitFailed, "address already in use")
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}

func TestSIGTERMDrainsAndExits0(t *testing.T) {
	path := rulesFile(t, `rules: [{endpoint: /slow, limit: 10, window: 20s, algorithm: leaky_bucket}]`)
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{path}, Args: []string{"--drain-delay", "300ms"}})
	ask := func() (*rls.RateLimitResponse, error) {
		return client(t, w.GRPCAddr).ShouldRateLimit(context.Background(), &rls.RateLimitRequest{Domain: "default",
			Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "endpoint", Value: "/slow"}}}}})
	}
	if _, err := ask(); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() { _, err := ask(); held <- err }() // for two seconds
	look := []string{"decide", "--addr", w.GRPCAddr, "--timeout", "50ms", "default", "endpoint=/slow"}
	eventually(t, "a request in the bucket", func() bool { return strings.Contains(weir(t, look...).stdout, "9 left") })
	if code := w.Stop(t); code != exitDone {
		t.Errorf("exit code %d, want 0", code)
	}
	if err := <-held; err != nil {
		t.Errorf("the request that was held ended with %v", err)
	}
	if !strings.Contains(w.Output(), "stopping") {
		t.Errorf("the log does not tell of the stop:\n%s", w.Output())
	}
	if strings.Contains(w.Output(), "level=ERROR") || strings.Contains(w.Output(), "weir:") {
		t.Errorf("a stop is no error:\n%s", w.Output())
	}
}

func TestAStopBeforeAllIsUpExits0(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // a race between serving and stopping
		var stdout, stderr output
		args := []string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--drain-delay", "0"}
		if code := run(ctx, args, &stdout, &stderr); code != exitDone {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
	}
}

// grpc would wait two minutes for its handshake.
func TestAConnectionThatSaysNothingDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	s := serving(t)
	conn, err := net.Dial("tcp", s.grpcAddr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if code := s.stop(); code != exitDone { // fails if it takes 30 s
		t.Errorf("exit code %d", code)
	}
}

func TestNotReadyWhileDraining(t *testing.T) {
	w := testenv.StartWeir(t, testenv.WeirOptions{Args: []string{"--drain-delay", "3s"}})
	s := &running{grpcAddr: w.GRPCAddr, httpAddr: w.HTTPAddr}
	// A moment after gRPC answers, which is what the test has waited for.
	eventually(t, "200", func() bool { code, _ := s.get(t, "/readyz"); return code == http.StatusOK })
	if err := w.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the drain", func() bool { return strings.Contains(w.Output(), "stopping") })
	eventually(t, "503", func() bool { code, _ := s.get(t, "/readyz"); return code == http.StatusServiceUnavailable })
	if code, _ := s.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while draining: %d", code)
	}
	if got := s.codes(t, 1, "default", "a=1"); got != "A" {
		t.Errorf("a call while draining: %s", got)
	}
	if code := w.ExitCode(t, 30*time.Second); code != exitDone {
		t.Errorf("exit code %d", code)
	}
}
