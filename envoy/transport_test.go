package envoy_test

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// mesh is an authority and the folder of its certificates, as mtls.yaml wants it.
type mesh struct {
	dir       string
	authority *testenv.Authority
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{dir: t.TempDir(), authority: testenv.NewAuthority(t)}
	m.issue(t)
	return m
}

var (
	weirLeaf  = testenv.Leaf{Name: "weir", SANs: []string{"weir.example.org"}}
	envoyLeaf = testenv.Leaf{Name: "envoy", SANs: []string{"spiffe://example.org/envoy"}}
)

// issue replaces both certificates, and leaves ca.pem as it was written last.
func (m *mesh) issue(t *testing.T) {
	t.Helper()
	staged := t.TempDir()
	m.authority.MustIssue(t, staged, weirLeaf)
	m.authority.MustIssue(t, staged, envoyLeaf)
	if _, err := os.Stat(filepath.Join(m.dir, "ca.pem")); err != nil {
		m.trust(t, m.authority)
	}
	for _, name := range []string{"weir.pem", "weir-key.pem", "envoy.pem", "envoy-key.pem"} {
		text, err := os.ReadFile(filepath.Join(staged, name))
		if err != nil {
			t.Fatal(err)
		}
		m.put(t, name, text)
	}
}

// trust writes ca.pem.
func (m *mesh) trust(t *testing.T, authorities ...*testenv.Authority) {
	t.Helper()
	var text bytes.Buffer
	for _, a := range authorities {
		text.Write(a.PEM)
	}
	m.put(t, "ca.pem", text.Bytes())
}

func (m *mesh) put(t *testing.T, name string, text []byte) {
	t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// config is what replaces in mtls.yaml.
func (m *mesh) config(t *testing.T, weir string) []string {
	t.Helper()
	var replace []string
	for _, name := range []string{"client", "weir-ca"} {
		text, err := os.ReadFile("sds/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		secret := strings.ReplaceAll(string(text), "path: certs", "path: "+m.dir)
		secret = strings.ReplaceAll(secret, "certs/", m.dir+"/")
		replace = append(replace, "envoy/sds/"+name+".yaml", testenv.WriteFile(t, name+".yaml", secret))
	}
	return append(replace, "port_value: 8081}", "port_value: "+port(t, weir)+"}", "connect_timeout: 0.25s", "connect_timeout: 5s")
}

// weir is the command line in mtls.yaml.
func (m *mesh) weir(t *testing.T, args ...string) *testenv.Weir {
	t.Helper()
	file := func(name string) string { return filepath.Join(m.dir, name) }
	return testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{"rules/mtls.yaml"}, Args: append(args,
		"--tls-cert", file("weir.pem"), "--tls-key", file("weir-key.pem"), "--tls-client-ca", file("ca.pem"),
		"--tls-client-san", "spiffe://example.org/envoy")})
}

