package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

func TestARefusedRequestGetsTheBody(t *testing.T) {
	const rules = `
domain: default
rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1s}, {match: {b: "*"}, limit: 9, window: 1s}]
---
domain: api
rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1s}]
---
domain: quiet
rules: [{match: {a: "*"}, limit: 0, window: 1s}]
`
	f := newFixture(t, setup{rules: rules, service: Options{Headers: HeaderOptions{Style: NoHeaders}, Denied: DeniedOptions{
		Body:     FixedBody([]byte("slow down\n"), ""),
		ByDomain: map[string]DeniedBody{"api": FixedBody([]byte("<p>slow down"), "text/html"), "quiet": {}},
	}}})
	for _, x := range []struct{ remark, domain, ask, body, headers string }{
		{"text has no content type: Envoy's fits, also for gRPC", "default", "a=1", "slow down\n", ""},
		{"what passes has none", "default", "b=1", "", ""},
		{"a domain's own", "api", "a=1", "<p>slow down", "Content-Type: text/html"},
		{"a domain without", "quiet", "a=1", "", ""},
	} {
		resp, err := f.ask(t.Context(), request(x.domain, x.ask))
		if err != nil || string(resp.RawBody) != x.body || headersText(resp) != x.headers {
			t.Errorf("%s: body %q, headers %s, %v; want %q and %s", x.remark, resp.GetRawBody(), headersText(resp), err, x.body, x.headers)
		}
	}
	f = newFixture(t, setup{rules: rules, service: Options{Shadow: true, Denied: DeniedOptions{Body: ProblemBody()}}})
	if resp, err := f.ask(t.Context(), request("default", "a=1")); err != nil || len(resp.RawBody) > 0 {
		t.Errorf("a server in shadow: body %q, %v; want none", resp.GetRawBody(), err)
	}
}

// problemOf reads a problem body.
func problemOf(t *testing.T, body []byte) (names []string) {
	t.Helper()
	var p struct {
		Type, Title string
		Status      int
		Violated    []string `json:"violated-policies"`
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Title == "" || p.Status != http.StatusTooManyRequests {
		t.Errorf("got %s", body)
	}
	return p.Violated
}

func TestAProblemNamesThePoliciesThatRefuse(t *testing.T) {
	f := newFixture(t, setup{rules: dialectRules, service: Options{Denied: DeniedOptions{Body: ProblemBody()}}})
	for _, x := range []struct {
		remark, ask string
		hits        uint32
		want        string
	}{
		{"one", "shut=1 , b=1", 0, "shut"},
		{"several, in the order of the request", "c=1 , a=1 , b=1", 5, "both-per-second posts"},
		{"shadow limits do not refuse", "shade=1 , shut=1", 9, "shut"},
		{"quotas refuse together", "q1=1 , q2=1", 3, "q1 q2"},
		{"without a name", "plain=1", 4, "per-5-minutes"},
	} {
		resp, err := f.ask(t.Context(), limitedTo(request("default", x.ask), x.hits))
		if err != nil || resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			t.Fatal(resp, err)
		}
		if got := strings.Join(problemOf(t, resp.RawBody), " "); got != x.want {
			t.Errorf("%s: %s, want %s", x.remark, got, x.want)
		}
		if got := headersText(resp); !strings.HasSuffix(got, "Content-Type: application/problem+json") {
			t.Errorf("%s: headers %s", x.remark, got)
		}
	}
}

func TestNamesOfRulesNeverBreakAProblem(t *testing.T) {
	for _, x := range nasty {
		f := newFixture(t, setup{rules: `rules: [{name: ` + x.yaml + `, match: {a: "*"}, limit: 0, window: 1s}]`,
			service: Options{Headers: HeaderOptions{Style: IETF}, Denied: DeniedOptions{Body: ProblemBody()}}})
		resp, err := f.ask(t.Context(), request("default", "a=1"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := problemOf(t, resp.RawBody), wantStructured(t, resp); len(got) != 1 || got[0] != want[0] {
			t.Errorf("name %s: %q, want %q as in RateLimit-Policy", x.yaml, got, want)
		}
	}
}

func TestJSONAnswersARefusalWithTheBody(t *testing.T) {
	const rules = `rules: [{name: shut, match: {a: "*"}, limit: 0, window: 1s}, {match: {b: "*"}, limit: 9, window: 1s}]`
	for _, x := range []struct {
		remark, key       string
		body              DeniedBody
		code              int
		want, contentType string
	}{
		{"text", "a", FixedBody([]byte("é\n"), ""), 429, "é\n", "text/plain; charset=utf-8"},
		{"of a type", "a", FixedBody([]byte("<p>"), "text/html"), 429, "<p>", "text/html"},
		{"a problem", "a", ProblemBody(), 429, `"violated-policies":["shut"]}`, "application/problem+json"},
		{"passes", "b", ProblemBody(), 200, `"overallCode":`, "application/json"},
		{"none", "a", DeniedBody{}, 429, `"overallCode":`, "application/json"},
	} {
		w := httpFor(t, newFixture(t, setup{rules: rules, service: Options{Denied: DeniedOptions{Body: x.body}}}))
		code, body, header := w.post(t, jsonOf("default", x.key, "1"))
		if types := header.Values("Content-Type"); code != x.code || !strings.Contains(body, x.want) || len(types) != 1 || types[0] != x.contentType || header.Get("X-Ratelimit-Limit") == "" {
			t.Errorf("%s: %d %q %v", x.remark, code, body, header)
		}
	}
}
