// Package compose_test runs what compose.yaml runs, without containers: its
// commands, its Envoy config and its rules, with real programs. Names of services
// become addresses of the loopback range.
package compose_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"weir/internal/testenv"
)

type service struct {
	Command   []string
	StopGrace string `yaml:"stop_grace_period"`
}

func services(t *testing.T) map[string]service {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Services map[string]service }
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.Services
}

// replaced puts other texts into a command; each must be there once.
func replaced(t *testing.T, command []string, replace map[string]string) []string {
	t.Helper()
	text := strings.Join(command, "\x00")
	for old, by := range replace {
		if strings.Count(text, old) != 1 {
			t.Fatalf("not one %s in %q", old, command)
		}
		text = strings.ReplaceAll(text, old, by)
	}
	return strings.Split(text, "\x00")
}

// stack is what `docker compose up` would bring.
type stack struct {
	url    string // Envoy's
	weirs  []*testenv.Process
	consul string
	all    map[string]service
}

func up(t *testing.T) *stack {
	t.Helper()
	all := services(t)
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	redisArgs := all["redis"].Command
	if redisArgs[0] != "redis-server" {
		t.Fatalf("redis runs %q", redisArgs)
	}
	redis := testenv.StartRedis(t, testenv.RedisOptions{Args: redisArgs[1:]})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	s := &stack{consul: consul.Addr, all: all}

	// Both listen on one port, as two containers behind one name do.
	port := testenv.FreePort(t)
	var endpoints []string
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		grpc := net.JoinHostPort(host, fmt.Sprint(port))
		args := replaced(t, all["weir"].Command, map[string]string{
			"0.0.0.0:8081": grpc, "0.0.0.0:8080": testenv.FreeAddr(t),
			"//consul:8500": "//" + consul.Addr, "//redis:6379": "//" + redis.Addr, "=/cache": "=" + t.TempDir(),
		})
		// Not up before the rules are there, which come last.
		s.weirs = append(s.weirs, testenv.Start(t, testenv.Program{
			Path: testenv.WeirBinary(t), Args: args,
			Env: []string{"WEIR_STORE_TIMEOUT=5s"}, // a busy machine; what times out is counted here and there
		}))
		endpoints = append(endpoints, grpc)
	}

	addr := testenv.FreeAddr(t)
	config, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(config)
	put := func(old, new string) {
		t.Helper()
		if strings.Count(text, old) != 1 {
			t.Fatalf("envoy.yaml has not one %q", old)
		}
		text = strings.Replace(text, old, new, 1)
	}
	endpoint := "- endpoint: {address: {socket_address: {address: %s, port_value: %s}}}"
	put("{address: 0.0.0.0, port_value: 10000}", at(t, addr))
	put(fmt.Sprintf(endpoint, "upstream", "9000"), "- endpoint: {address: {socket_address: "+at(t, upstream.Listener.Addr().String())+"}}")
	put(fmt.Sprintf(endpoint, "weir", "8081"), "- endpoint: {address: {socket_address: "+at(t, endpoints[0])+"}}\n"+
		"              - endpoint: {address: {socket_address: "+at(t, endpoints[1])+"}}")
	put("\n                      timeout: 0.1s\n", "\n                      timeout: 10s\n") // a busy machine
	put("\n      connect_timeout: 0.1s\n", "\n      connect_timeout: 5s\n")
	testenv.StartEnvoy(t, testenv.EnvoyOptions{Config: text, Addr: addr})
	s.url = "http://" + addr
	return s
}

// at is an address as Envoy's config has it.
func at(t *testing.T, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
}

// push runs the one-shot service, with another folder of rules if one is given.
func (s *stack) push(t *testing.T, rules string) string {
	t.Helper()
	args := replaced(t, s.all["push"].Command, map[string]string{"\x00/rules\x00": "\x00" + rules + "\x00", "//consul:8500": "//" + s.consul})
	out, err := exec.CommandContext(t.Context(), testenv.WeirBinary(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("weir %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (s *stack) get(t *testing.T, client, path string) int {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// refusedAfter is how many requests of a client pass until one is refused; most,
// if none is.
func (s *stack) refusedAfter(t *testing.T, client, path string, most int) int {
	t.Helper()
	for i := range most {
		switch code := s.get(t, client, fmt.Sprintf("%s?page=%d", path, i)); code {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return i
		default:
			t.Fatalf("request %d: status %d", i+1, code)
		}
	}
	return most
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 30 s: %s", what)
		}
	}
}

func TestTheStackLimitsByTheRulesThatArePushed(t *testing.T) {
	t.Parallel()
	s := up(t)
	if out := s.push(t, "rules"); !strings.Contains(out, "pushed version 1") {
		t.Errorf("the first push says %s", out)
	}
	// Envoy finds both instances when they have rules; until then it lets pass.
	eventually(t, "a request is refused", func() bool { return s.refusedAfter(t, "127.0.0.3", "/posts", 12) < 12 })

	// Five a minute, though two instances decide: they share the counter. The end of
	// a minute between the requests makes it ten.
	if n := s.refusedAfter(t, "127.0.0.4", "/posts", 30); n != 5 && n != 10 {
		t.Errorf("%d requests of a client passed, want 5", n)
	}
	if code := s.get(t, "127.0.0.4", "/about"); code != http.StatusOK {
		t.Errorf("another path: %d", code)
	}

	// `up` again pushes again: nothing has changed, and that is no error.
	s.push(t, "rules")
	s.push(t, changedRules(t, "limit: 5\n", "limit: 1000\n"))
	eventually(t, "a client that was refused passes by the new rules", func() bool { return s.get(t, "127.0.0.4", "/posts") == http.StatusOK })
}

func TestAStoppedInstanceIsLeftAloneAndLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := up(t)
	s.push(t, changedRules(t, "window: 60s\n", "window: 24h\n")) // none ends meanwhile
	eventually(t, "a request is refused", func() bool { return s.refusedAfter(t, "127.0.0.3", "/posts", 12) < 12 })
	// Docker kills after stop_grace_period, and Weir needs its delay and ten seconds.
	grace, err := time.ParseDuration(s.all["weir"].StopGrace)
	if err != nil || grace < 12*time.Second {
		t.Errorf("stop_grace_period %q: %v", s.all["weir"].StopGrace, err)
	}
	if err := s.weirs[0].Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; s.weirs[0].Runs() || n == 0; n++ {
		// An unanswered question would let it pass.
		if code := s.get(t, "127.0.0.3", "/posts"); code != http.StatusTooManyRequests {
			t.Errorf("request %d while an instance stops: %d", n+1, code)
		}
	}
	if code := s.weirs[0].ExitCode(t, time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := s.get(t, "127.0.0.3", "/posts"); code != http.StatusTooManyRequests {
		t.Errorf("after the end of an instance: %d", code)
	}
}

// changedRules are those of the folder rules, with another text in them.
func changedRules(t *testing.T, old, new string) string {
	t.Helper()
	text, err := os.ReadFile("rules/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), old, new, 1)
	if changed == string(text) {
		t.Fatalf("the rules have no %q", old)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "default.yaml"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
