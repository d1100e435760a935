package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"weir/internal/testenv"
)

func TestRegisteredInstancePassesAndLeaves(t *testing.T) {
	t.Parallel()
	files, err := testenv.MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	for _, row := range []struct {
		remark string
		r      Registration // its GRPCAddr is the host
		want   catalogEntry
	}{
		{"as it is", Registration{GRPCAddr: "127.0.0.1"},
			catalogEntry{Name: "weir", ID: "weir-127.0.0.1-PORT", Address: "127.0.0.1", Status: "passing", Meta: map[string]string{}}},
		{"with all that there is to tell",
			Registration{Service: "limits", ID: "one", GRPCAddr: "127.0.0.1", HTTPAddr: "127.0.0.1:8080", Version: "1.2.3", Tags: []string{"eu"}},
			catalogEntry{Name: "limits", ID: "one", Address: "127.0.0.1", Status: "passing", Tags: []string{"eu"},
				Meta: map[string]string{"http": "127.0.0.1:8080", "version": "1.2.3"}}},
		{"every address: the node's", Registration{Service: "any", ID: "two", GRPCAddr: "0.0.0.0", HTTPAddr: "[::]:8080"},
			catalogEntry{Name: "any", ID: "two", Status: "passing", Meta: map[string]string{"http": ":8080"}}},
		{"TLS, by a certificate that the agent does not know", Registration{Service: "tls", ID: "three", GRPCAddr: "127.0.0.1", TLS: true},
			catalogEntry{Name: "tls", ID: "three", Address: "127.0.0.1", Status: "passing", Meta: map[string]string{}}},
	} {
		t.Run(row.remark, func(t *testing.T) {
			server := startHealth(t, row.r.GRPCAddr, row.r.TLS, files)
			row.r.GRPCAddr = net.JoinHostPort(row.r.GRPCAddr, server.port)
			row.want.ID = strings.ReplaceAll(row.want.ID, "PORT", server.port)
			row.want.Port = server.port
			stop, log := startRegister(t, Options{Addr: c.Addr}, row.r)
			awaitEntry(t, c, row.want)

			server.SetServingStatus("ratelimit", healthpb.HealthCheckResponse_NOT_SERVING)
			row.want.Status = "critical"
			awaitEntry(t, c, row.want)

			stop()
			awaitGone(t, c, row.want.Name)
			if !strings.Contains(log.String(), "registered in Consul") || !strings.Contains(log.String(), "left Consul") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func TestAgentThatLostTheRegistrationGetsItAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := testenv.StartConsul(t, testenv.ConsulOptions{Dir: dir})
	server := startHealth(t, "127.0.0.1", false, nil)
	want := catalogEntry{Name: "weir", ID: "one", Address: "127.0.0.1", Port: server.port, Status: "passing", Meta: map[string]string{}}
	stop, log := startRegister(t, Options{Addr: c.Addr}, Registration{ID: "one", GRPCAddr: "127.0.0.1:" + server.port})
	awaitEntry(t, c, want)

	c.Kill()
	soon(t, "it is told that the agent is away", func() bool { return log.count("trying again") == 1 })
	c = testenv.StartConsul(t, testenv.ConsulOptions{Dir: dir, Addr: c.Addr})
	soon(t, "it is told that the agent is back", func() bool { return log.count("has kept the registration") == 1 })
	awaitEntry(t, c, want)

	c.Kill()
	c = testenv.StartConsul(t, testenv.ConsulOptions{Addr: c.Addr}) // with no data
	begin := time.Now()
	awaitEntry(t, c, want)
	t.Logf("registered again after %v", time.Since(begin).Round(time.Millisecond))

	// By hand, while the agent is there.
	req, err := http.NewRequest(http.MethodPut, c.URL("/v1/agent/service/deregister/one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	soon(t, "it is told that it was lost", func() bool { return log.count("has lost") > 0 })
	awaitEntry(t, c, want)

	stop()
	awaitGone(t, c, "weir")
}

func TestAgentThatIsAwayHoldsUpNothing(t *testing.T) {
	t.Parallel()
	server := startHealth(t, "127.0.0.1", false, nil)
	addr := testenv.FreeAddr(t)
	r := Registration{ID: "one", GRPCAddr: "127.0.0.1:" + server.port}
	stop, log := startRegister(t, Options{Addr: addr}, r)
	soon(t, "it is told that the agent is away", func() bool { return log.count("trying again") == 1 })
	if !strings.Contains(log.String(), addr) {
		t.Errorf("the log does not name %s: %s", addr, log)
	}
	stop()

	c := testenv.StartConsul(t, testenv.ConsulOptions{Addr: addr})
	for _, gone := range []struct {
		how  string
		halt func() error
	}{
		{"hangs", func() error { return c.Signal(syscall.SIGSTOP) }},
		{"is killed", func() error { c.Kill(); return nil }},
	} {
		stop, log = startRegister(t, Options{Addr: addr}, r)
		soon(t, "it is registered", func() bool { return log.count("registered in Consul") == 1 })
		if err := gone.halt(); err != nil {
			t.Fatal(err)
		}
		stop()
		if log.count("not left Consul") != 1 {
			t.Errorf("an agent that %s: log %s", gone.how, log)
		}
		_ = c.Signal(syscall.SIGCONT)
	}
}

func TestTokenWithoutRightsIsToldWhichIsMissing(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	server := startHealth(t, "127.0.0.1", false, nil)
	r := Registration{ID: "one", GRPCAddr: "127.0.0.1:" + server.port}
	weak := c.ACLToken(t, `service "weir" { policy = "read" }`)
	enough := c.ACLToken(t, `service "weir" { policy = "write" }`)
	file := testenv.WriteFile(t, "token", "00000000-0000-4000-8000-00000000dead")
	stop, log := startRegister(t, Options{Addr: c.Addr, TokenFile: file}, r)
	soon(t, "the unknown token is told", func() bool { return log.count("trying again") == 1 })
	if got := log.field("error"); !strings.Contains(got, "a token that this Consul knows is needed") || strings.Contains(got, "dead") {
		t.Errorf("the log says %q", got)
	}
	stop()

	putFile(t, file, weak)
	_, log = startRegister(t, Options{Addr: c.Addr, TokenFile: file}, r)
	soon(t, "the missing right is told", func() bool { return log.count("trying again") == 1 })
	if got := log.field("error"); !strings.Contains(got, `service "weir" { policy = "write" } is needed`) || strings.Contains(got, weak) {
		t.Errorf("the log says %q", got)
	}
	for _, remark := range []string{"a second try", "a third"} {
		before := c.Output()
		soon(t, remark, func() bool { return c.Output() != before }) // Consul tells of each that it refuses
	}
	putFile(t, file, enough)
	want := catalogEntry{Name: "weir", ID: "one", Address: "127.0.0.1", Port: server.port, Status: "passing", Meta: map[string]string{}}
	awaitEntry(t, c, want)
	if log.count("trying again") != 1 {
		t.Errorf("one failure is told more than once: %s", log)
	}
}

func putFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRegistrationThatCannotWorkIsAnError(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ grpc, http, want string }{
		{"unix:/run/weir.sock", "", "serve a TCP address"},
		{"/run/weir.sock", "", "serve a TCP address"},
		{"127.0.0.1", "", "missing port"},
		{"", "", "missing port"},
		{"127.0.0.1:0", "", "from 1 to 65535"},
		{"127.0.0.1:65536", "", "from 1 to 65535"},
		{"127.0.0.1:grpc", "", "from 1 to 65535"},
		{"127.0.0.1:1", "8080", "HTTP address"},
	} {
		err := Register(t.Context(), Options{}, Registration{GRPCAddr: row.grpc, HTTPAddr: row.http})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q, %q: error %v, want one with %q", row.grpc, row.http, err, row.want)
		}
	}
}

func TestCheckReachesInstancesThatListenEverywhere(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ target, agent, network, want string }{
		{"10.0.0.1:81", "127.0.0.1:8500", "udp", "10.0.0.1:81"},
		{":81", "127.0.0.1:8500", "udp", "127.0.0.1:81"},
		{":81", "http://127.0.0.1:8500", "udp", "127.0.0.1:81"},
		{":81", "https://127.0.0.1:8500/consul", "udp", "127.0.0.1:81"},
		{":81", "http://127.0.0.1", "udp", "127.0.0.1:81"},
		{":81", "localhost:8500", "udp4", "127.0.0.1:81"},
		{":81", "unix:///run/consul.sock", "udp", "127.0.0.1:81"},
	} {
		if got, err := checkTarget(t.Context(), row.target, row.agent, row.network); err != nil || got != row.want {
			t.Errorf("%s by the agent at %s: checked at %s (%v), want %s", row.target, row.agent, got, err, row.want)
		}
	}
	// To an agent elsewhere it is an address that others can reach.
	if got, err := checkTarget(t.Context(), ":81", "192.0.2.1:8500", "udp4"); err == nil && strings.HasPrefix(got, "127.") {
		t.Errorf("an agent elsewhere checks at %s", got)
	}
}

// healthServer is an instance, as far as its health goes.
type healthServer struct {
	*health.Server
	port string
}

func startHealth(t *testing.T, host string, secure bool, files *testenv.TLSFiles) healthServer {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, testenv.FreePort(t)))
	if err != nil {
		t.Fatal(err)
	}
	var opts []grpc.ServerOption
	if secure {
		creds, err := credentials.NewServerTLSFromFile(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		opts = append(opts, grpc.Creds(creds))
	}
	server := grpc.NewServer(opts...)
	h := health.NewServer()
	h.SetServingStatus("ratelimit", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, h)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return healthServer{h, port}
}

// startRegister registers until stop is called, which waits for the end.
func startRegister(t *testing.T, options Options, r Registration) (stop func(), log *logBook) {
	t.Helper()
	log = &logBook{}
	options.Logger = slog.New(slog.NewJSONHandler(log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Register(ctx, options, r) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("still registers 20 s after its context is done")
		}
	})
	t.Cleanup(stop)
	return stop, log
}

