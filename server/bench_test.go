package server

import (
	"math"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/limiter"
)

// BenchmarkShouldRateLimit is a whole answer but for the network: decode, plan,
// decide in memory, respond, encode. With metrics and without.
func BenchmarkShouldRateLimit(b *testing.B) {
	for _, x := range []struct{ name, ask string }{
		{"OneLimit", "endpoint=/api/posts user=alice"},
		{"Refused", "endpoint=/shut"},
		{"FourDescriptors", "endpoint=/api/posts user=alice , remote_address=192.0.2.7 , a=b , endpoint=/free"},
		{"NoLimit", "a=b"},
		{"EachValue", "endpoint=/each user=alice"},
	} {
		for _, with := range []string{"", "Metrics"} {
			b.Run(x.name+with, func(b *testing.B) {
				f := newFixture(b, setup{realTime: true, metrics: with != "", rules: `
rules:
  - {name: posts, match: {endpoint: /api/posts, user: "*"}, limit: 4000000000, window: 1h}
  - {name: each, match: {endpoint: /each, user: "*"}, limit: 4000000000, window: 1h, value_to_metric: true}
  - {match: {remote_address: "*"}, limit: 4000000000, window: 1s, algorithm: token_bucket}
  - {match: {endpoint: /free}, unlimited: true}
  - {match: {endpoint: /shut}, limit: 0, window: 1s}
`})
				message, err := proto.Marshal(request("default", x.ask))
				if err != nil {
					b.Fatal(err)
				}
				codec := newCodec(f.calls)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						answer, err := f.shouldRateLimit(nil, b.Context(), func(v any) error {
							return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, v)
						}, nil)
						if err != nil {
							b.Fatal(err)
						}
						if _, err := codec.Marshal(answer); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	message, err := proto.Marshal(request("default", "endpoint=/api/posts user=alice , remote_address=192.0.2.7"))
	if err != nil {
		b.Fatal(err)
	}
	data := mem.BufferSlice{mem.SliceBuffer(message)}
	var p calls
	b.ReportAllocs()
	for b.Loop() {
		c := p.get()
		c.decode(data)
		p.put(c)
	}
}

func BenchmarkEncode(b *testing.B) {
	limit := limiter.Limit{Requests: 5, Window: limiter.Window{Length: limiter.DayLength}}
	names := DefaultHeaderNames()
	a := answer{
		statuses: []status{{limit: &limit, name: "posts", remaining: 4, reset: limiter.DayLength, hasReset: true}},
		headers:  names.append(nil, &limiter.Hit{Limit: limit}, &limiter.Decision{Allowed: true, Remaining: 4}, ""),
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = a.appendTo(buf[:0])
	}
}

// The path of every request must not come to allocate more unseen; metrics add
// nothing to it. Counted is the least of many requests: the race detector makes
// pools forget at random.
func TestARequestAllocatesLittle(t *testing.T) {
	for _, rule := range []string{`{match: {a: "*"}, limit: 1000000, window: 1h}`, `{match: {a: "*"}, limit: 1000000, window: 1h, value_to_metric: true}`} {
		without, with := leastAllocations(t, rule, false), leastAllocations(t, rule, true)
		if with > 8 || with > without {
			t.Errorf("%s: a request takes %v allocations, without metrics %v", rule, with, without)
		}
	}
}

func leastAllocations(t *testing.T, rule string, metrics bool) float64 {
	f := newFixture(t, setup{metrics: metrics, rules: "rules: [" + rule + "]"})
	message, err := proto.Marshal(request("default", "a=1"))
	if err != nil {
		t.Fatal(err)
	}
	codec := newCodec(f.calls)
	least := math.Inf(1)
	for range 300 {
		least = min(least, testing.AllocsPerRun(1, func() {
			answer, err := f.shouldRateLimit(nil, t.Context(), func(v any) error {
				return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, v)
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := codec.Marshal(answer); err != nil {
				t.Fatal(err)
			}
		}))
	}
	t.Logf("metrics %t, %s: %v allocations", metrics, rule, least)
	return least
}
