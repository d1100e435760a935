package console_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"weir/server/console"
)

func get(t *testing.T, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, r)
	return w
}

func TestEachFileIsServedAsWhatItIsAndNothingElseIs(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/console/app.js": "text/javascript; charset=utf-8",
		"/console/style.css": "text/css; charset=utf-8", "/console/icon.svg": "image/svg+xml",
	} {
		w := get(t, http.MethodGet, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != want || w.Body.Len() == 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		for name, part := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Frame-Options": "DENY",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
		} {
			if !strings.Contains(w.Header().Get(name), part) {
				t.Errorf("%s: %s is %q", path, name, w.Header().Get(name))
			}
		}
		if policy := w.Header().Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: the policy is %s", path, policy)
		}
		again := get(t, http.MethodGet, path, "If-None-Match", w.Header().Get("ETag"))
		if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s again: %d with %d bytes", path, again.Code, again.Body.Len())
		}
	}
	for _, x := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/index.html", http.StatusNotFound},
		{http.MethodGet, "/console/", http.StatusNotFound},
		{http.MethodGet, "/console/console.go", http.StatusNotFound},
		{http.MethodGet, "/console/index.html", http.StatusNotFound},
		{http.MethodGet, "/anything", http.StatusNotFound},
		{http.MethodPost, "/", http.StatusMethodNotAllowed},
	} {
		if w := get(t, x.method, x.path); w.Code != x.code {
			t.Errorf("%s %s: %d, want %d", x.method, x.path, w.Code, x.code)
		}
	}
}

// What the page loads is in the folder, by paths that also work below another one.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|url\(|@import|\bimport\(|<script(>| [^>]*>[^<])|<style| style=| on[a-z]+=|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(`)
	loaded := regexp.MustCompile(`(?:src|href)="([^"#]+)"|from '\./([^']+)'`)
	for _, name := range names {
		if strings.HasSuffix(name.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(name.Name())
		if err != nil {
			t.Fatal(err)
		}
		source := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, not an address
		if found := elsewhere.FindString(source); found != "" {
			t.Errorf("%s has %q", name.Name(), found)
		}
		for _, m := range loaded.FindAllStringSubmatch(source, -1) {
			path := "/" + m[1]
			if m[2] != "" {
				path = "/console/" + m[2]
			}
			if w := get(t, http.MethodGet, path); w.Code != http.StatusOK {
				t.Errorf("%s loads %s: %d", name.Name(), path, w.Code)
			}
		}
	}
}
