package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"weir/internal/testenv"
)

// listening is a gRPC server on a TCP port.
type listening struct {
	addr     string
	accepted atomic.Int64
	logs     *logs // of the certificates
	net.Listener
}

func (l *listening) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return conn, err
}

// listenTLS serves with certificates that are looked at every few milliseconds;
// without a certificate file in plain text.
func listenTLS(t *testing.T, c CertificateOptions, g GRPCOptions) *listening {
	t.Helper()
	l := &listening{logs: new(logs)}
	var running sync.WaitGroup
	if c.CertFile != "" {
		c.Logger = slog.New(slog.NewTextHandler(l.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Interval = 10 * time.Millisecond
		certs, err := LoadCertificates(c)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { certs.Run(t.Context()) })
		g.Certificates = certs
	}
	var err error
	if l.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	l.addr = l.Listener.Addr().String()
	s := NewGRPC(newFixture(t, setup{rules: "rules: []"}).Service, g)
	running.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); running.Wait() })
	return l
}

// asks makes one call on a connection of its own.
func (l *listening) asks(t *testing.T, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(l.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request("default", "a=1"))
	return err
}

// serial is that of the certificate that a fresh handshake shows.
func (l *listening) serial(t *testing.T, config *tls.Config) string {
	t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", l.addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Text(16)
}

