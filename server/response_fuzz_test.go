package server

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/limiter"
	"weir/rules"
)

// FuzzResponse holds that for any request, decisions and settings the official
// decoder reads an answer that says what was decided, in headers that are some.
func FuzzResponse(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, "posts", "alice")
	}
	if snap, sound := namedRules("posts"); !sound {
		f.Fatal(snap.Faults)
	}
	for seed := range uint64(12) {
		f.Add(seed, "a\r\nb: c\u0080", "\xff\xfe")
		f.Add(seed, strings.Repeat("né", 800), strings.Repeat("x", 2000))
		f.Add(seed, `"\";q=1`, "a=b,c;d")
	}
	f.Fuzz(func(t *testing.T, seed uint64, name, value string) {
		r := rand.New(rand.NewPCG(seed, 8))
		snap, sound := namedRules(name)
		if !sound {
			return
		}
		var hits []limiter.Hit
		var decisions []limiter.Decision
		store := storeFunc(func(_ context.Context, asked []limiter.Hit) ([]limiter.Decision, error) {
			hits, decisions = slices.Clone(asked), randomDecisions(r, asked)
			return decisions, nil
		})
		opts := randomOptions(r, name)
		opts.Store = store
		fix := newFixture(t, setup{service: opts})
		if err := fix.live.Apply("test", snap); err != nil {
			t.Fatal(err)
		}
		request := randomRequest(r, value)
		c := new(call)
		c.decode(mem.BufferSlice{mem.SliceBuffer(request)})
		if err := fix.answer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		got := new(rls.RateLimitResponse)
		if err := proto.Unmarshal(c.answer.appendTo(nil), got); err != nil {
			t.Fatalf("%v: %+v", err, c.answer)
		}
		checkResponse(t, got, &c.plan, decisions, opts.Shadow || limiter.Passes(hits, decisions))
	})
}

// namedRules are rules with this name wherever a name can be. Not every name is one.
func namedRules(name string) (snap rules.Snapshot, sound bool) {
	limit := map[string]any{"limit": 5, "window": "1m"}
	match := func(key string, more map[string]any) map[string]any {
		more["match"] = map[string]any{key: "*"}
		return more
	}
	text, err := json.Marshal(map[string]any{"rules": []any{
		match("named", map[string]any{"name": name, "limits": []any{limit, limit, map[string]any{"limit": 4294967295, "window": "1500ms"}}, "metadata": map[string]any{name: name, "n": 1.5, "m": []any{nil, true, name}}}),
		match("shadow", map[string]any{"name": name + "s", "limit": 1, "window": "month", "shadow_mode": true}),
		match("quota", map[string]any{"limit": 0, "window": "1h", "quota_mode": true, "metadata": map[string]any{"m": map[string]any{name: 1}}}),
		match("bucket", map[string]any{"limit": 3, "window": "366h", "algorithm": "token_bucket", "burst": 3_000_000}),
		match("free", map[string]any{"unlimited": true, "metadata": map[string]any{"m": map[string]any{"x": 1 << 60}}}),
		map[string]any{"match": map[string]any{"path": name}, "limit": 1, "window": "1s"},
	}})
	if err != nil {
		return snap, false
	}
	snap = rules.ParseSnapshot(map[string][]byte{"rules.yaml": text})
	_, err = rules.Compile(snap.Documents...)
	return snap, err == nil && len(snap.Faults) == 0
}

func randomOptions(r *rand.Rand, text string) Options {
	opts := Options{Shadow: r.IntN(6) == 0, UpstreamHeaders: r.IntN(2) == 0, Metadata: MetadataStyle(r.IntN(4))}
	opts.Headers = HeaderOptions{Style: HeaderStyle(r.IntN(32)), Jitter: time.Duration(r.IntN(3)) * time.Second}
	if r.IntN(3) == 0 {
		opts.Headers.Names = &HeaderNames{Limit: text, Reset: "X-Reset"}
	}
	if opts.Headers.Validate() != nil {
		opts.Headers = HeaderOptions{Style: Draft03 | IETFPartitions}
	}
	opts.Denied.Body = []DeniedBody{{}, ProblemBody(), FixedBody([]byte(text), "text/html")}[r.IntN(3)]
	return opts
}

