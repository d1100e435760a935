package server

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
	"weir/rules"
	"weir/server/top"
)

// fuzzed is a server of which every part can be reached.
func fuzzed() setup {
	return setup{rules: `
rules:
  - {name: r, match: {a: "*", b: "*"}, limits: [{limit: 3, window: 1h}, {limit: 2, window: 1s, algorithm: token_bucket}]}
  - {match: {a: "*"}, limit: 1, window: day, timezone: Asia/Tokyo}
  - {match: {a: "~x+"}, limit: 5, window: 1m, algorithm: sliding_window_log, count_denied: true}
  - {match: {remote_address: "*"}, limit: 5, window: 1m, algorithm: sliding_window_counter}
  - {match: {in: "*"}, exempt: true}
`, service: Options{
		Top: top.New(top.Options{Size: 10}), UpstreamHeaders: true, Denied: DeniedOptions{Body: ProblemBody()},
		ResetRules: func(context.Context, []*rules.Rule) error { return nil },
	}}
}

// Whatever is sent, the server is not at fault: no 5xx.
func FuzzHTTP(f *testing.F) {
	fix := newFixture(f, fuzzed())
	handler := NewHTTP(fix.Service, HTTPOptions{Ready: func() (string, error) { return "", nil }, Rules: func() any { return nil }})
	const one = `{"domain": "default", "descriptors": [{"entries": [{"key": "a", "value": "1"}, {"key": "b", "rawValue": "/w=="}], "hits": "2"}]}`
	for path := range v1Routes() {
		f.Add("GET", path+"?pageSize=1&domain=x&top=3&interval=1s&limit=2", "Grpc-Timeout", "1S", "")
		f.Add("POST", path, "Content-Type", "application/json", one)
	}
	f.Add("POST", "/json", "Accept", "*/*", jsonOf("default", "a", "1"))
	f.Add("OPTIONS", "/v1/check%3Abatch", "Grpc-Metadata-X-Bin", "!", "")
	f.Add("POST", "/v1//reset/../check", "X-HTTP-Method-Override", "GET", `{"requests": [{}]}`)
	f.Add("HEAD", "/v1/openapi.json", "Te", "trailers", "")
	f.Fuzz(func(t *testing.T, method, target, name, value, body string) {
		if strings.Contains(target, "pprof") {
			return // a profile takes its time
		}
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.ContainsAny(method, " \t\r\n") || method == "" {
			return // net/http answers 400 by itself
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			return
		}
		req.URL, req.Host, req.RemoteAddr, req.RequestURI = u, "localhost", "127.0.0.1:9", target
		req.Header.Set(name, value)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code >= 500 && ctx.Err() == nil {
			t.Errorf("%s %s %q: %q %q\n%d %s", method, target, name, value, body, w.Code, w.Body)
		}
		if strings.Contains(fix.logs.String(), "panicked") {
			t.Fatal(fix.logs.String())
		}
	})
}

// Whatever JSON a method is sent, it answers JSON, and is not at fault.
func FuzzV1JSON(f *testing.F) {
	fix := newFixture(f, fuzzed())
	handler := NewHTTP(fix.Service, HTTPOptions{Ready: func() (string, error) { return "", nil }, Rules: func() any { return nil }})
	routes := v1Routes()
	paths := slices.Sorted(maps.Keys(routes))
	const entries = `[{"key": "a", "value": "1"}, {"key": "b", "rawValue": "/w=="}]`
	for i := range paths {
		for _, text := range []string{
			`{"domain": "default", "descriptors": [{"entries": ` + entries + `, "hits": "2", "refund": true}], "hits": 1}`,
			`{"requests": [{"domain": "default", "descriptors": [{"entries": ` + entries + `}]}, {"domain": "\ud800"}]}`,
			`{"domain": "default", "entries": ` + entries + `}`, `{"domain": "default", "rule": "r"}`,
			`{"domain": "default", "descriptor": {"entries": ` + entries + `}}`,
			`{"domain": "default", "entries": ` + entries + `, "request": {"path": "Lw==", "headers": [{"name": "x", "value": "AA=="}]}}`,
			"domain=default&pageSize=1&pageToken=YQ", "limit=100&domain=%ff", "interval=0.1s&top=3", "", "null", "{", `{"a":[[[[`,
		} {
			f.Add(uint8(i), text)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		path := paths[int(which)%len(paths)]
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		body, query := text, ""
		if routes[path].method == http.MethodGet {
			body, query = "", text
		}
		req, err := http.NewRequestWithContext(ctx, routes[path].method, "http://localhost"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.RemoteAddr, req.URL.RawQuery = "127.0.0.1:9", query
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code >= 500 && ctx.Err() == nil {
			t.Errorf("%s %q: %d %s", path, text, w.Code, w.Body)
		}
		if path != watchPath && ctx.Err() == nil && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: %d, no JSON: %q", path, text, w.Code, w.Body)
		}
	})
}

// Whatever bytes a gRPC method is sent, the server is not at fault.
func FuzzGRPCBytes(f *testing.F) {
	s := start(f, fuzzed())
	type method struct {
		name   string
		stream bool
	}
	methods := []method{{rls.RateLimitService_ShouldRateLimit_FullMethodName, false}, {"/grpc.health.v1.Health/Check", false}, {weirv1.WeirService_WatchStats_FullMethodName, true}}
	for _, m := range weirv1.WeirService_ServiceDesc.Methods {
		methods = append(methods, method{"/weir.v1.WeirService/" + m.MethodName, false})
	}
	entries := []*weirv1.Entry{{Key: "a", Value: "1"}, {Key: "b", RawValue: []byte("\xff")}}
	d := &weirv1.Descriptor{Entries: entries, Hits: proto.Uint64(1 << 40), Refund: true}
	check := &weirv1.CheckRequest{Domain: "default", Descriptors: []*weirv1.Descriptor{d, {Entries: entries[:1]}}, Hits: 3}
	for _, m := range []proto.Message{
		check, &weirv1.CheckBatchRequest{Requests: []*weirv1.CheckRequest{check, {}}}, &weirv1.PeekRequest{Domain: "default", Descriptors: check.Descriptors},
		&weirv1.ExplainRequest{Domain: "default", Entries: entries}, &weirv1.EnqueueRequest{Domain: "default", Entries: entries, Request: &weirv1.HttpRequest{Path: []byte("/")}},
		&weirv1.ListRulesRequest{PageSize: 1, PageToken: pageToken("x", "", 1)}, &weirv1.TopRequest{Limit: 3}, &weirv1.WatchStatsRequest{Top: 3},
		&weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Descriptor_{Descriptor_: d}}, &weirv1.ResetRequest{Domain: "default", What: &weirv1.ResetRequest_Rule{Rule: "r"}},
		request("default", "a=1 b=2 , remote_address=x"),
	} {
		message, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for i := range methods {
			f.Add(uint8(i), message)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, message []byte) {
		m := methods[int(which)%len(methods)]
		switch err := raw(t.Context(), s.conn, m.name, m.stream, message); grpcstatus.Code(err) {
		case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented, codes.Unavailable:
			t.Errorf("%s with %q: %v", m.name, message, err)
		}
	})
}
