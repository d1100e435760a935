package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// certificates are a server's, a client's, and the flags of the server for mTLS.
type certificates struct {
	server, client *testenv.TLSFiles
	mutual         []string
	ask            []string // the flags of a client
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	servers, clients := testenv.NewAuthority(t), testenv.NewAuthority(t)
	c := &certificates{
		server: servers.MustIssue(t, t.TempDir(), testenv.Leaf{}),
		client: clients.MustIssue(t, t.TempDir(), testenv.Leaf{SANs: []string{"spiffe://mesh.test/envoy"}}),
	}
	c.mutual = []string{"--tls-cert", c.server.Cert, "--tls-key", c.server.Key, "--tls-client-ca", c.client.CA, "--tls-client-san", "spiffe://mesh.test/envoy"}
	c.ask = []string{"--tls-ca", c.server.CA, "--tls-cert", c.client.Cert, "--tls-key", c.client.Key}
	return c
}

func TestServeAndDecideSpeakTLS(t *testing.T) {
	c := newCertificates(t)
	s := serving(t, c.mutual...)
	ask := func(addr string, flags ...string) result {
		return weir(t, append([]string{"decide", "--addr", addr, "default", "endpoint=/free"}, flags...)...)
	}
	for _, x := range []struct {
		remark string
		flags  []string
		code   int
		want   string
	}{
		{"with everything", c.ask, exitDone, "OK\n"},
		{"by another name of the certificate", append([]string{"--tls-server-name", "localhost"}, c.ask...), exitDone, "OK\n"},
		{"by a name that it has not", append([]string{"--tls-server-name", "elsewhere"}, c.ask...), exitFailed, "say by --tls-server-name which name"},
		{"in plain text", nil, exitFailed, "try --tls"},
		{"without its authority", []string{"--tls"}, exitFailed, "name the authority of the server's certificate by --tls-ca"},
		{"without a certificate", c.ask[:2], exitFailed, "give --tls-cert and --tls-key"},
		{"with the server's own certificate", []string{"--tls-ca", c.server.CA, "--tls-cert", c.server.Cert, "--tls-key", c.server.Key}, exitFailed, "give --tls-cert and --tls-key"},
		{"a certificate without a key", c.ask[:4], exitWrongUse, "go together"},
		{"an authority that is not there", []string{"--tls-ca", "/nowhere"}, exitFailed, "--tls-ca: open /nowhere"},
		{"a key that is none", []string{"--tls-ca", c.server.CA, "--tls-cert", c.client.Cert, "--tls-key", c.client.Cert}, exitFailed, "--tls-key " + c.client.Cert},
	} {
		t.Run(x.remark, func(t *testing.T) { ask(s.grpcAddr, x.flags...).want(t, x.code, x.want) })
	}
	weir(t, append([]string{"explain", "--addr", s.grpcAddr, "default", "endpoint=/x"}, c.ask...)...).want(t, exitDone)
	out := s.stdout.String()
	if !strings.Contains(out, "(TLS, clients need a certificate; envoy.service") || !strings.Contains(out, "(TLS, clients need a certificate; /healthz") || strings.Contains(out, "try:") {
		t.Errorf("it says\n%s", out)
	}
	if log := s.stderr.String(); strings.Contains(log, "handshake") {
		t.Errorf("strangers fill the log:\n%s", log)
	}
	plain := serving(t)
	ask(plain.grpcAddr, c.ask...).want(t, exitFailed, "the server speaks plain text: leave --tls and its like out")
}

func TestHTTPSpeaksTLSUnlessToldOtherwise(t *testing.T) {
	c := newCertificates(t)
	pair, err := tls.LoadX509KeyPair(c.client.Cert, c.client.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		remark, url string
		flags       []string
		config      *tls.Config
		want        string // "200 HTTP/2.0", or a part of the error
	}{
		{"mTLS", "https://", nil, &tls.Config{RootCAs: c.server.Pool, Certificates: []tls.Certificate{pair}}, "200 HTTP/2.0"},
		{"mTLS, without a certificate", "https://", nil, &tls.Config{RootCAs: c.server.Pool}, "error"},
		{"mTLS, in plain text", "http://", nil, nil, "400 HTTP/1.0"},
		{"plain, as told", "http://", []string{"--http-tls", "off"}, nil, "200 HTTP/1.1"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			s := serving(t, append(x.flags, c.mutual...)...)
			client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: x.config, ForceAttemptHTTP2: true}}
			defer client.CloseIdleConnections()
			resp, err := client.Get(x.url + s.httpAddr + "/healthz")
			got := "error"
			if err == nil {
				resp.Body.Close()
				got = resp.Status[:3] + " " + resp.Proto
			}
			if got != x.want {
				t.Errorf("%s (%v), want %s", got, err, x.want)
			}
		})
	}
}

