package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

const adminToken = "0123456789abcdef"

const twoRules = `
rules:
  - {name: login, match: {user: "*"}, limit: 1, window: 1h}
  - {name: posts, match: {endpoint: "*"}, limit: 1, window: 1h}
`

func TestResetAndTopFromTheCommandLine(t *testing.T) {
	s := serving(t, "--rules", rulesFile(t, twoRules))
	weirAt := func(args ...string) result { return weir(t, append(args, "--addr", s.grpcAddr)...) }
	if got := s.codes(t, 4, "default", "user=ann"); got != "ADDD" {
		t.Fatalf("before: %s", got)
	}
	s.codes(t, 2, "default", "user=bob")
	weirAt("top", "-n", "1").want(t, 0, "3 ", "default", "login", "user=ann")
	if r := weirAt("top", "-n", "1"); strings.Contains(r.stdout, "bob") {
		t.Errorf("-n 1 lists two: %s", r.stdout)
	}
	weirAt("top", "--domain", "other").want(t, 0, "AT LEAST")
	weirAt("reset", "default", "user=ann").want(t, 0, "login begins anew for this descriptor (1 counter held something)")
	if got := s.codes(t, 2, "default", "user=ann") + s.codes(t, 1, "default", "user=bob"); got != "ADD" {
		t.Errorf("after a reset of one: %s", got)
	}
	weirAt("reset", "default", "--rule", "login").want(t, 0, "all counters of login begin anew")
	if got := s.codes(t, 1, "default", "user=ann") + s.codes(t, 1, "default", "user=bob"); got != "AA" {
		t.Errorf("after a reset of all: %s", got)
	}
	weirAt("reset", "default", "z=1").want(t, 1, "no rule matches")
	weirAt("reset", "default", "--rule", "none").want(t, 1, "no rule of domain")
	for _, args := range [][]string{
		{"reset"}, {"reset", "default"}, {"reset", "default", "user=ann", "--rule", "login"}, {"reset", "default", "user"}, {"reset", "default", "a=1", ",", "b=1"},
		{"top", "default"}, {"top", "--interval", "1ms"}, {"top", "--timeout", "0s"},
	} {
		weir(t, args...).want(t, 2)
	}
	weirAt("decide", "default", "user=eve", "--details").want(t, 0, "OK", "passes, 1 per 1h0m0s fixed_window, 0 left, full again in", "(login)", "X-Ratelimit-Remaining: 0")
	weirAt("decide", "default", "user=eve", "--details").want(t, 0, "OVER_LIMIT", "refuses", "retry after")
	weirAt("decide", "default", "z=1", "--details").want(t, 0, "no limit was checked")
}

// A refusal that comes of the store's absence is told from one that no wait helps.
func TestARefusalWithoutTheStoreSaysSo(t *testing.T) {
	s := serving(t, "--rules", rulesFile(t, twoRules), "--store", "redis://127.0.0.1:1", "--on-store-failure", "deny")
	r := weir(t, "decide", "default", "user=eve", "--details", "--addr", s.grpcAddr)
	r.want(t, 0, "OVER_LIMIT", "refuses", "without the store (on_store_failure: deny)")
	if strings.Contains(r.stdout, "waiting cannot help") {
		t.Errorf("it will help to wait for the store: %s", r.stdout)
	}
	if log := s.stderr.String(); !strings.Contains(log, "outcome=failed_closed") || strings.Contains(log, "retry_after") {
		t.Errorf("the log says:\n%s", log)
	}
}

// What one instance resets begins anew on the other too, and for those that start
// later; and reloads, and a Redis that is away for a while, do not take it back.
func TestAResetHoldsOnAllInstancesOnARedis(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	file := rulesFile(t, twoRules)
	flags := []string{"--rules", file, "--store", "redis://" + redis.Addr, "--store-timeout", "2s", "--deny-cache", "0"}
	a, b := serving(t, flags...), serving(t, flags...)
	for _, s := range []*running{a, b} {
		s.codes(t, 1, "default", "user=ann")
		s.codes(t, 1, "default", "endpoint=/x")
		if got := s.codes(t, 1, "default", "user=ann") + s.codes(t, 1, "default", "endpoint=/x"); got != "DD" {
			t.Fatalf("before: %s", got)
		}
	}
	began := time.Now()
	weir(t, "reset", "default", "--rule", "login", "--addr", a.grpcAddr).want(t, 0)
	if got := a.codes(t, 2, "default", "user=ann"); got != "AD" {
		t.Errorf("where it was reset: %s", got)
	}
	eventually(t, "the other follows", func() bool { return b.codes(t, 1, "default", "user=carl") == "A" })
	// Ann's new counter was used up on a; b is on the same one once a look at it says so.
	key := func(s *running) string {
		r := weir(t, "explain", "default", "user=ann", "--addr", s.grpcAddr)
		_, counter, _ := strings.Cut(r.stdout, "counter ")
		counter, _, _ = strings.Cut(counter, "\n")
		return counter
	}
	want := key(a)
	eventually(t, "both are on one counter", func() bool { return key(b) == want })
	if took := time.Since(began); took > 10*time.Second || resetsInterval > time.Second { // two seconds are promised; the machine is shared
		t.Errorf("the other followed after %v, and looks every %v", took, resetsInterval)
	} else {
		t.Logf("the other followed after %v", took)
	}
	if got := b.codes(t, 1, "default", "user=ann") + b.codes(t, 1, "default", "endpoint=/x"); got != "DD" {
		t.Errorf("on the other: %s; the new counter is shared, and the other rule is as it was", got)
	}
	c := serving(t, flags...)
	if got := key(c); got != want {
		t.Errorf("one that starts later counts in %s, not %s", got, want)
	}
	replace(t, file, twoRules+"# changed\n")
	eventually(t, "a reload", func() bool { return strings.Count(a.stderr.String(), "rules loaded") > 1 })
	if got := key(a); got != want {
		t.Errorf("a reload takes the reset back: %s, not %s", got, want)
	}
	weir(t, "reset", "default", "user=ann", "--addr", b.grpcAddr).want(t, 0, "1 counter held")
	if got := a.codes(t, 1, "default", "user=ann"); got != "A" {
		t.Errorf("after a reset of one: %s", got)
	}
}

