package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
)

// described spells descriptors as request does.
func described(text string) (out []*weirv1.Descriptor) {
	for _, d := range request("", text).Descriptors {
		own := &weirv1.Descriptor{}
		for _, e := range d.Entries {
			own.Entries = append(own.Entries, weirv1.NewEntry(e.Key, e.Value))
		}
		out = append(out, own)
	}
	return out
}

func TestCheckTellsWhatEachLimitSays(t *testing.T) {
	s := start(t, setup{rules: `
rules:
  - name: both
    match: {a: "*"}
    limits:
      - {limit: 3, window: 1500ms}
      - {limit: 1, window: 1s, algorithm: token_bucket}
  - {match: {b: "*"}, limit: 0, window: day, timezone: Asia/Tokyo, shadow_mode: true}
`})
	api := weirv1.NewWeirServiceClient(s.conn)
	check := func(req *weirv1.CheckRequest) *weirv1.CheckResponse {
		t.Helper()
		resp, err := api.Check(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := check(&weirv1.CheckRequest{Domain: "default", Descriptors: described("nothing=1 , a=1 , b=1")})
	if !resp.Allowed || len(resp.Decisions) != 3 {
		t.Fatalf("got %v, want three decisions and allowed", resp)
	}
	first, second, third := resp.Decisions[0], resp.Decisions[1], resp.Decisions[2]
	if first.DescriptorIndex != 1 || first.Rule != "both" || first.Algorithm != "fixed_window" || first.Limit != 3 ||
		first.Window.AsDuration() != 1500*time.Millisecond || !first.Allowed || first.Remaining != 2 || first.RetryAfter != nil {
		t.Errorf("the first limit: %v", first)
	}
	if second.Algorithm != "token_bucket" || second.Remaining != 0 || second.ResetAfter.AsDuration() != time.Second {
		t.Errorf("the second limit: %v", second)
	}
	if third.DescriptorIndex != 2 || third.Rule != "b=*" || third.Allowed || !third.Shadow || third.RetryAfter != nil || third.Window.AsDuration() != 24*time.Hour {
		t.Errorf("the shadow limit: %v", third)
	}
	s.clock.advance(250 * time.Millisecond)
	resp = check(&weirv1.CheckRequest{Domain: "default", Descriptors: described("a=1")})
	if resp.Allowed || !resp.Decisions[0].Allowed || resp.Decisions[1].Allowed || resp.Decisions[1].RetryAfter.AsDuration() != 750*time.Millisecond {
		t.Errorf("refused: %v; want by the second limit, for 750ms exactly", resp)
	}
	look := described("a=1")
	look[0].Hits = proto.Uint64(0)
	if resp := check(&weirv1.CheckRequest{Domain: "default", Descriptors: look, Hits: 5}); !resp.Allowed || resp.Decisions[0].Remaining != 2 {
		t.Errorf("a look: %v", resp)
	}
	refund := described("a=1")
	refund[0].Refund, refund[0].Entries[0].Value = true, "1"
	if resp := check(&weirv1.CheckRequest{Domain: "default", Descriptors: refund}); !resp.Allowed || resp.Decisions[0].Remaining != 3 || resp.Decisions[1].Remaining != 1 {
		t.Errorf("a refund: %v", resp)
	}
}

func TestCheckAndEnvoysCallShareCounters(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 2, window: 1h}]`})
	s.call(t, request("default", "a=1"))
	resp, err := weirv1.NewWeirServiceClient(s.conn).Check(t.Context(), &weirv1.CheckRequest{Domain: "default", Descriptors: described("a=1")})
	if err != nil || resp.Decisions[0].Remaining != 0 {
		t.Errorf("got %v, %v; want nothing left", resp, err)
	}
}

func TestAServerInShadowAllowsByCheckToo(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {a: "*"}, limit: 0, window: 1h}]`, service: Options{Shadow: true}})
	resp, err := weirv1.NewWeirServiceClient(s.conn).Check(t.Context(), &weirv1.CheckRequest{Domain: "default", Descriptors: described("a=1")})
	if err != nil || !resp.Allowed || resp.Decisions[0].Allowed {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestExplainTellsTheWayToARule(t *testing.T) {
	s := start(t, setup{service: Options{CounterName: func(k, _ limiter.Key) string { return fmt.Sprintf("weir:%d", len(k)) }}, rules: `
rules:
  - name: login
    match: {path: "/a*", user: "*"}
    limits:
      - {limit: 3, window: month, timezone: Asia/Tokyo}
      - {limit: 5, window: 1s, algorithm: token_bucket, burst: 9, count_denied: true}
    shadow_mode: true
  - {match: {path: "/free"}, unlimited: true}
  - {match: {path: "/in"}, exempt: true}
  - {match: {path: "/hot"}, limit: 10000, window: 1s, accuracy: {lease: 100}}
`})
	api := weirv1.NewWeirServiceClient(s.conn)
	explain := func(text string) *weirv1.ExplainResponse {
		t.Helper()
		resp, err := api.Explain(t.Context(), &weirv1.ExplainRequest{Domain: "default", Entries: described(text)[0].Entries})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Version != s.live.Current().Version() || resp.Text == "" {
			t.Errorf("%s: version %q, text %q", text, resp.Version, resp.Text)
		}
		return resp
	}
	if hot := explain("path=/hot"); len(hot.Limits) != 1 || hot.Limits[0].Lease != 100 || !strings.Contains(hot.Text, "lease 100") {
		t.Errorf("a leased rule: %v", hot)
	}
	resp := explain("path=/abc user=eve")
	if resp.Rule != "login" || !strings.HasPrefix(resp.Place, "rules.yaml:3:") || len(resp.Steps) != 2 || resp.Exempt || resp.Unlimited {
		t.Fatalf("got %v", resp)
	}
	if st := resp.Steps[0]; st.Entry.Value != "/abc" || st.How != "wildcard path=/a*" || st.Place == "" {
		t.Errorf("the first step: %v", st)
	}
	for i, want := range []*weirv1.Limit{
		{Algorithm: "fixed_window", Requests: 3, Calendar: "month", Timezone: "Asia/Tokyo", Shadow: true},
		{Algorithm: "token_bucket", Requests: 5, Burst: 9, CountDenied: true, Shadow: true},
	} {
		got := resp.Limits[i]
		if window := got.Window.AsDuration(); window != []time.Duration{720 * time.Hour, time.Second}[i] {
			t.Errorf("limit %d: window %v", i+1, window)
		}
		if !strings.HasPrefix(got.Counter, "weir:") {
			t.Errorf("limit %d: counter %q", i+1, got.Counter)
		}
		got.Window, got.Counter = nil, ""
		if !proto.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", i+1, got, want)
		}
	}
	if resp := explain("path=/free"); !resp.Unlimited || resp.Rule != "path=/free" || len(resp.Limits) > 0 {
		t.Errorf("unlimited: %v", resp)
	}
	if resp := explain("path=/in"); !resp.Exempt || resp.Rule != "path=/in" {
		t.Errorf("exempt: %v", resp)
	}
	resp = explain("path=/free/ user=eve")
	if resp.Rule != "" || resp.Steps[0].How != "nothing fits" || resp.Steps[0].Place != "" {
		t.Errorf("no match: %v", resp)
	}
	resp = explain("path=/fre")
	if len(resp.NearMisses) == 0 || !slices.ContainsFunc(resp.NearMisses, func(m string) bool { return strings.HasPrefix(m, "path=/free (rules.yaml:") }) {
		t.Errorf("near misses: %q", resp.NearMisses)
	}
}

