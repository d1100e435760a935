package server

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const metadataRules = `
rules:
  - {name: gold, match: {plan: gold}, limit: 9, window: 60s, metadata: {tier: gold, owner: {team: a, mail: a@x}, list: [1, two, null], big: 12345678901, share: 0.5, on: true}}
  - {name: user, match: {user: "*"}, limit: 2, window: 60s, metadata: {tier: any, owner: {team: b, room: 4}}}
  - {name: bare, match: {bare: "*"}, limit: 9, window: 60s}
  - {name: shade, match: {shade: "*"}, limit: 0, window: 60s, shadow_mode: true, metadata: {shade: yes}}
  - {match: {free: "*"}, unlimited: true, metadata: {free: yes}}
  - {match: {in: "*"}, exempt: true, metadata: {exempt: yes}}
  - {name: "n\xff\r\n\0", match: {bad: "*"}, limit: 9, window: 60s, metadata: {"k\r\n\0é": "v\r\n\0é", raw: !!binary /w==}}
`

const goldMetadata = `{"tier": "gold", "owner": {"team": "a", "mail": "a@x"}, "list": [1, "two", null], "big": 12345678901, "share": 0.5, "on": true}`

func wantMetadata(t *testing.T, remark string, resp *rls.RateLimitResponse, want string) {
	t.Helper()
	if want == "" {
		if resp.DynamicMetadata != nil {
			t.Errorf("%s: %v, want none", remark, resp.DynamicMetadata)
		}
		return
	}
	text, err := protojson.Marshal(resp.DynamicMetadata)
	if err != nil {
		t.Fatal(err)
	}
	var got, wanted any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(remark, err)
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("%s:\n got %s\nwant %s", remark, text, want)
	}
}

func TestTheMetadataOfRulesThatPassedIsAlwaysTold(t *testing.T) {
	f := newFixture(t, setup{rules: metadataRules})
	for _, x := range []struct {
		remark, ask string
		hits        uint32
		want        string
	}{
		{"of one rule", "plan=gold", 0, `{"metadata": ` + goldMetadata + `}`},
		{"of two, merged; the first wins", "plan=gold , user=1", 0,
			`{"metadata": {"tier": "gold", "owner": {"team": "a", "mail": "a@x", "room": 4}, "list": [1, "two", null], "big": 12345678901, "share": 0.5, "on": true}}`},
		{"the first of the request", "user=1 , plan=gold", 0,
			`{"metadata": {"tier": "any", "owner": {"team": "b", "room": 4, "mail": "a@x"}, "list": [1, "two", null], "big": 12345678901, "share": 0.5, "on": true}}`},
		{"not of the one that refuses", "plan=gold , user=1", 3, `{"metadata": ` + goldMetadata + `}`},
		{"none", "bare=1", 0, ""},
		{"none of a refusal", "user=1", 9, ""},
		{"an unlimited rule", "free=1", 0, `{"metadata": {"free": "yes"}}`},
		{"an exempt rule alone", "plan=gold , in=1", 0, `{"metadata": {"exempt": "yes"}}`},
		{"a shadow rule passes", "shade=1", 0, `{"metadata": {"shade": "yes"}, "weir": {"shadow": ["shade"]}}`},
		{"any text", "bad=1", 0, `{"metadata": {"k\r\n\u0000é": "v\r\n\u0000é", "raw": "/w=="}}`},
	} {
		resp, err := f.ask(t.Context(), limitedTo(request("default", x.ask), x.hits))
		if err != nil {
			t.Fatal(err)
		}
		wantMetadata(t, x.remark, resp, x.want)
	}
}

func TestWeirMetadataTellsTheVerdict(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Metadata: WeirMetadata}})
	for _, x := range []struct {
		remark, ask string
		hits        uint32
		want        string
	}{
		{"passes", "b=1 , a=1", 0, `{"weir": {"rule": "posts", "limit": 2, "remaining": 1, "reset": 60}}`},
		{"refused", "b=1 , a=1 , shut=1", 2, `{"weir": {"rule": "shut", "limit": 0, "remaining": 0, "refused_by": ["posts", "shut"]}}`},
		{"a rule without a name, and a shadow verdict", "shade=1 , plain=1", 2, `{"weir": {"rule": "plain=*", "limit": 3, "remaining": 1, "reset": 300, "shadow": ["shade"]}}`},
		{"no limit", "nothing=1", 0, ""},
		{"exempt", "in=1 , a=1", 0, ""},
		{"quotas", "q1=1 , q2=1", 3, `{"weir": {"rule": "q1", "limit": 1, "remaining": 1, "refused_by": ["q1", "q2"]}}`},
	} {
		resp, err := f.ask(t.Context(), limitedTo(request("default", x.ask), x.hits))
		if err != nil {
			t.Fatal(err)
		}
		wantMetadata(t, x.remark, resp, x.want)
	}
	f.clock.advance(time.Minute)
	resp, err := f.ask(t.Context(), limited("a=1", 3, typev3.RateLimitUnit_MINUTE, 0))
	if err != nil {
		t.Fatal(err)
	}
	wantMetadata(t, "a limit of the request's own", resp, `{"weir": {"rule": "override", "limit": 3, "remaining": 2, "reset": 60}}`)
}

func TestEnvoyMetadataRepeatsTheRequest(t *testing.T) {
	s := start(t, setup{rules: metadataRules, service: Options{Metadata: EnvoyMetadata}})
	req := limitedTo(request("default", "bare=1 x=é , plan=gold"), 2)
	req.Descriptors[1].HitsAddend = wrapperspb.UInt64(1)
	req.Descriptors = append(req.Descriptors, limited("own=1", 5, typev3.RateLimitUnit_MINUTE, 3).Descriptors...)
	wantMetadata(t, "everything", s.call(t, req), `{"domain": "default", "hitsAddend": 2, "metadata": `+goldMetadata+`, "descriptors": [
		{"entries": ["bare=1", "x=é"]}, {"entries": ["plan=gold"], "hitsAddend": 1},
		{"entries": ["own=1"], "limit": "requests_per_unit:5 unit:MINUTE unit_multiplier:{value:3}"}]}`)
	wantMetadata(t, "refused", s.call(t, limitedTo(request("default", "user=1"), 3)),
		`{"domain": "default", "hitsAddend": 3, "descriptors": [{"entries": ["user=1"]}]}`)
	wantMetadata(t, "in a domain without rules", s.call(t, request("other", "a=1")), `{"domain": "other", "descriptors": [{"entries": ["a=1"]}]}`)
	raw, err := s.rawCall(t.Context(), rawRequest("default", "k\xff", "\xfe"))
	if err != nil {
		t.Fatal(err)
	}
	wantMetadata(t, "bytes that are no text", raw, `{"domain": "default", "descriptors": [{"entries": ["k\ufffd=\ufffd"]}]}`)
}
