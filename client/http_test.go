package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	weirv1 "weir/api/weir/v1"
	"weir/client"
	"weir/server"
)

const posts = `
rules:
  - {name: posts, match: {endpoint: /posts, remote_address: "*"}, limit: 2, window: 60s}
  - {name: all, match: {endpoint: /all}, limit: 1, window: 60s}
  - {name: raw, match: {endpoint: "/caf*", remote_address: "*"}, limit: 1, window: 60s}
  - {name: shade, match: {endpoint: /shade}, limit: 1, window: 60s, shadow_mode: true}
  - {match: {endpoint: /free}, limit: 1, window: 60s}
  - {match: {endpoint: /free, remote_address: "cidr:192.0.2.0/24"}, exempt: true}
`

func TestWhatIsOverTheLimitIsAnsweredInPlaceOfTheHandler(t *testing.T) {
	w := start(t, setup{rules: posts})
	h := w.Handler(hello, client.HTTPOptions{})
	for _, step := range []struct {
		path, want, remark string
	}{
		{"/posts?page=1", "200 200 429", "the path counts, without its query"},
		{"/posts?page=2", "429", "another query is no other endpoint"},
		{"/all", "200 429", "the first descriptor has the path alone"},
		{"/caf%E9", "200 429", "a path that is not UTF-8 is limited like any other"},
		{"/caf%E8", "200 429", "and is not taken for another one that is not"},
		{"/shade", "200 200 200", "shadow counts, and refuses nothing"},
		{"/free", "200 200 200", "an exempt client is not limited by the path's limit"},
		{"/nothing", "200 200 200", "no rule"},
	} {
		if got := codes(strings.Count(step.want, " ")+1, h, step.path); got != step.want {
			t.Errorf("%s: %s, want %s: %s", step.path, got, step.want, step.remark)
		}
	}
	if passed := get(h, "/nothing"); passed.Body.String() != "hello\n" {
		t.Errorf("what passes gets %q", passed.Body)
	}
	if refused := get(h, "/posts"); refused.Body.Len() > 0 || refused.Header().Get("Retry-After") != "60" {
		t.Errorf("what is refused gets %q with %s", refused.Body, headersText(refused.Header()))
	}
}

func TestHeadersAndBodiesAreThoseThatEnvoyIsGiven(t *testing.T) {
	for _, c := range []struct {
		name    string
		service server.Options
	}{
		{"x-ratelimit", server.Options{}},
		{"ietf and x-ratelimit", server.Options{Headers: server.HeaderOptions{Style: server.IETF | server.XRateLimit}}},
		{"draft-03", server.Options{Headers: server.HeaderOptions{Style: server.Draft03}}},
		{"a body", server.Options{Denied: server.DeniedOptions{Body: server.FixedBody([]byte("slower, please\n"), "")}}},
		{"a body of a type", server.Options{Denied: server.DeniedOptions{Body: server.FixedBody([]byte("<p>slower"), "text/html")}}},
		{"a problem", server.Options{Denied: server.DeniedOptions{Body: server.ProblemBody()}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, setup{rules: posts, service: c.service})
			ours := w.Handler(hello, client.HTTPOptions{})
			theirs := server.NewHTTP(w.service, server.HTTPOptions{})
			for i := range 3 { // two counters of the same rule, one for each way
				got := get(ours, "/posts")
				r := httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(`{"domain": "default", "descriptors": [
					{"entries": [{"key": "endpoint", "value": "/posts"}, {"key": "remote_address", "value": "192.0.2.8"}]}]}`))
				want := httptest.NewRecorder()
				theirs.ServeHTTP(want, r)
				if got.Code != want.Code {
					t.Errorf("request %d: status %d, want %d", i+1, got.Code, want.Code)
				}
				if body := want.Body.String(); got.Code == http.StatusOK || strings.HasPrefix(body, `{"overallCode"`) {
					want.Header().Del("Content-Type") // of /json's own body
					got.Header().Del("Content-Type")  // of the handler's
				} else if got.Body.String() != body {
					t.Errorf("request %d: body %q, want %q", i+1, got.Body, body)
				}
				if got, want := headersText(got.Header()), headersText(want.Header()); got != want {
					t.Errorf("request %d:\n%s\nwant\n%s", i+1, got, want)
				}
			}
		})
	}
}

