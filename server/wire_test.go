package server

import (
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/rules"
)

func decoded(t testing.TB, m proto.Message) *call {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c := new(call)
	c.decode(mem.BufferSlice{mem.SliceBuffer(b)})
	return c
}

func sampleRequest() *rls.RateLimitRequest {
	return &rls.RateLimitRequest{
		Domain:     "shop",
		HitsAddend: 3,
		Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "a", Value: "1"}, {Key: "b"}}},
			{
				Entries:        []*rlcommon.RateLimitDescriptor_Entry{{Key: "c", Value: "é"}},
				Limit:          &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_HOUR},
				HitsAddend:     wrapperspb.UInt64(0),
				IsNegativeHits: true,
			},
		},
	}
}

func TestARequestIsReadAsTheOfficialDecoderReadsIt(t *testing.T) {
	c := decoded(t, sampleRequest())
	if c.fault != nil {
		t.Fatal(c.fault)
	}
	checkAgainst(t, sampleRequest(), c)
}

// checkAgainst holds a decoded call against the official message.
func checkAgainst(t testing.TB, want *rls.RateLimitRequest, c *call) {
	t.Helper()
	r := &c.request
	if r.Domain != want.Domain || r.Hits != uint64(want.HitsAddend) || len(r.Descriptors) != len(want.Descriptors) {
		t.Fatalf("got %+v, want %v", r, want)
	}
	for i, d := range want.Descriptors {
		got := &r.Descriptors[i]
		if got.HasHits != (d.HitsAddend != nil) || got.Hits != d.HitsAddend.GetValue() || got.Refund != d.IsNegativeHits {
			t.Errorf("descriptor %d: got %+v, want %v", i, got, d)
		}
		if (got.Override != nil) != (d.Limit != nil) || len(got.Entries) != len(d.Entries) {
			t.Fatalf("descriptor %d: got %+v, want %v", i, got, d)
		}
		if l := d.Limit; l != nil {
			if want := ownLimit(l); want == nil || got.Override.Limit() != want.Limit() {
				t.Errorf("descriptor %d: the limit of its own is %+v, want %v", i, got.Override.Limit(), l)
			}
		}
		for j, e := range d.Entries {
			if got.Entries[j].Key != e.Key || got.Entries[j].Value != e.Value {
				t.Errorf("descriptor %d, entry %d: got %+v, want %v", i, j, got.Entries[j], e)
			}
		}
	}
}

func TestABadRequestSaysWhatIsWrong(t *testing.T) {
	entry := func(k string) []*rlcommon.RateLimitDescriptor {
		return []*rlcommon.RateLimitDescriptor{{}, {Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "a"}, {Key: k}}}}
	}
	limited := func(n, unit uint32, times *wrapperspb.UInt32Value) *rls.RateLimitRequest {
		d := entry("b")
		d[1].Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typev3.RateLimitUnit(unit), UnitMultiplier: times}
		return &rls.RateLimitRequest{Domain: "d", Descriptors: d}
	}
	for _, x := range []struct {
		remark string
		req    *rls.RateLimitRequest
		want   string
	}{
		{"no domain", &rls.RateLimitRequest{Descriptors: entry("b")}, "domain is empty"},
		{"no descriptors", &rls.RateLimitRequest{Domain: "d"}, "no descriptors"},
		{"an empty key", &rls.RateLimitRequest{Domain: "d", Descriptors: entry("")}, "descriptor 2: entry 2 has an empty key"},
		{"too many descriptors", &rls.RateLimitRequest{Domain: "d", Descriptors: make([]*rlcommon.RateLimitDescriptor, maxDescriptors+1)}, "1001 descriptors"},
		{"a limit without a unit", limited(1, 0, nil), "descriptor 2: limit"},
		{"a limit of an unknown unit", limited(1, 99, nil), "descriptor 2: limit"},
		{"a limit over no units", limited(1, 1, wrapperspb.UInt32(0)), "descriptor 2: limit"},
		{"a limit over too many units", limited(1, 6, wrapperspb.UInt32(2)), "descriptor 2: limit"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			c := decoded(t, x.req)
			if c.fault == nil || !strings.Contains(c.fault.Error(), x.want) {
				t.Errorf("fault %v, want one with %q", c.fault, x.want)
			}
		})
	}
}

// sound tells whether nothing is wrong with a request.
func sound(req *rls.RateLimitRequest) bool {
	for _, d := range req.Descriptors {
		for _, e := range d.Entries {
			if e.Key == "" {
				return false
			}
		}
		if d.Limit != nil && ownLimit(d.Limit) == nil {
			return false
		}
	}
	entries := 0
	for _, d := range req.Descriptors {
		entries += len(d.Entries)
	}
	return req.Domain != "" && len(req.Descriptors) > 0 && len(req.Descriptors) <= maxDescriptors && entries <= maxEntries
}

// ownLimit is what an official limit asks for; nil if it is not sound.
func ownLimit(l *rlcommon.RateLimitDescriptor_RateLimitOverride) *rules.Override {
	times := uint32(1)
	if l.UnitMultiplier != nil {
		times = l.UnitMultiplier.Value
	}
	o, err := rules.NewOverride(l.RequestsPerUnit, l.Unit.String(), times)
	if err != nil {
		return nil
	}
	return o
}
