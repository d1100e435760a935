package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/internal/testenv"
	"weir/limiter"
	"weir/rules"
	"weir/server/metrics"
)

// setup is what a test wants of a server. The zero value has no rules, counts in
// memory on a clock that stands still, and listens on nothing.
type setup struct {
	rules       string
	service     Options // Rules, and Store unless it is set, are filled in
	grpc        GRPCOptions
	memory      limiter.MemoryOptions // Now is filled in
	countDenied bool
	onFailure   limiter.FailurePolicy
	realTime    bool // counters go by the real clock, which synctest may replace
	metrics     bool
}

// fixture is a service, and what a test needs around it.
type fixture struct {
	*Service
	live  *rules.Live
	clock *clock
	logs  *logs
}

// clock stands still until a test moves it on.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// monday is a Monday's noon in UTC, in the middle of a month.
var monday = time.Date(2026, time.March, 16, 12, 0, 0, 0, time.UTC)

func newFixture(t testing.TB, s setup) *fixture {
	t.Helper()
	f := &fixture{clock: new(clock), logs: new(logs)}
	f.clock.ns.Store(monday.UnixNano())
	f.live = rules.NewLive(rules.LiveOptions{Options: rules.Options{CountDenied: s.countDenied, OnFailure: s.onFailure}})
	f.load(t, s.rules)
	if s.service.Store == nil {
		s.memory.Now = f.clock.now
		if s.realTime {
			s.memory.Now = time.Now
		}
		s.service.Store = limiter.NewMemory(s.memory)
	}
	s.service.Rules = f.live
	if s.metrics {
		s.service.Metrics = metrics.New(metrics.Options{Rules: f.live})
	}
	s.service.Logger = slog.New(slog.NewTextHandler(f.logs, nil))
	f.Service = NewService(s.service)
	return f
}

// load puts rules into force.
func (f *fixture) load(t testing.TB, text string) {
	t.Helper()
	if err := f.live.Apply("test", rules.ParseSnapshot(map[string][]byte{"rules.yaml": []byte(text)})); err != nil {
		t.Fatal(err)
	}
}

// served is a fixture behind a gRPC connection.
type served struct {
	*fixture
	*GRPC
	conn   *grpc.ClientConn
	client rls.RateLimitServiceClient
}

// start serves over a connection in memory, with real HTTP/2 and real codecs.
func start(t testing.TB, s setup) *served {
	t.Helper()
	f := newFixture(t, s)
	g := NewGRPC(f.Service, s.grpc)
	conn := testenv.InMemory(t, g)
	return &served{f, g, conn, rls.NewRateLimitServiceClient(conn)}
}

// call asks over the connection.
func (s *served) call(t testing.TB, req *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	resp, err := s.client.ShouldRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// ask asks the service itself, from wire form to wire form.
func (f *fixture) ask(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	message, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	c := f.calls.get()
	defer f.calls.put(c)
	c.decode(mem.BufferSlice{mem.SliceBuffer(message)})
	if err := f.Service.answer(ctx, c); err != nil {
		return nil, err
	}
	resp := new(rls.RateLimitResponse)
	return resp, proto.Unmarshal(c.answer.appendTo(nil), resp)
}

// request spells a request as the command line does: "a=1 b=2 , c=3" has two
// descriptors.
func request(domain, text string) *rls.RateLimitRequest {
	req := &rls.RateLimitRequest{Domain: domain}
	for part := range strings.SplitSeq(text, " , ") {
		d := &rlcommon.RateLimitDescriptor{}
		for _, word := range strings.Fields(part) {
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// answerText is an answer without its headers, such as
// "OVER_LIMIT: over posts 2/SECOND left 0 after 1s, ok none".
func answerText(resp *rls.RateLimitResponse) string {
	var statuses []string
	for _, st := range resp.Statuses {
		statuses = append(statuses, statusText(st))
	}
	return resp.OverallCode.String() + ": " + strings.Join(statuses, ", ")
}

func statusText(st *rls.RateLimitResponse_DescriptorStatus) string {
	text := map[rls.RateLimitResponse_Code]string{
		rls.RateLimitResponse_OK: "ok", rls.RateLimitResponse_OVER_LIMIT: "over", rls.RateLimitResponse_UNKNOWN: "unknown",
	}[st.Code]
	if l := st.CurrentLimit; l == nil {
		text += " none"
	} else {
		if l.Name != "" {
			text += " " + l.Name
		}
		text += fmt.Sprintf(" %d/", l.RequestsPerUnit)
		if l.UnitMultiplier != nil {
			text += fmt.Sprint(l.UnitMultiplier.Value)
		}
		text += l.Unit.String()
	}
	text += fmt.Sprintf(" left %d", st.LimitRemaining)
	if st.DurationUntilReset != nil {
		text += fmt.Sprintf(" after %v", st.DurationUntilReset.AsDuration())
	}
	return text
}

// headersText is the headers of an answer, such as "Retry-After: 1; …".
func headersText(resp *rls.RateLimitResponse) string {
	var headers []string
	for _, h := range resp.ResponseHeadersToAdd {
		headers = append(headers, h.Key+": "+h.Value)
	}
	return strings.Join(headers, "; ")
}

// shadowNames is what the metadata says under weir.shadow.
func shadowNames(resp *rls.RateLimitResponse) (names []string) {
	for _, v := range resp.DynamicMetadata.GetFields()["weir"].GetStructValue().GetFields()["shadow"].GetListValue().GetValues() {
		names = append(names, v.GetStringValue())
	}
	return names
}

// storeFunc is a store that does as a test says. It stands for no real store.
type storeFunc func(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error)

func (f storeFunc) Decide(ctx context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
	return f(ctx, hits)
}

// logs keeps what is logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