// serial is that of the certificate that Weir shows, to one of a name, whoever
// signed it.
func (m *mesh) serial(t *testing.T, addr string) string {
	t.Helper()
	own, err := tls.LoadX509KeyPair(filepath.Join(m.dir, "envoy.pem"), filepath.Join(m.dir, "envoy-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{own}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

// Every certificate of both sides is replaced, at last by those of another
// authority, while requests come. Connections are made anew all the time.
func TestCertificatesAreReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	weir := m.weir(t, "--max-connection-age", "300ms")
	l := startLoaded(t, "mtls.yaml", m.config(t, weir.GRPCAddr)...)
	l.ready(t)
	l.send(t, "/")
	first := m.authority
	second := testenv.NewAuthority(t)
	for _, s := range []struct {
		remark string
		do     func()
		other  bool // certificate of Weir's
	}{
		{"renewed", func() { m.issue(t) }, true},
		{"a second authority is trusted too", func() { m.trust(t, first, second) }, false},
		{"it signs the certificates", func() { m.authority = second; m.issue(t) }, true},
		{"the first one is trusted no more", func() { m.trust(t, second) }, false},
	} {
		before := m.serial(t, weir.GRPCAddr)
		loads := strings.Count(weir.Output(), "certificates loaded")
		begin := time.Now()
		s.do()
		eventually(t, s.remark, func() bool { return strings.Count(weir.Output(), "certificates loaded") > loads })
		t.Logf("%s: after %v", s.remark, time.Since(begin).Round(time.Millisecond))
		if took := time.Since(begin); took > 10*time.Second { // one or two, when the machine is idle
			t.Errorf("%s: after %v", s.remark, took)
		}
		if other := m.serial(t, weir.GRPCAddr) != before; other != s.other {
			t.Errorf("%s: another certificate is shown: %v", s.remark, other)
		}
		l.pass(t, time.Second) // for connections with what is new
	}
	l.allDecided(t)
	if n := l.stat(t, "cluster.weir.upstream_cx_total"); n < 8 {
		t.Errorf("%d connections: too few to tell", n)
	}
	if strings.Contains(weir.Output(), "level=ERROR") {
		t.Errorf("Weir logged:\n%s", weir.Output())
	}
}

// Health checks speak the cluster's TLS, and must offer h2 as requests do.
func TestHealthChecksWorkOverTLS(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	weir := m.weir(t)
	config := append(m.config(t, weir.GRPCAddr), "      load_assignment:\n        cluster_name: weir\n", `      health_checks:
        - {timeout: 5s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {service_name: ratelimit}}
      load_assignment:
        cluster_name: weir
`)
	l := startLoaded(t, "mtls.yaml", config...)
	l.ready(t)
	eventually(t, "Envoy finds Weir healthy", func() bool { return l.stat(t, "cluster.weir.membership_healthy") == 1 })
	if n := l.stat(t, "cluster.weir.health_check.success"); n == 0 {
		t.Error("no health check was answered")
	}
}

func TestEnvoyWithoutTheRightCertificateIsNotAnswered(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	weir := m.weir(t, "--tls-client-san", "spiffe://example.org/other", "--log-level", "debug")
	l := startLoaded(t, "mtls.yaml", m.config(t, weir.GRPCAddr)...)
	l.ready(t)
	strange := newMesh(t)
	strange.trust(t, m.authority)
	l = startLoaded(t, "mtls.yaml", strange.config(t, weir.GRPCAddr)...)
	l.send(t, "/")
	eventually(t, "a refusal", func() bool { return strings.Contains(weir.Output(), "TLS handshake failed") })
	if n := l.end(t)["200 without a decision"]; n != l.sent() {
		t.Errorf("%d of %d without a decision", n, l.sent())
	}
	if out := weir.Output(); strings.Contains(out, "level=WARN") || strings.Contains(out, "level=ERROR") {
		t.Errorf("Weir logged:\n%s", out)
	}
}

func TestUnixSocketUnderLoad(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir-") // short: a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "weir.sock")
	testenv.Start(t, testenv.Program{
		Path: testenv.WeirBinary(t), Addr: socket,
		Args: []string{"serve", "--rules", "rules/unix-socket.yaml", "--grpc-addr", "unix:" + socket, "--http-addr", testenv.FreeAddr(t)},
	})
	l := startLoaded(t, "unix-socket.yaml", "/tmp/weir.sock", socket)
	l.ready(t)
	l.send(t, "/")
	l.allDecided(t)
}

// Envoy pings once a second. More often than every half second it would be sent
// away (GOAWAY too_many_pings), and with grpc's own defaults within four seconds.
func TestPingsOfEnvoyDoNotEndConnections(t *testing.T) {
	t.Parallel()
	weir := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{"rules/grpc.yaml", "rules/unix-socket.yaml"}})
	l := startLoaded(t, "unix-socket.yaml", "pipe: {path: /tmp/weir.sock}", "socket_address: {address: 127.0.0.1, port_value: "+port(t, weir.GRPCAddr)+"}",
		"connection_keepalive: {interval: 30s, timeout: 5s}", "connection_keepalive: {interval: 1s, timeout: 10s}")
	l.ready(t)
	l.pass(t, max(8*time.Second, *loadTime)) // idle
	l.send(t, "/")
	l.allDecided(t)
	l.pass(t, 3*time.Second)
	for _, name := range []string{"upstream_cx_close_notify", "upstream_cx_destroy_remote", "http2.keepalive_timeout"} {
		if n := l.stat(t, "cluster.weir."+name); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	// Two workers, and what was connected first.
	if n := l.stat(t, "cluster.weir.upstream_cx_total"); n < 1 || n > 4 {
		t.Errorf("%d connections", n)
	}
}
