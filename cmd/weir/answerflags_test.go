package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/pflag"

	"weir/server"
)

// answerFlagsOf reads flags as serve does.
func answerFlagsOf(t *testing.T, args ...string) *answerFlags {
	t.Helper()
	a := new(answerFlags)
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	a.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := a.complete(); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestHeadersAreForAllDomainsOrForOne(t *testing.T) {
	for _, x := range []struct {
		remark  string
		args    []string
		general server.HeaderStyle
		domains map[string]server.HeaderStyle
	}{
		{"nothing said", nil, 0, nil},
		{"one", []string{"--headers", "ietf"}, server.IETF, nil},
		{"several", []string{"--headers", "ietf, x-ratelimit"}, server.IETF | server.XRateLimit, nil},
		{"in two flags", []string{"--headers", "ietf", "--headers", "x-ratelimit"}, server.IETF | server.XRateLimit, nil},
		{"a domain beside the rest", []string{"--headers", "api=ietf,draft-03", "--headers", "none"}, server.NoHeaders,
			map[string]server.HeaderStyle{"api": server.IETF | server.Draft03}},
		{"in one value, as by the environment", []string{"--headers", "ietf,x-ratelimit,api=ietf,draft-03,b=none"}, server.IETF | server.XRateLimit,
			map[string]server.HeaderStyle{"api": server.IETF | server.Draft03, "b": server.NoHeaders}},
		{"a domain with a = in it", []string{"--headers", "a=b=ietf-pk"}, 0, map[string]server.HeaderStyle{"a=b": server.IETFPartitions}},
	} {
		o := answerFlagsOf(t, x.args...)
		got := o.headerOptions()
		if got.Style != x.general || len(got.ByDomain) != len(x.domains) {
			t.Errorf("%s: got %+v", x.remark, got)
		}
		for domain, want := range x.domains {
			if got.ByDomain[domain] != want {
				t.Errorf("%s: domain %s: got %b, want %b", x.remark, domain, got.ByDomain[domain], want)
			}
		}
	}
}

func TestJitterIsANumberOrADuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "5": 5 * time.Second, "5s": 5 * time.Second, "1m": time.Minute, "24h": 24 * time.Hour} {
		if got := answerFlagsOf(t, "--retry-after-jitter", text).headerOptions().Jitter; got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

const shutRules = `
domain: default
rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1h}, {name: one, match: {b: "*"}, limit: 1, window: 1h}]
---
domain: web
rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1h}]
---
domain: grpc
rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1h}]
`

// rlsRequest is a request of one entry.
func rlsRequest(domain, key string) *rls.RateLimitRequest {
	entries := []*rlcommon.RateLimitDescriptor_Entry{{Key: key, Value: "1"}}
	return &rls.RateLimitRequest{Domain: domain, Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: entries}}}
}

func TestTheFlagsOfTheAnswerReachIt(t *testing.T) {
	page := filepath.Join(t.TempDir(), "denied.html")
	if err := os.WriteFile(page, []byte("<p>a=text:b"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serving(t, "--rules", rulesFile(t, shutRules), "--headers", "x-ratelimit", "--headers", "web=ietf,draft-03", "--header-names", "limit=X-My-Limit,remaining=",
		"--denied-body", "problem+json", "--denied-body", "grpc=text:slow=text:down", "--denied-body", "web=@"+page,
		"--dynamic-metadata", "all", "--upstream-headers", "--retry-after-jitter", "1000")
	for _, x := range []struct{ domain, key, body, headers, contentType string }{
		{"default", "a", `"violated-policies":["shut"]`, "X-My-Limit", "application/problem+json"},
		{"grpc", "a", "slow=text:down", "X-My-Limit", ""},
		{"web", "a", "<p>a=text:b", "RateLimit-Policy RateLimit X-RateLimit-Limit X-RateLimit-Remaining", "text/html; charset=utf-8"},
		{"default", "b", "", "X-My-Limit", ""},
	} {
		resp, err := client(t, s.grpcAddr).ShouldRateLimit(t.Context(), rlsRequest(x.domain, x.key))
		if err != nil {
			t.Fatal(err)
		}
		headers := map[string]string{}
		for _, h := range resp.ResponseHeadersToAdd {
			headers[h.Key] = h.Value
		}
		if x.body == "" && len(resp.RawBody) > 0 || !strings.Contains(string(resp.RawBody), x.body) || headers["Content-Type"] != x.contentType {
			t.Errorf("%s %s: body %q of type %s", x.domain, x.key, resp.RawBody, headers["Content-Type"])
		}
		delete(headers, "Content-Type")
		for _, name := range strings.Fields(x.headers) {
			if _, ok := headers[name]; !ok {
				t.Errorf("%s %s: no %s in %v", x.domain, x.key, name, headers)
			}
			delete(headers, name)
		}
		if len(headers) > 0 {
			t.Errorf("%s %s: unasked: %v", x.domain, x.key, headers)
		}
		m := resp.DynamicMetadata.GetFields()
		if m["domain"].GetStringValue() != x.domain || m["weir"].GetStructValue().GetFields()["rule"] == nil {
			t.Errorf("%s %s: metadata %v", x.domain, x.key, m)
		}
		if told := len(resp.RequestHeadersToAdd) > 0; told != (x.key == "b") {
			t.Errorf("%s %s: for the upstream: %v", x.domain, x.key, resp.RequestHeadersToAdd)
		}
	}
	// One that passed a moment ago is refused for about an hour, and the jitter.
	resp, err := client(t, s.grpcAddr).ShouldRateLimit(t.Context(), rlsRequest("default", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if reset := resp.Statuses[0].DurationUntilReset.GetSeconds(); reset < 1 || reset > 3600 {
		t.Errorf("the status says %d seconds, want no jitter in it", reset)
	}
}

func TestADeniedBodyHasAnEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "body")
	for size, code := range map[int]string{0: "is empty", server.MaxDeniedBody + 1: "is over 65536 bytes"} {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		weir(t, "serve", "--denied-body", "@"+path).want(t, exitWrongUse, "--denied-body", code)
	}
}
