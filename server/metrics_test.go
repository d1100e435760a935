package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
)

// counts are the series of the metrics that are not 0 and begin with a text, as
// /metrics has them.
func (f *fixture) counts(t testing.TB, prefix string) []string {
	t.Helper()
	w := httptest.NewRecorder()
	f.opts.Metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) && !strings.HasSuffix(line, " 0") {
			lines = append(lines, strings.TrimPrefix(line, prefix))
		}
	}
	return lines
}

func wantCounts(t *testing.T, f *fixture, prefix string, want ...string) {
	t.Helper()
	if got := f.counts(t, prefix); !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nwant\n%s", prefix, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRequestsAreCountedWhateverWayTheyComeIn(t *testing.T) {
	s := start(t, setup{metrics: true, rules: `rules: [{name: r, match: {a: "*"}, limit: 3, window: 1h}]`})
	handler := NewHTTP(s.Service, HTTPOptions{})
	json := func(body string) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
		return w.Code
	}
	weir := weirv1.NewWeirServiceClient(s.conn)
	check := &weirv1.CheckRequest{Domain: "default", Descriptors: []*weirv1.Descriptor{{Entries: []*weirv1.Entry{{Key: "a", Value: "1"}}}}}
	for range 2 {
		s.call(t, request("default", "a=1"))
		json(`{"domain": "default", "descriptors": [{"entries": [{"key": "a", "value": "1"}]}]}`)
		if _, err := weir.Check(t.Context(), check); err != nil {
			t.Fatal(err)
		}
	}
	wantCounts(t, s.fixture, "weir_decisions_total", `{domain="default",outcome="near_limit",rule="r"} 1`, `{domain="default",outcome="ok",rule="r"} 2`, `{domain="default",outcome="over_limit",rule="r"} 3`)
	wantCounts(t, s.fixture, "weir_requests_total", `{code="ok",domain="default"} 3`, `{code="over_limit",domain="default"} 3`)

	_, _ = s.client.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "default"}) // no descriptors
	_, _ = weir.Check(t.Context(), &weirv1.CheckRequest{Domain: "default"})
	json(`{"domain": "default"}`)
	json(`{`)
	json(strings.Repeat(" ", maxJSON+1))
	s.call(t, request("nobody's", "a=1"))
	wantCounts(t, s.fixture, "weir_requests_total",
		`{code="invalid_argument",domain="(none)"} 1`, `{code="invalid_argument",domain="default"} 3`, `{code="ok",domain="(none)"} 1`,
		`{code="ok",domain="default"} 3`, `{code="out_of_range",domain="(none)"} 1`, `{code="over_limit",domain="default"} 3`)
	wantCounts(t, s.fixture, "weir_in_flight_requests")
}

func TestErrorsAreCountedByTheirCode(t *testing.T) {
	for _, x := range []struct {
		store  storeFunc
		code   string
		remark string
	}{
		{func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, limiter.ErrUnavailable }, "unavailable", "FailError"},
		{func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, context.DeadlineExceeded }, "deadline_exceeded", ""},
		{func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, context.Canceled }, "canceled", ""},
		{func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { return nil, io.EOF }, "internal", "no error that a store may have"},
		{func(context.Context, []limiter.Hit) ([]limiter.Decision, error) { panic("by the test") }, "internal", "a panic"},
	} {
		s := start(t, setup{metrics: true, service: Options{Store: x.store}, rules: `rules: [{name: r, match: {a: "*"}, limit: 3, window: 1h}]`})
		if _, err := s.client.ShouldRateLimit(t.Context(), request("default", "a=1")); err == nil {
			t.Errorf("%s: no error", x.code)
		}
		wantCounts(t, s.fixture, "weir_requests_total", fmt.Sprintf(`{code="%s",domain="default"} 1`, x.code))
		wantCounts(t, s.fixture, "weir_in_flight_requests")
		if n := s.opts.Metrics.Errors(); n != 1 {
			t.Errorf("%s: %d errors", x.code, n)
		}
	}
}

func TestAHeldRequestIsInFlightUntilItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, setup{metrics: true, realTime: true, rules: `rules: [{name: r, match: {a: "*"}, limit: 1, window: 1s, algorithm: leaky_bucket, queue: 5}]`})
		ask := func(ctx context.Context) { _, _ = f.ask(ctx, request("default", "a=1")) }
		ask(t.Context())
		go ask(t.Context())
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		go ask(leaving)
		synctest.Wait()
		wantCounts(t, f, "weir_held_requests", " 2")
		wantCounts(t, f, "weir_in_flight_requests", " 2")
		leave()
		synctest.Wait()
		wantCounts(t, f, "weir_held_requests", " 1")
		time.Sleep(time.Second)
		synctest.Wait()
		wantCounts(t, f, "weir_held_requests")
		wantCounts(t, f, "weir_requests_total", `{code="canceled",domain="default"} 1`, `{code="ok",domain="default"} 2`)
		wantCounts(t, f, "weir_held_duration_seconds_count", " 2")
		wantCounts(t, f, `weir_held_duration_seconds_bucket{le="0.001"}`, " 1") // who left did so at once
		wantCounts(t, f, `weir_held_duration_seconds_bucket{le="1"}`, " 2")
		wantCounts(t, f, `weir_decision_duration_seconds_bucket{le="0.25"}`, " 3") // without the time that it was held
	})
}

