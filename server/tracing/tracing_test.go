package tracing

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"weir/server"
)

func TestADecisionGoesOnInTheCallersTrace(t *testing.T) {
	for _, c := range []struct {
		protocol string
		receive  func(*testing.T) (*receiver, string)
	}{{"grpc", receiveGRPC}, {"http/protobuf", receiveHTTP}} {
		t.Run(c.protocol, func(t *testing.T) {
			r, url := c.receive(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.protocol)
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
			traces, _ := open(t, Options{Version: "1.2.3"})
			_, conn := serve(t, traces)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
			if _, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request("endpoint", "/api/posts", "user", "alice")); err != nil {
				t.Fatal(err)
			}
			if _, err := healthpb.NewHealthClient(conn).Check(ctx, new(healthpb.HealthCheckRequest)); err != nil {
				t.Fatal(err)
			}
			flush(t, traces, r, 2)

			call, store := r.named(t, spanOfCall), r.named(t, "store")
			if len(r.all()) != 2 {
				t.Errorf("there are %d spans, want those of the call and the store: health checks have none", len(r.all()))
			}
			if got := hex(call.TraceId) + " " + hex(call.ParentSpanId); got != traceID+" b7ad6b7169203331" {
				t.Errorf("the call's trace and parent are %s", got)
			}
			if hex(store.TraceId) != traceID || hex(store.ParentSpanId) != hex(call.SpanId) {
				t.Error("the store's span is not within the call's")
			}
			got := attributes(call.Attributes)
			for name, want := range map[string]string{"weir.domain": "default", "weir.rule": "posts", "weir.outcome": "near_limit", "weir.refused": "false"} {
				if got[name] != want {
					t.Errorf("%s is %q, want %q", name, got[name], want)
				}
			}
			for name, want := range map[string]string{"service.name": "weir", "service.version": "1.2.3", "deployment.environment.name": "test"} {
				if r.resource[name] != want {
					t.Errorf("the resource's %s is %q, want %q", name, r.resource[name], want)
				}
			}
			for _, s := range r.all() {
				if strings.Contains(s.String(), "alice") {
					t.Errorf("a client's value is told: %v", s)
				}
			}
		})
	}
}

func TestATraceTellsTheOutcome(t *testing.T) {
	r, url := receiveGRPC(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
	traces, _ := open(t, Options{})
	_, conn := serve(t, traces)
	client := rls.NewRateLimitServiceClient(conn)
	for _, x := range []struct {
		request       *rls.RateLimitRequest
		rule, outcome string
		refused       string
		remark        string
	}{
		{request("endpoint", "/api/posts", "user", "bob"), "posts", "near_limit", "false", "the last that may pass"},
		{request("endpoint", "/api/posts", "user", "bob"), "posts", "over_limit", "true", "one too many"},
		{request("endpoint", "/seen"), "seen", "shadow_over_limit", "false", "refused in shadow"},
		{&rls.RateLimitRequest{Domain: "default", Descriptors: append(request("endpoint", "/wide").Descriptors, request("endpoint", "/seen").Descriptors...)},
			"wide", "shadow_over_limit", "false", "passes, and another rule in shadow would have refused"},
		{request("endpoint", "/wide"), "wide", "ok", "false", "far from the limit"},
		{request("endpoint", "/elsewhere"), "", "ok", "false", "no rule"},
	} {
		if _, err := client.ShouldRateLimit(t.Context(), x.request); err != nil {
			t.Fatal(err)
		}
		spans := 2 // the call's and the store's
		if x.rule == "" {
			spans = 1
		}
		flush(t, traces, r, spans)
		got := attributes(r.named(t, spanOfCall).Attributes)
		if got["weir.rule"] != x.rule || got["weir.outcome"] != x.outcome || got["weir.refused"] != x.refused {
			t.Errorf("%s: rule %q, outcome %q, refused %q; want %q, %q, %q",
				x.remark, got["weir.rule"], got["weir.outcome"], got["weir.refused"], x.rule, x.outcome, x.refused)
		}
		r.mu.Lock()
		r.spans = nil
		r.mu.Unlock()
	}
	for range 3 { // the second waits 20 ms, the third another 20
		if _, err := client.ShouldRateLimit(t.Context(), request("endpoint", "/paced")); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, traces, r, 6)
	held := false
	for _, s := range r.all() {
		held = held || s.Name == "hold" && s.EndTimeUnixNano-s.StartTimeUnixNano > uint64(time.Millisecond)
	}
	if !held {
		t.Error("no span tells that a request was held")
	}
	if _, err := client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{}); err == nil {
		t.Error("an empty request is answered")
	}
}

