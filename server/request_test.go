package server

import (
	"context"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/limiter"
)

// rawCodec sends and receives bytes as they are: stock codecs refuse to send
// what is not UTF-8.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// rawCall sends bytes as a request.
func (s *served) rawCall(ctx context.Context, message []byte) (*rls.RateLimitResponse, error) {
	var answer []byte
	err := s.conn.Invoke(ctx, rls.RateLimitService_ShouldRateLimit_FullMethodName, &message, &answer, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return nil, err
	}
	resp := new(rls.RateLimitResponse)
	return resp, proto.Unmarshal(answer, resp)
}

// rawRequest is a request of one entry, of any bytes.
func rawRequest(domain, key, value string) []byte {
	entry := appendString(appendString(nil, 1, key), 2, value)
	return appendBytes(appendString(nil, 1, domain), 2, appendBytes(nil, 1, entry))
}

func TestAValueThatIsNotUTF8IsLimitedLikeAnyOther(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {agent: "*"}, limit: 1, window: 1h}]`})
	for i, x := range []struct{ value, want string }{
		{"\xff\xfe", "OK"}, {"\xff\xfe", "OVER_LIMIT"},
		{"\xff\xfd", "OK"}, // another value, another counter
		{"\uFFFD\uFFFD", "OK"},
	} {
		resp, err := s.rawCall(t.Context(), rawRequest("default", "agent", x.value))
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode.String() != x.want {
			t.Errorf("call %d, value %q: %v, want %s", i+1, x.value, resp.OverallCode, x.want)
		}
	}
}

func TestABadRequestIsAnInvalidArgumentAndChargesNothing(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`})
	whole, err := proto.Marshal(request("default", "a=1 b=2"))
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(m *rls.RateLimitRequest) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	twice := request("default", "a=1 , a=1")
	twice.Descriptors[1].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3}
	for _, x := range []struct {
		remark  string
		message []byte
		want    string
	}{
		{"no bytes at all", nil, "the domain is empty"},
		{"no domain", encoded(request("", "a=1")), "the domain is empty"},
		{"no descriptors", encoded(&rls.RateLimitRequest{Domain: "default"}), "no descriptors"},
		{"an empty key", encoded(request("default", "a=1 , a=1 =2")), "descriptor 2: entry 2 has an empty key"},
		{"a limit without a unit", encoded(twice), "descriptor 2: limit"},
		{"a limit over 0 units", encoded(limited("a=1", 1, typev3.RateLimitUnit_DAY, 0)), ""},
		{"a limit over too many", encoded(limited("a=1", 1, typev3.RateLimitUnit_DAY, 367)), "descriptor 1: limit"},
		{"cut within an entry", whole[:len(whole)-1], "EOF"},
		{"cut within the domain", whole[:4], "EOF"},
		{"cut after a tag", whole[:1], "EOF"},
		{"a tag without a number", []byte{0x00}, "reading the request"},
		{"bytes at random", []byte("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "reading the request"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			if x.want == "" { // 0 cannot be said without the wrapper
				m := limited("a=1", 1, typev3.RateLimitUnit_DAY, 0)
				m.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(0)
				x.message, x.want = encoded(m), "descriptor 1: limit"
			}
			_, err := s.rawCall(t.Context(), x.message)
			if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want InvalidArgument with %q", err, x.want)
			}
		})
	}
	if resp := s.call(t, request("default", "a=1")); resp.OverallCode != rls.RateLimitResponse_OK {
		t.Error("a bad request was charged")
	}
}

func TestARequestWhoseDeadlineHasPassedDoesNotReachTheStore(t *testing.T) {
	asked := 0
	f := newFixture(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{
		Store: storeFunc(func(_ context.Context, hits []limiter.Hit) ([]limiter.Decision, error) {
			asked++
			return make([]limiter.Decision, len(hits)), nil
		}),
	}})
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for ctx, want := range map[context.Context]codes.Code{late: codes.DeadlineExceeded, left: codes.Canceled} {
		if _, err := f.ask(ctx, request("default", "a=1")); grpcstatus.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if asked > 0 {
		t.Errorf("the store was asked %d times", asked)
	}
}

func TestALookAndARefundAreReadFromTheWire(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 3, window: 1h}]`})
	own := func(hits uint64, refund bool) *rls.RateLimitRequest {
		req := request("default", "a=1")
		req.HitsAddend = 2 // the descriptor's own counts instead
		req.Descriptors[0].HitsAddend, req.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(hits), refund
		return req
	}
	unnumbered := own(0, true)
	unnumbered.HitsAddend, unnumbered.Descriptors[0].HitsAddend = 0, nil
	for i, x := range []struct {
		remark string
		req    *rls.RateLimitRequest
		want   string
	}{
		{"a look", own(0, false), "OK: ok 3/HOUR left 3 after 0s"},
		{"a charge of its own cost", own(3, false), "OK: ok 3/HOUR left 0 after 1h0m0s"},
		{"a look passes while used is not over the limit", own(0, false), "OK: ok 3/HOUR left 0 after 1h0m0s"},
		{"a refund", own(2, true), "OK: ok 3/HOUR left 2 after 1h0m0s"},
		{"a refund without a number is 1", unnumbered, "OK: ok 3/HOUR left 3 after 0s"},
		{"a cost past 2^32", own(1<<40, false), "OVER_LIMIT: over 3/HOUR left 3"},
	} {
		if got := answerText(s.call(t, x.req)); got != x.want {
			t.Errorf("step %d, %s: got %s, want %s", i+1, x.remark, got, x.want)
		}
	}
}
