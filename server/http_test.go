package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// web is the HTTP surface of a fixture.
type web struct {
	*httptest.Server
	notReady atomic.Pointer[error]
}

func httpFor(t testing.TB, f *fixture) *web {
	t.Helper()
	w := new(web)
	w.Server = httptest.NewServer(NewHTTP(f.Service, HTTPOptions{
		Ready: func() (string, error) {
			if err := w.notReady.Load(); err != nil {
				return "r.yaml: nothing yet\n", *err
			}
			return "r.yaml: 1 document\n", nil
		},
		Rules: func() any { return f.live.Status() },
	}))
	t.Cleanup(w.Close)
	return w
}

// jsonOf is a request of one entry.
func jsonOf(domain, key, value string) string {
	return fmt.Sprintf(`{"domain": %q, "descriptors": [{"entries": [{"key": %q, "value": %q}]}]}`, domain, key, value)
}

func (w *web) do(t testing.TB, method, path, body string) (code int, text string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func (w *web) post(t testing.TB, body string) (code int, text string, header http.Header) {
	t.Helper()
	return w.do(t, http.MethodPost, "/json", body)
}

func TestJSONAnswers200Or429WithTheHeaders(t *testing.T) {
	w := httpFor(t, newFixture(t, setup{rules: `rules: [{name: "né", match: {a: "*"}, limit: 1, window: 1h}]`}))
	for i, want := range []struct {
		code    int
		overall rls.RateLimitResponse_Code
		headers map[string]string
	}{
		{http.StatusOK, rls.RateLimitResponse_OK, map[string]string{"X-Ratelimit-Remaining": "0", "Retry-After": ""}},
		{http.StatusTooManyRequests, rls.RateLimitResponse_OVER_LIMIT, map[string]string{
			"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Retry-After": "3600", "Retry-After": "3600",
		}},
	} {
		code, body, header := w.post(t, jsonOf("default", "a", "1"))
		var resp rls.RateLimitResponse
		if err := protojson.Unmarshal([]byte(body), &resp); err != nil {
			t.Fatalf("call %d: %v: %s", i+1, err, body)
		}
		if code != want.code || resp.OverallCode != want.overall || resp.Statuses[0].CurrentLimit.GetName() != "né" {
			t.Errorf("call %d: %d %s, want %d and %v", i+1, code, body, want.code, want.overall)
		}
		if header.Get("Content-Type") != "application/json" || !strings.HasSuffix(body, "}\n") {
			t.Errorf("call %d: %q of type %s", i+1, body, header.Get("Content-Type"))
		}
		for name, value := range want.headers {
			if header.Get(name) != value {
				t.Errorf("call %d: %s: %q, want %q", i+1, name, header.Get(name), value)
			}
		}
	}
}

func TestJSONSaysWhatIsWrongWithARequest(t *testing.T) {
	w := httpFor(t, newFixture(t, setup{}))
	for _, x := range []struct {
		remark, method, path, body string
		code                       int
		want                       string
	}{
		{"no body", "POST", "/json", "", http.StatusBadRequest, "not a RateLimitRequest"},
		{"no JSON", "POST", "/json", "{", http.StatusBadRequest, "not a RateLimitRequest"},
		{"an unknown field", "POST", "/json", `{"domian": "d"}`, http.StatusBadRequest, `"domian"`},
		{"no domain", "POST", "/json", `{}`, http.StatusBadRequest, "the domain is empty"},
		{"no descriptors", "POST", "/json", `{"domain": "d"}`, http.StatusBadRequest, "no descriptors"},
		{"an empty key", "POST", "/json", jsonOf("d", "", "1"), http.StatusBadRequest, "descriptor 1: entry 1 has an empty key"},
		{"not UTF-8", "POST", "/json", jsonOf("d", "a", "1")[:10] + "\xff\"}", http.StatusBadRequest, "not a RateLimitRequest"},
		{"too large", "POST", "/json", strings.Repeat(" ", maxJSON+1), http.StatusRequestEntityTooLarge, "over 1048576 bytes"},
		{"as large as may be", "POST", "/json", strings.Repeat(" ", maxJSON-10) + "{}", http.StatusBadRequest, "the domain is empty"},
		{"another method", "GET", "/json", "", http.StatusMethodNotAllowed, ""},
		{"", "DELETE", "/json", "", http.StatusMethodNotAllowed, ""},
		{"", "POST", "/healthz", "", http.StatusMethodNotAllowed, ""},
		{"another path", "GET", "/nothing", "", http.StatusNotFound, ""},
	} {
		code, body, _ := w.do(t, x.method, x.path, x.body)
		if code != x.code || !strings.Contains(body, x.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", x.remark, x.method, x.path, code, body, x.code, x.want)
		}
	}
}

func TestHealthReadinessAndRulesOverHTTP(t *testing.T) {
	f := newFixture(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`})
	w := httpFor(t, f)
	notYet := errors.New("no rules are loaded yet")
	w.notReady.Store(&notYet)
	if code, body, _ := w.do(t, "GET", "/readyz", ""); code != http.StatusServiceUnavailable || body != "no rules are loaded yet\nr.yaml: nothing yet\n" {
		t.Errorf("/readyz before: %d %s", code, body)
	}
	if code, _, _ := w.do(t, "GET", "/healthcheck", ""); code != http.StatusInternalServerError {
		t.Errorf("/healthcheck before: %d", code)
	}
	if code, body, _ := w.do(t, "GET", "/healthz", ""); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %s", code, body)
	}
	w.notReady.Store(nil)
	if code, body, _ := w.do(t, "GET", "/readyz", ""); code != http.StatusOK || body != "ok\nr.yaml: 1 document\n" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body, _ := w.do(t, "GET", "/healthcheck", ""); code != http.StatusOK || body != "OK" {
		t.Errorf("/healthcheck: %d %s", code, body)
	}
	code, body, header := w.do(t, "GET", "/rules", "")
	if code != http.StatusOK || header.Get("Content-Type") != "application/json" || !strings.Contains(body, f.live.Current().Version()) {
		t.Errorf("/rules: %d %s", code, body)
	}
}