func TestTheTokenOfOperators(t *testing.T) {
	file := testenv.WriteFile(t, "token", adminToken+"\n")
	s := serving(t, "--rules", rulesFile(t, twoRules), "--admin-token-file", file)
	top := func(args ...string) result { return weir(t, append([]string{"top", "--addr", s.grpcAddr}, args...)...) }
	top().want(t, 1, "Unauthenticated", "WEIR_ADMIN_TOKEN")
	top("--token", adminToken+"x").want(t, 1, "Unauthenticated")
	top("--token", adminToken).want(t, 0, "AT LEAST")
	top("--token-file", file).want(t, 0, "AT LEAST")
	top("--token", adminToken, "--token-file", file).want(t, 2, "exclude each other")
	top("--token-file", file+"x").want(t, 2, "no such file")
	t.Setenv("WEIR_ADMIN_TOKEN", adminToken)
	top().want(t, 0, "AT LEAST")
	weir(t, "reset", "default", "--rule", "login", "--addr", s.grpcAddr).want(t, 0)
	// Nothing is sent: the address is not asked.
	weir(t, "top", "--addr", "192.0.2.1:1", "--timeout", "1s").want(t, 2, "in plain text")
	weir(t, "top", "--addr", "localhost.example:1", "--timeout", "1s").want(t, 2, "in plain text")
	for _, x := range []struct{ path, token string }{{"/v1/stats", adminToken}, {"/debug/pprof/cmdline", adminToken}} {
		if code, _ := s.get(t, x.path); code != http.StatusUnauthorized {
			t.Errorf("%s without the token: %d", x.path, code)
		}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.httpAddr+x.path, nil)
		req.Header.Set("Authorization", "Bearer "+x.token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s with the token: %d", x.path, resp.StatusCode)
		}
	}
	if strings.Contains(s.stdout.String()+s.stderr.String(), adminToken) {
		t.Error("the token is printed or logged")
	}
}

func TestATokenThatCannotBe(t *testing.T) {
	empty := testenv.WriteFile(t, "empty", "\n")
	for _, args := range [][]string{
		{"--admin-token", ""}, {"--admin-token-file", ""}, {"--admin-token", "short"}, {"--admin-token", adminToken + " x"},
		{"--admin-token-file", empty}, {"--admin-token-file", empty + "x"}, {"--admin-token", adminToken, "--admin-token-file", empty},
	} {
		weir(t, append([]string{"serve"}, args...)...).want(t, 2, "admin-token")
	}
}

// A client's certificate that the server checked stands for the token.
func TestACertificateIsEnoughForAnOperator(t *testing.T) {
	files, err := testenv.MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := serving(t, "--rules", rulesFile(t, twoRules), "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-client-ca", files.CA, "--admin-token", adminToken)
	weir(t, "top", "--addr", s.grpcAddr, "--tls-ca", files.CA, "--tls-cert", files.Cert, "--tls-key", files.Key).want(t, 0, "AT LEAST")
	one := serving(t, "--rules", rulesFile(t, twoRules), "--tls-cert", files.Cert, "--tls-key", files.Key, "--admin-token", adminToken)
	weir(t, "top", "--addr", one.grpcAddr, "--tls-ca", files.CA, "--tls-cert", files.Cert, "--tls-key", files.Key).want(t, 1, "Unauthenticated")
	weir(t, "top", "--addr", one.grpcAddr, "--tls-ca", files.CA, "--token", adminToken).want(t, 0, "AT LEAST")
}

// Over HTTP by a unix socket too, and a stop does not wait for who watches.
func TestAStopEndsWatches(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "http.sock")
	s := serving(t, "--http-addr", "unix:"+socket)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /v1/stats:watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lines := bufio.NewScanner(conn)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), `{"result":`) {
	}
	if lines.Err() != nil || lines.Text() == "" {
		t.Fatalf("got %q, %v", lines.Text(), lines.Err())
	}
	began := time.Now()
	if code := s.stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if took := time.Since(began); took > drainLimit-time.Second {
		t.Errorf("a stop took %v", took)
	}
	_ = os.Remove(socket)
}

func TestTheAPITellsOfRulesStoreAndFaults(t *testing.T) {
	file := rulesFile(t, twoRules)
	s := serving(t, "--rules", file)
	s.codes(t, 1, "default", "user=ann")
	_, body := s.get(t, "/v1/stats")
	for _, want := range []string{`"store":{"name":"memory","healthy":true,"counters":"1","maxCounters":"1000000"}`, `"rules":2`, `"version":"` + versionText(), `"documents":1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	replace(t, file, "rules: [{match: {a: }, limitt: 1}]\n")
	eventually(t, "the fault is told", func() bool {
		_, body := s.get(t, "/v1/rules")
		return strings.Contains(body, "limitt") && strings.Contains(body, `"total":"2"`)
	})
}