func TestTheUpstreamIsToldByWeirAndByNobodyElse(t *testing.T) {
	w := start(t, setup{rules: posts, service: server.Options{UpstreamHeaders: true}})
	var got http.Header
	h := w.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }), client.HTTPOptions{})
	for _, step := range []struct{ path, want, remark string }{
		{"/posts", "X-Other: kept; X-Weir-Limit: 2; X-Weir-Remaining: 1; X-Weir-Rule: posts", "limited"},
		{"/else", "X-Other: kept", "not limited: what a client claims goes all the same"},
	} {
		get(h, step.path, "X-Weir-Remaining", "99", "X-Weir-Rule", "mine", "X-Weir-Overflow", "posts", "X-Other", "kept")
		if headersText(got) != step.want {
			t.Errorf("%s: %s\nwant %s", step.remark, headersText(got), step.want)
		}
	}
}

func TestAServiceSaysWhatARequestIsLimitedBy(t *testing.T) {
	w := start(t, setup{rules: "domain: shop\nrules:\n  - {match: {user: '*'}, limit: 2, window: 60s}\n"})
	h := w.Handler(hello, client.HTTPOptions{
		Domain: "shop",
		Descriptors: func(r *http.Request) []*weirv1.Descriptor {
			user := r.Header.Get("X-User")
			if user == "" {
				return nil
			}
			return []*weirv1.Descriptor{client.Describe("user", user)}
		},
		Refused: func(w http.ResponseWriter, _ *http.Request, d client.Decision) {
			http.Error(w, fmt.Sprint("refused by ", d.Response.Decisions[0].Rule), http.StatusTeapot)
		},
	})
	for _, step := range []struct{ user, want, remark string }{
		{"alice", "200 200 418", "refused in the service's own words"},
		{"\xff\xfe", "200 200 418", "a header of any bytes"},
		{"\xff\xfd", "200 200 418", "is not another one"},
		{"", "200 200 200", "no descriptor: not asked"},
	} {
		if got := codes(3, h, "/", "X-User", step.user); got != step.want {
			t.Errorf("user %q: %s, want %s: %s", step.user, got, step.want, step.remark)
		}
	}
	if refused := get(h, "/", "X-User", "alice"); refused.Header().Get("Retry-After") != "60" || refused.Body.String() != "refused by user=*\n" {
		t.Errorf("refused with %s, %q", headersText(refused.Header()), refused.Body)
	}
}

func TestOnlyTrustedProxiesSayWhoTheClientIs(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		peer      string
		forwarded []string
		trusted   []netip.Prefix
		want      string
		remark    string
	}{
		{"192.0.2.7:80", nil, nil, "192.0.2.7", "the peer"},
		{"192.0.2.7:80", []string{"198.51.100.1"}, nil, "192.0.2.7", "nobody is trusted"},
		{"192.0.2.7:80", []string{"198.51.100.1"}, proxies, "192.0.2.7", "this peer is not"},
		{"10.0.0.1:80", []string{"198.51.100.1"}, proxies, "198.51.100.1", "a proxy is"},
		{"10.0.0.1:80", []string{"203.0.113.9, 198.51.100.1"}, proxies, "198.51.100.1", "what the client itself claimed is not"},
		{"10.0.0.1:80", []string{"203.0.113.9", "198.51.100.1, 10.0.0.2"}, proxies, "198.51.100.1", "two proxies, two lines"},
		{"10.0.0.1:80", []string{"10.0.0.3,10.0.0.2"}, proxies, "10.0.0.3", "a client inside"},
		{"10.0.0.1:80", []string{"198.51.100.1, unknown"}, proxies, "10.0.0.1", "what is no address ends it"},
		{"10.0.0.1:80", []string{""}, proxies, "10.0.0.1", "an empty one"},
		{"10.0.0.1:80", nil, proxies, "10.0.0.1", "none"},
		{"[fd00::1]:80", []string{"2001:db8::5"}, proxies, "2001:db8::5", "IPv6"},
		{"[::ffff:10.0.0.1]:80", []string{"[2001:db8::5]:443"}, proxies, "2001:db8::5", "IPv4 in IPv6, and a port"},
		{"[fe80::1%eth0]:80", nil, nil, "fe80::1", "a zone belongs to this machine"},
		{"@", []string{"198.51.100.1"}, proxies, "@", "a unix socket"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		r.Header["X-Forwarded-For"] = c.forwarded
		if got := client.RemoteAddress(r, c.trusted...); got != c.want {
			t.Errorf("%s with %q: %s, want %s: %s", c.peer, c.forwarded, got, c.want, c.remark)
		}
	}
}
