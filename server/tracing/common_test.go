package tracing

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"weir/limiter"
	"weir/rules"
	"weir/server"
)

// TestMain keeps the environment of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// receiver is the server's side of OTLP, over gRPC and HTTP.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range req.ResourceSpans {
		r.resource = attributes(of.Resource.Attributes)
		for _, in := range of.ScopeSpans {
			r.spans = append(r.spans, in.Spans...)
		}
	}
	return new(collector.ExportTraceServiceResponse), nil
}

func (r *receiver) all() []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans
}

// named is the only span of that name.
func (r *receiver) named(t *testing.T, name string) *tracepb.Span {
	t.Helper()
	var found []*tracepb.Span
	for _, s := range r.all() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d spans %q among %d", len(found), name, len(r.all()))
	}
	return found[0]
}

func attributes(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range list {
		m[a.Key] = a.Value.GetStringValue()
		if b, ok := a.Value.Value.(*commonpb.AnyValue_BoolValue); ok {
			m[a.Key] = strconv.FormatBool(b.BoolValue)
		}
	}
	return m
}

// receiveGRPC serves OTLP over gRPC, and returns its URL.
func receiveGRPC(t *testing.T) (*receiver, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, s := new(receiver), grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r, "http://" + l.Addr().String()
}

// receiveHTTP is receiveGRPC over HTTP.
func receiveHTTP(t *testing.T) (*receiver, string) {
	t.Helper()
	r := new(receiver)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, h *http.Request) {
		body, err := io.ReadAll(h.Body)
		req := new(collector.ExportTraceServiceRequest)
		if err != nil || h.URL.Path != "/v1/traces" || proto.Unmarshal(body, req) != nil {
			t.Errorf("not OTLP: %s, %v", h.URL.Path, err)
			return
		}
		_, _ = r.Export(h.Context(), req)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	return r, s.URL
}

// logBook keeps what is logged.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open returns the traces that the environment asks for, and what is logged.
func open(t *testing.T, opts Options) (*Tracing, *logBook) {
	t.Helper()
	book := new(logBook)
	opts.Logger = slog.New(slog.NewTextHandler(book, nil))
	traces, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = traces.Shutdown(ctx) // a test that wants the spans has done so
	})
	return traces, book
}

// flush sends all spans, until the receiver has so many at least: grpc ends that of a
// call a little after its answer.
func flush(t *testing.T, traces *Tracing, r *receiver, atLeast int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := traces.provider.ForceFlush(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := len(r.all())
		if n >= atLeast {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %d spans, want %d at least", n, atLeast)
		}
	}
}

const someRules = `
rules:
  - {name: posts, match: {endpoint: /api/posts, user: "*"}, limit: 1, window: 1h}
  - {name: paced, match: {endpoint: /paced}, limit: 50, window: 1s, algorithm: leaky_bucket}
  - {name: wide, match: {endpoint: /wide}, limit: 100, window: 1h}
  - {name: seen, match: {endpoint: /seen}, limit: 0, window: 1h, shadow_mode: true}
`

// serve serves decisions in traces.
func serve(t *testing.T, traces *Tracing) (*server.Service, *grpc.ClientConn) {
	t.Helper()
	live := rules.NewLive(rules.LiveOptions{})
	if err := live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte(someRules)})); err != nil {
		t.Fatal(err)
	}
	s := server.NewService(server.Options{Rules: live, Store: limiter.NewMemory(limiter.MemoryOptions{}), Tracer: traces.Tracer()})
	g := server.NewGRPC(s, server.GRPCOptions{Stats: traces.GRPC()})
	g.SetServing(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return s, conn
}

// request is one descriptor of key, value, key, value, …
func request(words ...string) *rls.RateLimitRequest {
	d := new(rlcommon.RateLimitDescriptor)
	for i := 0; i < len(words); i += 2 {
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: words[i], Value: words[i+1]})
	}
	return &rls.RateLimitRequest{Domain: "default", Descriptors: []*rlcommon.RateLimitDescriptor{d}}
}

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-b7ad6b7169203331-01"
	spanOfCall  = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
)

func hex(b []byte) string {
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, c := range b {
		text.WriteByte(digits[c>>4])
		text.WriteByte(digits[c&15])
	}
	return text.String()
}
