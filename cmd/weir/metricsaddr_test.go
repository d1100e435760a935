package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// fetch asks a server anywhere.
func fetch(t *testing.T, url string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestTheMetricsAddressServesMetricsAndNothingElse(t *testing.T) {
	s := serving(t, "--metrics-addr", "127.0.0.1:0", "--metrics-path", "/its/metrics")
	s.codes(t, 1, "default", "endpoint=/api/posts", "user=alice")
	var found []string
	eventually(t, "the announcement", func() bool {
		found = regexp.MustCompile(`(?m)^  metrics (\S+)  \(/its/metrics\)$`).FindStringSubmatch(s.stdout.String())
		return found != nil
	})
	at := "http://" + found[1]
	if code, body := fetch(t, at+"/its/metrics"); code != http.StatusOK || !strings.Contains(body, "weir_decisions_total") {
		t.Errorf("/its/metrics: %d\n%s", code, body)
	}
	for _, path := range []string{"/", "/metrics", "/rules", "/json", "/v1/stats", "/debug/pprof/", "/its/metrics/"} {
		if code, body := fetch(t, at+path); code != http.StatusNotFound || !strings.Contains(body, "/its/metrics") {
			t.Errorf("%s: %d %s, want not found, and where metrics are", path, code, body)
		}
	}
	if code, body := s.get(t, "/metrics"); code != http.StatusOK || !strings.Contains(body, "weir_decisions_total") {
		t.Errorf("/metrics of the HTTP address: %d", code)
	}
}

func TestAMetricsAddressThatCannotBeEndsTheStart(t *testing.T) {
	busy := taken(t)
	weir(t, "serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--metrics-addr", busy).want(t, exitFailed, "--metrics-addr", busy, "address already in use")
	for _, x := range []struct {
		remark, args, want string
	}{
		{"no port", "--metrics-addr here", "it is host:port"},
		{"a path without a slash", "--metrics-addr :0 --metrics-path metrics", "begins with a slash"},
		{"a path alone", "--metrics-path /m", "for --metrics-addr"},
		{"no metrics", "--metrics off --metrics-addr :0", "--metrics off"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			weir(t, append([]string{"serve"}, strings.Fields(x.args)...)...).want(t, exitWrongUse, x.want)
		})
	}
}