func TestHTTPIsInTracesToo(t *testing.T) {
	r, url := receiveHTTP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_SERVICE_NAME", "named")
	traces, _ := open(t, Options{})
	s, _ := serve(t, traces)
	h := traces.HTTP(server.NewHTTP(s, server.HTTPOptions{
		Ready: func() (string, error) { return "", nil }, Rules: func() any { return nil },
	}))
	get := func(method, path, body string) int {
		req := httptest.NewRequest(method, path, strings.NewReader(body))
		req.Header.Set("traceparent", traceparent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code
	}
	if code := get("POST", "/json", `{"domain": "default", "descriptors": [{"entries": [{"key": "endpoint", "value": "/seen"}]}]}`); code != 200 {
		t.Fatalf("/json answers %d", code)
	}
	get("GET", "/healthz", "")
	get("GET", "/v1/counters/alice", "")
	flush(t, traces, r, 3)
	call := r.named(t, "HTTP /json")
	if hex(call.TraceId) != traceID || attributes(call.Attributes)["weir.rule"] != "seen" || r.resource["service.name"] != "named" {
		t.Errorf("%v of %v", call, r.resource)
	}
	if hex(r.named(t, "store").ParentSpanId) != hex(call.SpanId) {
		t.Error("the store's span is not within the call's")
	}
	if other := r.named(t, "HTTP /v1/…"); strings.Contains(other.String(), "alice") || len(r.all()) != 3 {
		t.Errorf("%d spans, %v", len(r.all()), other)
	}
}

func TestADeliveryGoesOnInTheTraceOfItsRequest(t *testing.T) {
	r, url := receiveHTTP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	traces, _ := open(t, Options{})
	var got string
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, h *http.Request) {
		got = h.Header.Get("traceparent")
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer upstream.Close()
	req := httptest.NewRequest(http.MethodPost, upstream.URL+"/orders/alice", nil)
	req.RequestURI = ""
	req.Header.Set("traceparent", traceparent)
	resp, err := (&http.Client{Transport: traces.Deliveries(http.DefaultTransport)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	flush(t, traces, r, 1)
	s := r.named(t, "deliver")
	if hex(s.TraceId) != traceID || got != "00-"+traceID+"-"+hex(s.SpanId)+"-01" || s.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the upstream goes on with %s; the span is %v", got, s)
	}
	if strings.Contains(s.String(), "alice") || req.Header.Get("traceparent") != traceparent {
		t.Errorf("%v; the request has %v", s, req.Header)
	}
}

func TestWhatTheVariablesAskFor(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for _, c := range []struct {
		env    string
		opts   Options
		on     bool
		logged string
	}{
		{"", Options{}, false, ""},
		{endpoint, Options{}, true, "protocol=http/protobuf endpoint=http://127.0.0.1:1"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://me:secret@host:1", Options{}, true, "https://me:xxxxx@host:1"},
		{"OTEL_TRACES_EXPORTER=otlp", Options{}, true, "endpoint=localhost:4318"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", Options{}, true, "endpoint=localhost:4317"},
		{"OTEL_TRACES_EXPORTER=none " + endpoint, Options{}, false, ""},
		{"OTEL_TRACES_EXPORTER=zipkin " + endpoint, Options{}, false, "names no exporter"},
		{"OTEL_SDK_DISABLED=TRUE " + endpoint, Options{}, false, ""},
		{"", Options{On: true, Protocol: "grpc"}, true, "protocol=grpc"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", Options{On: true, Protocol: "grpc"}, true, "protocol=http/protobuf"},
		{"OTEL_TRACES_EXPORTER=none", Options{On: true}, false, ""},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=http/json", Options{}, true, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc or http/protobuf"},
		{endpoint + " OTEL_BSP_MAX_QUEUE_SIZE=many", Options{}, true, "OTEL_BSP_MAX_QUEUE_SIZE is a whole number"},
		{endpoint + " OTEL_TRACES_SAMPLER=sometimes", Options{}, true, "sometimes"},
		{endpoint + " OTEL_PROPAGATORS=b3", Options{}, true, "tracecontext"},
	} {
		t.Run(c.env, func(t *testing.T) {
			for _, v := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			traces, book := open(t, c.opts)
			if (traces != nil) != c.on || traces != nil && traces.GRPC() == nil {
				t.Errorf("traces: %t, want %t", traces != nil, c.on)
			}
			if traces == nil && (traces.GRPC() != nil || traces.Tracer() != nil || traces.Deliveries(http.DefaultTransport) != http.DefaultTransport) {
				t.Error("without traces something follows requests")
			}
			if !strings.Contains(book.String(), c.logged) || strings.Contains(book.String(), "secret") {
				t.Errorf("it logs\n%s, want %q", book.String(), c.logged)
			}
		})
	}
	for _, text := range []string{"collector:4317", "127.0.0.1:4317", "http://", "grpc://host:1", "me:secret@host:1"} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", text)
		if _, err := New(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT: it is http://host:port") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOnlySampledRequestsAreFollowed(t *testing.T) {
	r, url := receiveHTTP(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	none := 0.0
	traces, _ := open(t, Options{SampleRate: &none})
	_, conn := serve(t, traces)
	client := rls.NewRateLimitServiceClient(conn)
	for _, parent := range []string{"", traceparent[:len(traceparent)-1] + "0", traceparent} {
		ctx := t.Context()
		if parent != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
		}
		if _, err := client.ShouldRateLimit(ctx, request("endpoint", "/seen")); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, traces, r, 2)
	if n := len(r.all()); n != 2 { // a call's, and its store's
		t.Errorf("there are %d spans, want those of the one call that Envoy samples", n)
	}
}

// A receiver that takes connections and answers nothing is worse than none.
func TestAReceiverThatIsAwayCostsNoDecision(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "300") // it tries again until then
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
	traces, book := open(t, Options{})
	_, conn := serve(t, traces)
	client := rls.NewRateLimitServiceClient(conn)
	begin := time.Now()
	for range 2000 { // 4000 spans, and room for 100
		if _, err := client.ShouldRateLimit(t.Context(), request("endpoint", "/seen")); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("2000 decisions took %v", took)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(book.String(), "traces are lost"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not tell:\n%s", book)
		}
	}
	if n := strings.Count(book.String(), "traces are lost"); n != 1 {
		t.Errorf("it tells %d times", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin = time.Now()
	_ = traces.Shutdown(ctx)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the stop waits %v for it", took)
	}
}