// randomRequest has a descriptor of each rule, or of some, as Envoy encodes it.
func randomRequest(r *rand.Rand, value string) []byte {
	b := appendString(nil, 1, "default")
	keys := []string{"named", "shadow", "quota", "bucket", "free", "path", "unknown"}
	for range 1 + r.IntN(6) {
		key := keys[r.IntN(len(keys))]
		d := appendBytes(nil, 1, appendString(appendString(nil, 1, key), 2, value))
		if r.IntN(5) == 0 {
			d = appendBytes(d, 2, appendVarint(appendVarint(nil, 1, uint64(r.Uint32())), 2, uint64(1+r.IntN(6))))
		}
		if r.IntN(5) == 0 {
			d = appendBytes(d, 3, appendVarint(nil, 1, r.Uint64()>>r.IntN(64)))
		}
		if r.IntN(8) == 0 {
			d = appendVarint(d, 4, 1)
		}
		b = appendBytes(b, 2, d)
	}
	return b
}

// randomDecisions are what a store may say of the hits.
func randomDecisions(r *rand.Rand, hits []limiter.Hit) []limiter.Decision {
	decisions := make([]limiter.Decision, len(hits))
	for i := range hits {
		d := &decisions[i]
		d.Allowed = hits[i].Refund || r.IntN(2) == 0
		d.Remaining = r.Uint64() >> r.IntN(65)
		d.ResetAfter = time.Duration(r.Uint64() >> (1 + r.IntN(64)))
		if !d.Allowed && r.IntN(4) > 0 {
			d.RetryAfter = time.Duration(r.Uint64() >> (1 + r.IntN(64)))
		}
	}
	return decisions
}

func checkResponse(t *testing.T, got *rls.RateLimitResponse, p *rules.Plan, decisions []limiter.Decision, passes bool) {
	t.Helper()
	if is := got.OverallCode == rls.RateLimitResponse_OK; is != passes || got.OverallCode == rls.RateLimitResponse_UNKNOWN {
		t.Fatalf("it is %t that the request passes, and the answer says %v", passes, got.OverallCode)
	}
	if len(got.Statuses) != len(p.Matches) {
		t.Fatalf("%d statuses of %d descriptors", len(got.Statuses), len(p.Matches))
	}
	for i, st := range got.Statuses {
		m, over := &p.Matches[i], false
		for h := m.First; h < m.First+m.Hits; h++ {
			over = over || !decisions[h].Allowed
		}
		if m.Hits > 0 && p.Hits[m.First].Shadow {
			over = false
		}
		if is := st.Code == rls.RateLimitResponse_OVER_LIMIT; is != over || (st.CurrentLimit != nil) != (m.Hits > 0) {
			t.Fatalf("descriptor %d, which is over the limit: %t: %v", i, over, st)
		}
		if l := st.CurrentLimit; l != nil {
			want := ""
			if r := p.Rules[m.First]; r != nil {
				want = toValid(r.Name)
			}
			if l.Name != want {
				t.Fatalf("descriptor %d: the limit is called %q, not %q", i, l.Name, want)
			}
		}
		if d := st.DurationUntilReset; d != nil && (d.Seconds < 0 || d.Nanos != 0 || d.CheckValid() != nil) {
			t.Fatalf("descriptor %d: %v", i, st)
		}
	}
	for _, h := range got.ResponseHeadersToAdd {
		checkHeader(t, h.Key, h.Value)
	}
	for _, h := range got.RequestHeadersToAdd {
		checkHeader(t, h.Key, h.Value)
		if !passes {
			t.Fatalf("the upstream is told %s of a request that it does not see", h.Key)
		}
	}
	if passes && len(got.RawBody) > 0 {
		t.Fatalf("a request that passes has the body %q", got.RawBody)
	}
	if body := got.RawBody; strings.HasPrefix(string(body), `{"type":"https://iana`) && !json.Valid(body) {
		t.Fatalf("no JSON: %s", body)
	}
}

func checkHeader(t *testing.T, key, value string) {
	t.Helper()
	if !httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(value) || strings.TrimSpace(value) != value {
		t.Fatalf("no header: %q: %q", key, value)
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			t.Fatalf("not plain ASCII: %q: %q", key, value)
		}
	}
	switch http.CanonicalHeaderKey(key) {
	case "Retry-After", "X-Ratelimit-Retry-After", "X-Ratelimit-Remaining":
		if n, err := strconv.ParseUint(value, 10, 64); err != nil || n == 0 && !strings.HasSuffix(key, "Remaining") {
			t.Fatalf("%s: %s", key, value)
		}
	case "Ratelimit", "Ratelimit-Policy":
		list, err := httpsfv.UnmarshalList([]string{value})
		if err != nil || len(list) == 0 {
			t.Fatalf("no structured field: %s: %s: %v", key, value, err)
		}
	}
}
