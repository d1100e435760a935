package consul

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/rules/kv"
)

// broken answers every request with the same text, as something that is not
// Consul may, and counts them.
func broken(t *testing.T, body string) (*Store, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("X-Consul-Index", "7")
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	s, err := New(Options{Addr: strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, &asked
}

func TestNullsWhereConsulHasNoneAreErrors(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"[null,null]", "null", `{"Results": [null], "Errors": [null]}`} {
		s, _ := broken(t, body)
		if _, err := s.List(t.Context(), kv.Query{Prefix: "a/"}); err == nil && body == "[null,null]" {
			t.Errorf("%s: no error of a listing", body)
		}
		ops := []kv.Op{{Kind: kv.Put, Key: "a/1"}, {Kind: kv.Put, Key: "a/2"}}
		if _, err := s.Commit(t.Context(), ops); err == nil {
			t.Errorf("%s: no error of a transaction", body)
		}
		if _, err := s.Instances(t.Context(), "weir"); err == nil && body == "[null,null]" {
			t.Errorf("%s: no error of the catalogue", body)
		}
	}
}

func TestWhatDoesNotWaitIsNotAskedWithoutAPause(t *testing.T) {
	t.Parallel()
	s, asked := broken(t, "[]")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, _ = s.List(ctx, kv.Query{Prefix: "a/", Since: 7, Wait: time.Minute})
	if n := asked.Load(); n < 2 || n > 20 {
		t.Errorf("%d requests in three seconds", n)
	}
}