// clientOf is a client that trusts an authority, with a certificate unless the
// files are nil.
func clientOf(t *testing.T, server *testenv.Authority, own *testenv.TLSFiles) *tls.Config {
	t.Helper()
	config := &tls.Config{RootCAs: server.Pool, MinVersion: tls.VersionTLS12}
	if own != nil {
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func TestOnlyClientsWithAnAllowedCertificateAreLetIn(t *testing.T) {
	servers, clients, strangers := testenv.NewAuthority(t), testenv.NewAuthority(t), testenv.NewAuthority(t)
	cert := servers.MustIssue(t, t.TempDir(), testenv.Leaf{})
	dir := t.TempDir()
	client := func(a *testenv.Authority, sans ...string) *tls.Config {
		return clientOf(t, servers, a.MustIssue(t, dir, testenv.Leaf{SANs: sans}))
	}
	withCA := clients.MustIssue(t, t.TempDir(), testenv.Leaf{})
	var names []ClientName
	for _, text := range []string{"*.mesh.test", "spiffe://mesh.test/ns/edge/sa/envoy", "192.0.2.7"} {
		name, err := ParseClientName(text)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	simple := listenTLS(t, CertificateOptions{CertFile: cert.Cert, KeyFile: cert.Key}, GRPCOptions{})
	mutual := listenTLS(t, CertificateOptions{CertFile: cert.Cert, KeyFile: cert.Key, ClientCAFile: withCA.CA}, GRPCOptions{})
	named := listenTLS(t, CertificateOptions{CertFile: cert.Cert, KeyFile: cert.Key, ClientCAFile: withCA.CA, ClientNames: names}, GRPCOptions{})
	plain := listenTLS(t, CertificateOptions{}, GRPCOptions{})

	old := clientOf(t, servers, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	expired := clientOf(t, servers, clients.MustIssue(t, dir, testenv.Leaf{NotAfter: time.Now().Add(-time.Minute)}))
	// With TLS 1.3 a client may learn why, or only that the connection broke.
	const refused = "code = Unavailable"
	for _, c := range []struct {
		remark string
		to     *listening
		with   *tls.Config // nil: plain text
		client string      // a part of the client's error; "": let in
		log    string      // a part of the log at debug
	}{
		{"TLS", simple, clientOf(t, servers, nil), "", ""},
		{"TLS, a certificate that nobody asks for", simple, client(strangers), "", ""},
		{"TLS 1.1", simple, old, "protocol version", "unsupported versions"},
		{"TLS, another authority", simple, clientOf(t, strangers, nil), "unknown authority", "bad certificate"},
		{"plain text to TLS", simple, nil, refused, "the client may speak plain text"},
		{"TLS to plain text", plain, clientOf(t, servers, nil), "first record does not look like a TLS handshake", ""},
		{"plain text", plain, nil, "", ""},

		{"mTLS", mutual, client(clients), "", ""},
		{"mTLS, TLS 1.2", mutual, func() *tls.Config { c := client(clients); c.MaxVersion = tls.VersionTLS12; return c }(), "", ""},
		{"mTLS, no certificate", mutual, clientOf(t, servers, nil), refused, "didn't provide a certificate"},
		{"mTLS, a certificate of another authority", mutual, client(strangers), refused, "unknown authority"},
		{"mTLS, one of the servers'", mutual, client(servers), refused, "unknown authority"},
		{"mTLS, one that has expired", mutual, expired, refused, "expired"},

		{"a URI that is allowed", named, client(clients, "spiffe://mesh.test/ns/edge/sa/envoy"), "", ""},
		{"an address that is allowed", named, client(clients, "10.0.0.1", "192.0.2.7"), "", ""},
		{"one label under the name", named, client(clients, "edge.mesh.test"), "", ""},
		{"two labels", named, client(clients, "a.edge.mesh.test"), refused, `no name that is allowed; it has [\"a.edge.mesh.test\"]`},
		{"another URI", named, client(clients, "spiffe://mesh.test/ns/edge/sa/envoys"), refused, "no name that is allowed"},
		{"an allowed name of another authority", named, client(strangers, "edge.mesh.test"), refused, "unknown authority"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			before := len(c.to.logs.String())
			creds := insecure.NewCredentials()
			if c.with != nil {
				creds = credentials.NewTLS(c.with)
			}
			switch err := c.to.asks(t, creds); {
			case c.client == "" && err != nil, c.client != "" && err == nil, err != nil && !strings.Contains(err.Error(), c.client):
				t.Errorf("the client got %v, want %q", err, c.client)
			}
			if c.log == "" {
				return
			}
			eventually(t, "a line in the log", func() bool { return strings.Contains(c.to.logs.String()[before:], c.log) })
			for line := range strings.Lines(c.to.logs.String()[before:]) {
				if !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "client=127.0.0.1:") {
					t.Errorf("logged: %s", line)
				}
			}
		})
	}
}

// A client that connects and says nothing holds a connection for five seconds.
func TestAClientThatDoesNotShakeHandsIsSentAway(t *testing.T) {
	t.Parallel()
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	l := listenTLS(t, CertificateOptions{CertFile: files.Cert, KeyFile: files.Key}, GRPCOptions{})
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write([]byte{0x16, 0x03, 0x01}); err != nil { // the first bytes of a hello
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("after 30 s: %v", err)
	}
}

// Connections end at about their age: all calls are answered, and others follow
// at different times.
func TestConnectionsCloseGentlyAtAboutTheirAge(t *testing.T) {
	t.Parallel()
	const clients = 8
	l := listenTLS(t, CertificateOptions{}, GRPCOptions{MaxConnectionAge: 500 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range clients {
		conn, err := grpc.NewClient(l.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer conn.Close()
			client := rls.NewRateLimitServiceClient(conn)
			for ctx.Err() == nil {
				if _, err := client.ShouldRateLimit(t.Context(), request("default", "a=1")); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	// Six times in three seconds, when the machine is idle.
	if n := l.accepted.Load(); n < 2*clients || n > 10*clients {
		t.Errorf("%d connections of %d clients", n, clients)
	}
}

func TestHTTPErrorLogTellsOfHandshakesToWhoDebugs(t *testing.T) {
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	logs := new(logs)
	logger := slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	certs, err := LoadCertificates(CertificateOptions{CertFile: files.Cert, KeyFile: files.Key, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{TLSConfig: certs.Config("h2", "http/1.1"), ErrorLog: HTTPErrorLog(logger), ReadHeaderTimeout: time.Second}
	defer s.Close()
	go func() { _ = s.ServeTLS(listener, "", "") }()
	resp, err := http.Get("http://" + listener.Addr().String()) // plain text
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "HTTP request to an HTTPS server") {
		t.Errorf("the client is told %q", body)
	}
	eventually(t, "a line in the log", func() bool {
		return strings.Contains(logs.String(), `level=DEBUG msg="TLS handshake failed" server=HTTP client=127.0.0.1:`)
	})
	s.ErrorLog.Print("http: something else")
	if !strings.Contains(logs.String(), `level=WARN msg="http: something else"`) {
		t.Errorf("logged:\n%s", logs)
	}
}
