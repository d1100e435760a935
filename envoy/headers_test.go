package envoy_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// Over HTTP/2 as over HTTP/1, names apart: there they are lower case, which Go's
// client hides.
func TestHintsAndBodiesArriveOnceOverBothProtocols(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags    []string
		ok, over map[string]string
		body     string
	}{
		{[]string{"--headers", "ietf", "--denied-body", "problem+json"},
			map[string]string{"RateLimit-Policy": `"address";q=2;w=3600`, "RateLimit": `"address";r=1;t=*`, "X-Ratelimit-Limit": ""},
			map[string]string{"RateLimit-Policy": `"address";q=2;w=3600`, "RateLimit": `"address";r=0;t=*`, "Retry-After": "*", "Content-Type": "application/problem+json"},
			`"violated-policies":["address"]`},
		{[]string{"--headers", "draft-03", "--denied-body", "text:too many"},
			map[string]string{"X-Ratelimit-Limit": `2, 2;w=3600;name="address"`, "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "*"},
			map[string]string{"X-Ratelimit-Limit": `2, 2;w=3600;name="address"`, "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "*", "Content-Type": "text/plain"},
			"too many"},
		{nil,
			map[string]string{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "Retry-After": ""},
			map[string]string{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "Retry-After": "*", "X-Ratelimit-Retry-After": "*"},
			""},
	} {
		for _, protocol := range protocols {
			t.Run(strings.Join(append(c.flags, protocol), " "), func(t *testing.T) {
				t.Parallel()
				r := startRecipe(t, "recipes", recipeOptions{weirArgs: c.flags})
				ask := func() response { return r.send(t, protocol, step{path: "/by-address"}) }
				first, _, refused := ask(), ask(), ask()
				first.want(t, http.StatusOK, nil)
				refused.want(t, http.StatusTooManyRequests, nil)
				for answer, hints := range map[*response]map[string]string{&first: c.ok, &refused: c.over} {
					for name, pattern := range hints {
						if !likeIt(*answer, name, pattern) {
							t.Errorf("%d: %s is %q, want %q", answer.code, name, answer.header.Values(name), pattern)
						}
					}
				}
				if c.body == "" && refused.body != "" || !strings.Contains(refused.body, c.body) {
					t.Errorf("body %q, want %q", refused.body, c.body)
				}
			})
		}
	}
}

// An upstream with limits of its own tells of them under the same names: the
// client sees both, unless the route removes the upstream's.
func TestHintsOfTheUpstreamStandBesideWeirs(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-RateLimit-Limit", "9999") })
	const vhost = "domains: [\"*\"]\n"
	for _, c := range []struct {
		replace map[string]string
		want    []string
	}{
		{nil, []string{"2", "9999"}},
		{map[string]string{vhost: vhost + "                      response_headers_to_remove: [x-ratelimit-limit, x-ratelimit-remaining]\n"}, []string{"2"}},
	} {
		r := startRecipe(t, "recipes", recipeOptions{upstream: upstream, replace: c.replace})
		got := r.send(t, "HTTP/1.1", step{path: "/by-address"}).header.Values("X-RateLimit-Limit")
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("the client sees %q, want %q", got, c.want)
		}
	}
}

func TestAClientCannotTellTheUpstreamWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var told atomic.Value
			r := startRecipe(t, "recipes", recipeOptions{
				weirArgs: []string{"--upstream-headers"},
				upstream: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { told.Store(req.Header.Clone()) }),
			})
			forged := []string{"X-Weir-Rule", "mine", "X-Weir-Limit", "1000000", "X-Weir-Remaining", "999999"}
			for path, want := range map[string]map[string]string{
				"/by-address": {"X-Weir-Rule": "address", "X-Weir-Limit": "2", "X-Weir-Remaining": "1"},
				"/no-limit":   {"X-Weir-Rule": "", "X-Weir-Limit": "", "X-Weir-Remaining": ""},
			} {
				r.send(t, protocol, step{path: path, header: forged}).want(t, http.StatusOK, nil)
				response{what: path + " at the upstream", code: 200, header: told.Load().(http.Header)}.want(t, 200, want)
			}
		})
	}
}

// Why the config removes them early.
func TestRequestHeadersToRemoveRemovesWeirsToo(t *testing.T) {
	t.Parallel()
	var told atomic.Value
	const vhost = "domains: [\"*\"]\n"
	r := startRecipe(t, "recipes", recipeOptions{
		weirArgs: []string{"--upstream-headers"},
		replace:  map[string]string{vhost: vhost + "                      request_headers_to_remove: [x-weir-rule]\n"},
		upstream: http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { told.Store(req.Header.Clone()) }),
	})
	r.send(t, "HTTP/1.1", step{path: "/by-address"}).want(t, http.StatusOK, nil)
	response{what: "at the upstream", code: 200, header: told.Load().(http.Header)}.want(t, 200, map[string]string{"X-Weir-Rule": "", "X-Weir-Remaining": "1"})
}

// Where a limit and a cost may stand in Envoy's config.
func TestALimitAndACostMayStandInTheFilter(t *testing.T) {
	t.Parallel()
	const own = "limit: {rate_limit: {requests_per_unit: 7, unit: MINUTE}}"
	for _, c := range []struct {
		remark, config, path, old, new string
		want                           map[string]string
	}{
		{"the filter's own, which the route's do not count beside", "recipes", "/by-address", "domain: recipes\n",
			"domain: recipes\n                      rate_limits: [{actions: [{generic_key: {descriptor_value: filter}}], hits_addend: {number: 3}, " + own + "}]\n", left("7", "4")},
		{"a RateLimitPerRoute's", "costs", "/batch", "hits_addend: {number: 10}",
			"hits_addend: {number: 3}\n                                  " + own, left("7", "4")},
		{"a route's, where Envoy ignores the cost", "recipes", "/own-limit", "                                limit:\n",
			"                                hits_addend: {number: 2}\n                                limit:\n", left("2", "1")},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			r := startRecipe(t, c.config, recipeOptions{replace: map[string]string{c.old: c.new}})
			r.send(t, "HTTP/1.1", step{path: c.path}).want(t, http.StatusOK, c.want)
		})
	}
}
