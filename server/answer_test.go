package server

import (
	"math/rand/v2"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weir/limiter"
)

// FuzzAnswer holds the encoder against the official decoder: what is encoded by
// hand is read as the same message that the official types make.
func FuzzAnswer(f *testing.F) {
	f.Add(uint64(1), "posts", "é")
	f.Add(uint64(2), "", "")
	f.Add(uint64(3), "\xff", "a\r\n\x00b")
	f.Fuzz(func(t *testing.T, seed uint64, name, text string) {
		r := rand.New(rand.NewPCG(seed, 7))
		name, text = toValid(name), toValid(text)
		var a answer
		for range 2 { // a second time with the memory of the first
			a.clear()
			want := randomAnswer(r, &a, name, text)
			got := new(rls.RateLimitResponse)
			if err := proto.Unmarshal(a.appendTo(nil), got); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got, want) {
				t.Fatalf("encoded and decoded\n%v\nwant\n%v", got, want)
			}
		}
	})
}

// randomAnswer fills a, and returns the same as the official type.
func randomAnswer(r *rand.Rand, a *answer, name, text string) *rls.RateLimitResponse {
	want := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	if a.over = r.IntN(2) == 0; a.over {
		want.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	for range r.IntN(4) {
		st, official := randomStatus(r, name)
		a.statuses = append(a.statuses, st)
		want.Statuses = append(want.Statuses, official)
	}
	for range r.IntN(4) {
		a.headers = append(a.headers, textHeader(name, text))
		want.ResponseHeadersToAdd = append(want.ResponseHeadersToAdd, &corev3.HeaderValue{Key: name, Value: text})
	}
	for range r.IntN(3) {
		a.upstream = append(a.upstream, textHeader(name, text))
		want.RequestHeadersToAdd = append(want.RequestHeadersToAdd, &corev3.HeaderValue{Key: name, Value: text})
	}
	if r.IntN(2) == 0 && text != "" {
		a.body, want.RawBody = []byte(text), []byte(text)
	}
	if r.IntN(2) == 0 {
		want.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{name: structpb.NewStringValue(text)}}
		a.metadata, _ = proto.Marshal(want.DynamicMetadata) // of valid text: cannot fail
	}
	return want
}

func randomStatus(r *rand.Rand, name string) (status, *rls.RateLimitResponse_DescriptorStatus) {
	st := status{over: r.IntN(2) == 0, remaining: r.Uint32() >> r.IntN(33)}
	official := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK, LimitRemaining: st.remaining}
	if st.over {
		official.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	if r.IntN(3) > 0 {
		unit := units[r.IntN(len(units))]
		times := 1 + r.Uint32N(uint32(limiter.MaxWindow/unit.length))
		st.limit = &limiter.Limit{Requests: uint64(r.Uint32() >> r.IntN(33)), Window: limiter.Window{Length: unit.length * time.Duration(times)}}
		st.name = name
		largest, n := unitOf(st.limit.Window)
		official.CurrentLimit = &rls.RateLimitResponse_RateLimit{RequestsPerUnit: uint32(st.limit.Requests), Unit: largest, Name: name}
		if n > 1 {
			official.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(uint32(n))
		}
	}
	if st.hasReset = r.IntN(2) == 0; st.hasReset {
		whole := r.Int64N(400 * 24 * 3600)
		st.reset = time.Duration(whole) * time.Second
		official.DurationUntilReset = &durationpb.Duration{Seconds: whole}
	}
	return st, official
}