func TestTheOwnAPISaysWhatIsWrongWithARequest(t *testing.T) {
	s := start(t, setup{rules: `rules: [{match: {path: !!binary "/w=="}, limit: 0, window: 1s}]`})
	api := weirv1.NewWeirServiceClient(s.conn)
	for _, x := range []struct{ remark, domain, descriptors, want string }{
		{"no domain", "", "a=1", "the domain is empty"},
		{"an empty key", "d", "=1", "entry 1 has an empty key"},
	} {
		_, err := api.Check(t.Context(), &weirv1.CheckRequest{Domain: x.domain, Descriptors: described(x.descriptors)})
		if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Check, %s: %v", x.remark, err)
		}
		_, err = api.Explain(t.Context(), &weirv1.ExplainRequest{Domain: x.domain, Entries: described(x.descriptors)[0].Entries})
		if grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Explain, %s: %v", x.remark, err)
		}
	}
	if _, err := api.Check(t.Context(), &weirv1.CheckRequest{Domain: "d"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("Check without descriptors: %v", err)
	}
	if _, err := api.Explain(t.Context(), &weirv1.ExplainRequest{Domain: "d"}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("Explain without entries: %v", err)
	}
	// Bytes that are no text come through, and never break an answer.
	entries := []*weirv1.Entry{{Key: "path", RawValue: []byte("\xff")}}
	check, err := api.Check(t.Context(), &weirv1.CheckRequest{Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: entries}}})
	if err != nil || check.Allowed {
		t.Errorf("Check: %v, %v", check, err)
	}
	explained, err := api.Explain(t.Context(), &weirv1.ExplainRequest{Domain: "default", Entries: entries})
	if err != nil || explained.Rule == "" || explained.Steps[0].Entry.Text() != "\xff" {
		t.Errorf("Explain: %v, %v", explained, err)
	}
}