func TestAFullMemoryIsCountedByItsPolicy(t *testing.T) {
	for policy, want := range map[limiter.FailurePolicy]string{
		limiter.FailLocal: `{domain="default",outcome="failed_open",rule="r"} 1`,
		limiter.FailAllow: `{domain="default",outcome="failed_open",rule="r"} 1`,
		limiter.FailDeny:  `{domain="default",outcome="failed_closed",rule="r"} 1`,
	} {
		f := newFixture(t, setup{metrics: true, onFailure: policy, memory: limiter.MemoryOptions{MaxCounters: 1}, rules: `rules: [{name: r, match: {a: "*"}, limit: 100, window: 1h}]`})
		for _, a := range []string{"a=1", "a=2"} {
			if _, err := f.ask(t.Context(), request("default", a)); err != nil {
				t.Fatal(err)
			}
		}
		wantCounts(t, f, "weir_decisions_total", want, `{domain="default",outcome="ok",rule="r"} 1`)
	}
}

func TestShadowIsCountedAsShadow(t *testing.T) {
	f := newFixture(t, setup{metrics: true, service: Options{Shadow: true, LogRefused: 5}, rules: `rules: [{name: r, match: {a: "*"}, limit: 0, window: 1h}]`})
	if _, err := f.ask(t.Context(), request("default", "a=1")); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, f, "weir_decisions_total", `{domain="default",outcome="shadow_over_limit",rule="r"} 1`)
	wantCounts(t, f, "weir_requests_total", `{code="ok",domain="default"} 1`)
	if strings.Contains(f.logs.String(), "refused") {
		t.Error("the log says that it was refused")
	}
}

func TestSomeRefusedRequestsAreLogged(t *testing.T) {
	const rule = `
rules:
  - {name: "a\nlevel=ERROR b", match: {a: "*", b: "*"}, limit: 1, window: 1h}
`
	for _, x := range []struct {
		opts   Options
		lines  int
		remark string
	}{
		{Options{}, 0, "off"},
		{Options{LogRefused: 2}, 2, "two a second"},
		{Options{LogRefused: 2, LogValues: true}, 2, "with values"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, setup{realTime: true, service: x.opts, rules: rule})
			ask := func() {
				req := request("default", "a=1")
				req.Descriptors[0].Entries[0].Value = "x\r\nlevel=ERROR msg=forged"
				req.Descriptors[0].Entries = append(req.Descriptors[0].Entries, request("", "b="+strings.Repeat("y", 5000)).Descriptors[0].Entries...)
				if _, err := f.ask(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			for range 11 {
				ask() // the first passes
			}
			text := f.logs.String()
			if n := strings.Count(text, "msg=refused"); n != x.lines || strings.Count(text, "\n") != n {
				t.Errorf("%s: %d lines:\n%s", x.remark, n, text)
			}
			if x.lines == 0 {
				return
			}
			for _, want := range []string{`domain=default`, `rule="a\nlevel=ERROR b"`, "limit=1", "window=1h0m0s", "retry_after=", "left_out=0"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: no %s in\n%s", x.remark, want, text)
				}
			}
			if got := strings.Contains(text, "forged"); got != x.opts.LogValues || len(text) > 2000 {
				t.Errorf("%s: values are told: %t, in %d bytes", x.remark, got, len(text))
			}
			time.Sleep(time.Second)
			ask()
			if !strings.Contains(f.logs.String(), "left_out=8") {
				t.Errorf("%s: not told that 8 were left out:\n%s", x.remark, f.logs.String())
			}
			ask()
			if text := f.logs.String(); strings.Count(text, "left_out=8") != 1 || strings.Count(text, "left_out=0") != 3 {
				t.Errorf("%s: told again:\n%s", x.remark, text)
			}
		})
	}
}

func TestMetricsAreServedWhileStartingToo(t *testing.T) {
	f := newFixture(t, setup{metrics: true})
	for _, service := range []*Service{nil, f.Service} {
		w := httptest.NewRecorder()
		NewHTTP(service, HTTPOptions{Metrics: f.opts.Metrics.Handler()}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "weir_rules ") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	NewHTTP(f.Service, HTTPOptions{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("without metrics: %d", w.Code)
	}
}