// logBook is a log as JSON, a line each.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBook) count(text string) int { return strings.Count(l.String(), text) }

// field is the last line's that has it.
func (l *logBook) field(name string) string {
	var value string
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields[name] != nil {
			value = fmt.Sprint(fields[name])
		}
	}
	return value
}

// soon waits for what another goroutine or process will do.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// catalogEntry is what the catalog says of an instance.
type catalogEntry struct {
	Name, ID, Address, Port, Status string
	Tags                            []string
	Meta                            map[string]string
}

// entries reads the catalog, not the agent: what others see.
func entries(c *testenv.Consul, service string) ([]catalogEntry, error) {
	req, err := http.NewRequest(http.MethodGet, c.URL("/v1/health/service/"+url.PathEscape(service)), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Consul-Token", c.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer []struct {
		Service struct {
			Service, ID, Address string
			Port                 int
			Tags                 []string
			Meta                 map[string]string
		}
		Checks []struct{ ServiceID, Status string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	var got []catalogEntry
	for _, a := range answer {
		e := catalogEntry{a.Service.Service, a.Service.ID, a.Service.Address, fmt.Sprint(a.Service.Port), "", a.Service.Tags, a.Service.Meta}
		for _, check := range a.Checks {
			if check.ServiceID != "" { // not the node's
				e.Status += check.Status
			}
		}
		got = append(got, e)
	}
	return got, nil
}

func awaitEntry(t *testing.T, c *testenv.Consul, want catalogEntry) {
	t.Helper()
	wantText := fmt.Sprintf("[%+v]", want)
	soon(t, "in the catalog, "+wantText, func() bool {
		got, err := entries(c, want.Name)
		return err == nil && fmt.Sprintf("%+v", got) == wantText
	})
}

// awaitGone: an agent passes on to the catalog what it has done.
func awaitGone(t *testing.T, c *testenv.Consul, service string) {
	t.Helper()
	soon(t, service+" leaves the catalog", func() bool {
		got, err := entries(c, service)
		return err == nil && len(got) == 0
	})
}
