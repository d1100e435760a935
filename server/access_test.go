package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/server/top"
)

const secret = "0123456789abcdef"

func access(t testing.TB, token string) *Access {
	t.Helper()
	a, err := NewAccess(AccessOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestATokenThatCanBeGuessedOrNotBeShownIsRefused(t *testing.T) {
	for token, want := range map[string]string{
		"":                        "",
		secret:                    "",
		secret[1:]:                "needs 16 at least",
		"0123456789abcdef \t":     "no header carries",
		"0123456789abcdef\n":      "no header carries",
		"0123456789abcdefé":       "no header carries",
		strings.Repeat("x", 4096): "",
	} {
		if _, err := NewAccess(AccessOptions{Token: token}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", token, err, want)
		}
	}
}

// Every method but those that are known to be open is an operator's.
func TestWhatIsForOperators(t *testing.T) {
	open := map[string]bool{"Check": true, "CheckBatch": true, "Peek": true, "Explain": true}
	desc := weirv1.WeirService_ServiceDesc
	n := 0
	for _, m := range desc.Methods {
		n++
		if forOperators("/"+desc.ServiceName+"/"+m.MethodName) == open[m.MethodName] {
			t.Errorf("%s: for operators: %t", m.MethodName, open[m.MethodName])
		}
	}
	for _, m := range desc.Streams {
		n++
		if !forOperators("/" + desc.ServiceName + "/" + m.StreamName) {
			t.Errorf("%s is not for operators", m.StreamName)
		}
	}
	if n < 10 || !forOperators("/weir.v1.WeirService/YetToCome") || forOperators("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit") {
		t.Errorf("of %d methods", n)
	}
}

// dialFrom is a client with an address of its own, unless that is "".
func dialFrom(t *testing.T, local, network, addr string) weirv1.WeirServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			d := &net.Dialer{}
			if local != "" {
				d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
			}
			return d.DialContext(ctx, network, addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return weirv1.NewWeirServiceClient(conn)
}

// elsewhere is an address of this machine that is not its loopback; "" if it has
// none.
func elsewhere(t *testing.T) string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

func TestWhoMayCallAnOperatorsMethodOverGRPC(t *testing.T) {
	const missing, denied = codes.Unauthenticated, codes.PermissionDenied
	for _, x := range []struct {
		remark, token string
		from          string // the client's address; "": the default one
		headers       []string
		want          codes.Code
		says          string
	}{
		{"no token, from this machine", "", "", nil, codes.OK, ""},
		{"whatever is shown", "", "", []string{"authorization", "Bearer x"}, codes.OK, ""},
		{"by Istio's sidecar", "", "127.0.0.6", nil, denied, "--admin-token"},
		{"by a proxy", "", "", []string{"x-forwarded-for", "192.0.2.7"}, denied, "by a proxy (x-forwarded-for)"},
		{"by another", "", "", []string{"forwarded", "for=192.0.2.7"}, denied, "by a proxy"},
		{"by Envoy", "", "", []string{"x-envoy-external-address", "192.0.2.7"}, denied, "by a proxy"},
		{"of a browser", "", "", []string{"origin", "http://localhost"}, denied, "browser"},
		{"the token", secret, "", []string{"authorization", "Bearer " + secret}, codes.OK, ""},
		{"the token, from anywhere", secret, "127.0.0.6", []string{"authorization", "bearer  " + secret, "x-forwarded-for", "192.0.2.7"}, codes.OK, ""},
		{"none shown, on this machine too", secret, "", nil, missing, "WEIR_ADMIN_TOKEN"},
		{"an empty one", secret, "", []string{"authorization", ""}, missing, "is not the server's"},
		{"no Bearer", secret, "", []string{"authorization", secret}, missing, "Bearer TOKEN"},
		{"another scheme", secret, "", []string{"authorization", "Basic " + secret}, missing, ""},
		{"one that is too short", secret, "", []string{"authorization", "Bearer " + secret[1:]}, missing, ""},
		{"one that is too long", secret, "", []string{"authorization", "Bearer " + secret + "0"}, missing, ""},
		{"another one", secret, "", []string{"authorization", "Bearer 0123456789abcdeF"}, missing, ""},
		{"two", secret, "", []string{"authorization", "Bearer " + secret, "authorization", "Bearer x"}, missing, ""},
	} {
		t.Run(x.remark, func(t *testing.T) {
			f := newFixture(t, setup{rules: `rules: [{name: r, match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{Top: top.New(top.Options{})}})
			addr := serveOn(t, f, access(t, x.token), "tcp", "127.0.0.1:0")
			client := dialFrom(t, x.from, "tcp", addr)
			ctx := metadata.AppendToOutgoingContext(t.Context(), x.headers...)
			for method, call := range operatorsCalls(client) {
				err := call(ctx)
				code := grpcstatus.Code(err)
				if x.want == codes.OK && (code == missing || code == denied) || x.want != codes.OK && (code != x.want || !strings.Contains(err.Error(), x.says)) {
					t.Errorf("%s: %v, want %v with %q", method, err, x.want, x.says)
				}
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s tells the token: %v", method, err)
				}
			}
			if _, err := client.Check(ctx, &weirv1.CheckRequest{Domain: "default", Descriptors: described("a=1")}); err != nil {
				t.Errorf("Check is open to all: %v", err)
			}
			if _, err := client.Explain(ctx, &weirv1.ExplainRequest{Domain: "default", Entries: described("a=1")[0].Entries}); err != nil {
				t.Errorf("Explain is open to all: %v", err)
			}
		})
	}
}

// operatorsCalls are all that operators may do, with requests that reach it.
func operatorsCalls(c weirv1.WeirServiceClient) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Enqueue":   func(ctx context.Context) error { _, err := c.Enqueue(ctx, &weirv1.EnqueueRequest{}); return err },
		"ListRules": func(ctx context.Context) error { _, err := c.ListRules(ctx, &weirv1.ListRulesRequest{}); return err },
		"Reset":     func(ctx context.Context) error { _, err := c.Reset(ctx, &weirv1.ResetRequest{}); return err },
		"Top":       func(ctx context.Context) error { _, err := c.Top(ctx, &weirv1.TopRequest{}); return err },
		"Stats":     func(ctx context.Context) error { _, err := c.Stats(ctx, &weirv1.StatsRequest{}); return err },
		"WatchStats": func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.WatchStats(ctx, &weirv1.WatchStatsRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	}
}

func serveOn(t *testing.T, f *fixture, a *Access, network, addr string) string {
	t.Helper()
	g := NewGRPC(f.Service, GRPCOptions{Access: a})
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return l.Addr().String()
}

func TestAUnixSocketIsOnThisMachineAndAnotherAddressIsNot(t *testing.T) {
	f := newFixture(t, setup{})
	addr := serveOn(t, f, nil, "unix", filepath.Join(t.TempDir(), "weir.sock"))
	if _, err := dialFrom(t, "", "unix", addr).Stats(t.Context(), &weirv1.StatsRequest{}); err != nil {
		t.Errorf("over a unix socket: %v", err)
	}
	if ip := elsewhere(t); ip != "" {
		addr := serveOn(t, f, nil, "tcp", net.JoinHostPort(ip, "0"))
		if _, err := dialFrom(t, "", "tcp", addr).Stats(t.Context(), &weirv1.StatsRequest{}); grpcstatus.Code(err) != codes.PermissionDenied {
			t.Errorf("from %s: %v", ip, err)
		}
	}
}

func TestWhoMayCallAnOperatorsMethodOverHTTP(t *testing.T) {
	for _, x := range []struct {
		remark, token, host string
		headers             []string
		want                int
	}{
		{"no token, from this machine", "", "", nil, 200},
		{"by the name localhost", "", "localhost:80", nil, 200},
		{"by IPv6", "", "[::1]:80", nil, 200},
		{"by a name that was made to mean this machine", "", "evil.example:80", nil, 403},
		{"by a name that begins like it", "", "localhost.evil.example", nil, 403},
		{"by another address", "", "192.0.2.7", nil, 403},
		{"of a page of the console", "", "localhost:80", []string{"Origin", "http://localhost:80"}, 200},
		{"of a page of another site", "", "localhost:80", []string{"Origin", "http://evil.example"}, 403},
		{"of another port", "", "localhost:80", []string{"Origin", "http://localhost:81"}, 403},
		{"of another scheme", "", "localhost:80", []string{"Origin", "https://localhost:80"}, 403},
		{"of a page without an origin", "", "localhost:80", []string{"Origin", "null"}, 403},
		{"as a browser tells it", "", "localhost:80", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"typed into a browser", "", "localhost:80", []string{"Sec-Fetch-Site", "none"}, 200},
		{"by a proxy", "", "", []string{"X-Forwarded-For", "192.0.2.7"}, 403},
		{"by another", "", "", []string{"Forwarded", "for=192.0.2.7"}, 403},
		{"the token, from anywhere", secret, "weir.example", []string{"Authorization", "Bearer " + secret, "Origin", "http://elsewhere", "X-Forwarded-For", "192.0.2.7"}, 200},
		{"none shown", secret, "", nil, 401},
		{"another one", secret, "", []string{"Authorization", "Bearer " + secret + "x"}, 401},
	} {
		t.Run(x.remark, func(t *testing.T) {
			f := newFixture(t, setup{rules: `rules: [{name: r, match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{Top: top.New(top.Options{})}})
			w := httptest.NewServer(NewHTTP(f.Service, HTTPOptions{Ready: func() (string, error) { return "", nil }, Rules: func() any { return nil }, Access: access(t, x.token)}))
			defer w.Close()
			for path, method := range map[string]string{
				"/v1/stats": "GET", "/v1/rules": "GET", "/v1/top": "GET", "/v1/stats:watch?interval=1h": "GET", // too long: answered at once
				"/v1/reset": "POST", "/v1/enqueue": "POST", "/debug/pprof/cmdline": "GET", "/debug/pprof/": "GET",
			} {
				req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if x.host != "" {
					req.Host = x.host
				}
				for i := 0; i < len(x.headers); i += 2 {
					req.Header.Set(x.headers[i], x.headers[i+1])
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
				if x.want == 200 && refused || x.want != 200 && resp.StatusCode != x.want {
					t.Errorf("%s: %d, want %d", path, resp.StatusCode, x.want)
				}
				if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s: a 401 without a challenge", path)
				}
			}
			for _, path := range []string{"/rules", "/healthz", "/readyz", "/v1/openapi.json"} { // are as open as ever
				resp, err := http.Get(w.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %d", path, resp.StatusCode)
				}
			}
		})
	}
}

// A certificate that the server checked stands for the token; one that it did not
// check does not.
func TestAClientsCertificateIsEnough(t *testing.T) {
	chain := [][]*x509.Certificate{{{}}}
	for _, x := range []struct {
		remark string
		state  *tls.ConnectionState
		want   codes.Code
	}{
		{"plain text", nil, codes.Unauthenticated},
		{"TLS without a client's certificate", &tls.ConnectionState{}, codes.Unauthenticated},
		{"a certificate that was not checked", &tls.ConnectionState{PeerCertificates: chain[0]}, codes.Unauthenticated},
		{"one that was", &tls.ConnectionState{PeerCertificates: chain[0], VerifiedChains: chain}, codes.OK},
	} {
		err := access(t, secret).check(&caller{what: "Reset", tls: x.state, foreign: "it is elsewhere"})
		if grpcstatus.Code(err) != x.want {
			t.Errorf("%s: %v", x.remark, err)
		}
	}
	if err := (*Access)(nil).check(&caller{what: "Reset", foreign: "it is elsewhere"}); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("no access: %v", err)
	}
}
