package envoy_test

import (
	"net/http"
	"strings"
	"testing"
)

// likeIt tells whether the header is there once, and matches: a * in the pattern
// stands for any text.
func likeIt(r response, name, pattern string) bool {
	values := r.header.Values(name)
	if pattern == "" {
		return len(values) == 0
	}
	before, after, _ := strings.Cut(pattern, "*")
	return len(values) == 1 && strings.HasPrefix(values[0], before) && strings.HasSuffix(values[0], after)
}

// Each dialect arrives at the client exactly once, and a name of a rule with CR
// and LF in it makes no header of its own.
func TestEachDialectArrivesOnce(t *testing.T) {
	t.Parallel()
	const name = `"rep%0D%0Aorts: %C3%A9"`
	for _, c := range []struct {
		flags    []string
		ok, over map[string]string
	}{
		{[]string{"--headers", "ietf"},
			map[string]string{"RateLimit-Policy": name + ";q=2;w=3600", "RateLimit": name + ";r=1;t=*", "Retry-After": "", "X-Ratelimit-Limit": ""},
			map[string]string{"RateLimit-Policy": name + ";q=2;w=3600", "RateLimit": name + ";r=0;t=*", "Retry-After": "3*"}},
		{[]string{"--headers", "draft-03"},
			map[string]string{"X-RateLimit-Limit": "2, 2;w=3600;name=" + name, "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "3*", "RateLimit": ""},
			map[string]string{"X-RateLimit-Limit": "2, 2;w=3600;name=" + name, "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3*"}},
		{[]string{"--headers", "ietf,x-ratelimit", "--header-names", "limit=X-Quota,retry-after="},
			map[string]string{"X-Quota": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Limit": "", "RateLimit": name + ";r=1;t=*"},
			map[string]string{"X-Quota": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Retry-After": "", "Retry-After": "3*"}},
		{[]string{"--headers", "none"},
			map[string]string{"RateLimit": "", "X-Ratelimit-Limit": "", "Retry-After": ""},
			map[string]string{"RateLimit": "", "X-Ratelimit-Limit": "", "Retry-After": ""}},
		{[]string{"--headers", "ietf", "--headers", "default=x-ratelimit"},
			map[string]string{"RateLimit": "", "X-Ratelimit-Limit": "2"},
			map[string]string{"RateLimit": "", "X-Ratelimit-Limit": "2"}},
	} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, c.flags...)
			first := s.get(t, alice, "/reports")
			s.get(t, alice, "/reports")
			refused := s.get(t, alice, "/reports")
			for r, want := range map[*response]map[string]string{&first: c.ok, &refused: c.over} {
				for name, pattern := range want {
					if !likeIt(*r, name, pattern) {
						t.Errorf("%d: %s is %q, want %q", r.code, name, r.header.Values(name), pattern)
					}
				}
				for name := range r.header {
					if strings.HasPrefix(strings.ToLower(name), "orts") {
						t.Errorf("a rule's name made the header %s", name)
					}
				}
			}
			if first.code != http.StatusOK || refused.code != http.StatusTooManyRequests {
				t.Errorf("%d, then %d", first.code, refused.code)
			}
		})
	}
}

func TestARefusalHasTheBodyThatIsWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, contentType, body string }{
		{"text:come back later", "text/plain", "come back later"},
		{"problem+json", "application/problem+json", `"violated-policies":["rep%0D%0Aorts: %C3%A9"]`},
	} {
		t.Run(c.flag, func(t *testing.T) {
			t.Parallel()
			s := start(t, nil, "--denied-body", c.flag)
			s.get(t, alice, "/reports")
			s.get(t, alice, "/reports").want(t, http.StatusOK, nil)
			r := s.get(t, alice, "/reports")
			r.want(t, http.StatusTooManyRequests, map[string]string{"Content-Type": c.contentType})
			if !strings.Contains(r.body, c.body) {
				t.Errorf("body %q, want %q in it", r.body, c.body)
			}
		})
	}
}

func TestTheUpstreamIsToldWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t, nil, "--upstream-headers")
	s.get(t, alice, "/reports").want(t, http.StatusOK, nil)
	told := s.told.Load().(http.Header)
	if told.Get("X-Weir-Rule") != "rep%0D%0Aorts: %C3%A9" || told.Get("X-Weir-Limit") != "2" || told.Get("X-Weir-Remaining") != "1" {
		t.Errorf("%v", told)
	}
}