func TestServeEndsForFaultyTLS(t *testing.T) {
	c := newCertificates(t)
	for _, x := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--tls-cert", c.server.Cert}, exitWrongUse, "--tls-cert and --tls-key go together"},
		{[]string{"--tls-key", c.server.Key}, exitWrongUse, "--tls-cert and --tls-key go together"},
		{[]string{"--tls-client-ca", c.client.CA}, exitWrongUse, "--tls-client-ca: there is no TLS without"},
		{append([]string{"--tls-client-ca", ""}, c.mutual[:4]...), exitWrongUse, "--tls-client-ca is empty"},
		{[]string{"--tls-cert", "", "--tls-key", ""}, exitWrongUse, "--tls-cert is empty"},
		{[]string{"--http-tls", "on"}, exitWrongUse, "--http-tls on: there is no TLS without"},
		{append([]string{"--tls-client-san", "a"}, c.mutual[:4]...), exitWrongUse, "--tls-client-san: clients need no certificate"},
		{append([]string{"--tls-client-san", "a*b.test"}, c.mutual...), exitWrongUse, `--tls-client-san "a*b.test": it is a DNS name`},
		{[]string{"--tls-cert", c.server.Cert, "--tls-key", c.client.Key}, exitFailed, "key " + c.client.Key + ", for the certificate " + c.server.Cert + ": private key does not match"},
		{[]string{"--tls-cert", "/nowhere/c.pem", "--tls-key", c.client.Key}, exitFailed, "/nowhere/c.pem: no such file"},
		{append([]string{"--tls-client-ca", c.server.Key}, c.mutual[:4]...), exitFailed, "client CA " + c.server.Key + ": there is no certificate in it"},
	} {
		weir(t, append([]string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, x.flags...)...).want(t, x.code, x.want)
	}
}

// gRPC and HTTP have the next certificate within ten seconds.
func TestServeTakesRenewedCertificates(t *testing.T) {
	t.Parallel()
	authority := testenv.NewAuthority(t)
	dir := t.TempDir()
	files := authority.MustIssue(t, dir, testenv.Leaf{})
	s := serving(t, "--tls-cert", files.Cert, "--tls-key", files.Key)
	serial := func(addr string) string {
		t.Helper()
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: authority.Pool, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial(s.grpcAddr)
	begin := time.Now()
	authority.MustIssue(t, dir, testenv.Leaf{})
	for _, addr := range []string{s.grpcAddr, s.httpAddr} {
		eventually(t, "the next certificate", func() bool { return serial(addr) != before })
	}
	if took := time.Since(begin); took > 10*time.Second { // one or two, when the machine is idle
		t.Errorf("after %v", took)
	}
}

func TestAnHTTPClientThatDoesNotShakeHandsIsSentAway(t *testing.T) {
	t.Parallel()
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	s := serving(t, "--tls-cert", files.Cert, "--tls-key", files.Key)
	conn, err := net.Dial("tcp", s.httpAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("after 30 s: %v", err)
	}
}

func TestRulesStatusAsksInstancesOverTLS(t *testing.T) {
	c := newCertificates(t)
	s := serving(t, append(c.mutual, "--rules", rulesFile(t, twoLimits))...)
	key := filepath.Join(filepath.Dir(c.client.Key), "none.pem")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := testenv.StartEtcd(t, testenv.EtcdOptions{})
	status := func(flags ...string) result {
		return weir(t, append([]string{"rules", "status", "--rules", "etcd://" + etcd.Addr + "/r"}, flags...)...)
	}
	files := []string{"--instance-ca", c.server.CA, "--instance-cert", c.client.Cert, "--instance-key", c.client.Key}
	status(append([]string{"--instance", "https://" + s.httpAddr}, files...)...).want(t, exitFailed, "it has no rules of Consul or etcd")
	status(append([]string{"--instance", s.httpAddr}, files...)...).want(t, exitFailed, "it has no rules of Consul or etcd")
	status("--instance", "https://"+s.httpAddr).want(t, exitFailed, "unknown authority")
	status("--instance", s.httpAddr, "--instance-cert", c.client.Cert, "--instance-key", key).want(t, exitFailed, "--instance-key "+key)
}

// The agent's check does not know our authority, and need not. A client
// certificate it has only if it is told to use its own.
func TestConsulChecksAnInstanceThatSpeaksTLS(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	plain := testenv.StartConsul(t, testenv.ConsulOptions{})
	known := testenv.StartConsul(t, testenv.ConsulOptions{Config: fmt.Sprintf(
		"enable_agent_tls_for_checks = true\ntls { defaults { ca_file = %q, cert_file = %q, key_file = %q } }", c.client.CA, c.client.Cert, c.client.Key)})
	passing := func(consul *testenv.Consul) func() bool {
		return func() bool {
			resp, err := http.Get(consul.URL("/v1/health/service/weir?passing"))
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(body), `"weir"`)
		}
	}
	serving(t, append(c.mutual[:4:4], "--register", "consul://"+plain.Addr)...)
	eventually(t, "TLS, and a check that passes", passing(plain))
	serving(t, append(c.mutual, "--register", "consul://"+known.Addr)...)
	eventually(t, "mTLS, and a check that passes", passing(known))
}
