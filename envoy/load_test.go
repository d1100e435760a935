package envoy_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/testenv"
)

// By default a test under load is one that a small machine bears, and takes a few
// seconds. For a measurement:
//
//	go test ./envoy -run UnderLoad -load-rate 2000 -load-time 60s -load-timeout 0.1s -v
var (
	loadRate    = flag.Int("load-rate", 400, "requests a second of the tests under load")
	loadTime    = flag.Duration("load-time", 5*time.Second, "how long each of them sends requests, at least")
	loadTimeout = flag.String("load-timeout", "10s", "what Envoy waits for Weir in them")
)

// loaded is Envoy with one of the configs of this folder, under load.
type loaded struct {
	addr, admin string // Envoy's
	stop        context.CancelFunc
	running     sync.WaitGroup

	mu      sync.Mutex
	answers map[string]int // by status, or by error
	longest time.Duration
	begin   time.Time
}

// startLoaded runs Envoy with a config of this folder, in which it replaces each
// old text by the new one after it.
func startLoaded(t *testing.T, file string, oldNew ...string) *loaded {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return startConfig(t, string(text), append([]string{" timeout: 0.1s\n", " timeout: " + *loadTimeout + "\n"}, oldNew...)...)
}

// startConfig does so with any config. The upstream is Envoy's own.
func startConfig(t *testing.T, config string, oldNew ...string) *loaded {
	t.Helper()
	l := &loaded{addr: testenv.FreeAddr(t), admin: testenv.FreeAddr(t), answers: map[string]int{}}
	upstream := testenv.FreeAddr(t)
	oldNew = append([]string{
		"port_value: 10000}", "port_value: " + port(t, l.addr) + "}",
		"port_value: 9000}", "port_value: " + port(t, upstream) + "}",
		"static_resources:\n  listeners:\n", upstreamListener(port(t, l.admin), port(t, upstream)),
	}, oldNew...)
	for pair := range slices.Chunk(oldNew, 2) {
		if !strings.Contains(config, pair[0]) {
			t.Fatalf("the config has no %q", pair[0])
		}
		config = strings.ReplaceAll(config, pair[0], pair[1])
	}
	testenv.StartEnvoy(t, testenv.EnvoyOptions{Config: config, Addr: l.addr})
	return l
}

// upstreamListener is the beginning of a config with an admin port, and a
// listener that answers 200.
func upstreamListener(admin, upstream string) string {
	return `admin: {address: {socket_address: {address: 127.0.0.1, port_value: ` + admin + `}}}
static_resources:
  listeners:
    - name: upstream
      address: {socket_address: {address: 127.0.0.1, port_value: ` + upstream + `}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: upstream
                route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, direct_response: {status: 200}}]}]}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
`
}

// ready waits for a first request that Weir has decided: until then Envoy may not
// have connected.
func (l *loaded) ready(t *testing.T) {
	t.Helper()
	eventually(t, "a decision", func() bool { return l.get("/") == "200" })
}

// send sends requests to the paths in turn until end, or the test, ends it. The
// connections are as many as the time of an answer needs; a late answer makes
// requests late, and no burst follows it.
func (l *loaded) send(t *testing.T, paths ...string) {
	t.Helper()
	const senders = 32
	ctx, cancel := context.WithCancel(t.Context())
	l.stop, l.begin = cancel, time.Now()
	transport := &http.Transport{MaxIdleConnsPerHost: senders, DialContext: (&net.Dialer{}).DialContext}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	every := time.Duration(senders) * time.Second / time.Duration(*loadRate)
	for i := range senders {
		l.running.Go(func() {
			next := l.begin.Add(every * time.Duration(i) / senders)
			for n := i; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(next)):
				}
				begin := time.Now()
				l.count(ask(client, "http://"+l.addr+paths[n%len(paths)]), time.Since(begin))
				if next = next.Add(every); next.Before(begin) {
					next = begin
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); l.running.Wait(); transport.CloseIdleConnections() })
}

func (l *loaded) count(answer string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[answer]++
	l.longest = max(l.longest, took)
}

// get sends one request.
func (l *loaded) get(path string) string { return ask(http.DefaultClient, "http://"+l.addr+path) }

func ask(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode == http.StatusOK && resp.Header.Get("X-Ratelimit-Limit") == "" {
		return "200 without a decision"
	}
	return strconv.Itoa(resp.StatusCode)
}

// sent is how many requests have been answered, or have failed.
func (l *loaded) sent() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, count := range l.answers {
		n += count
	}
	return n
}

// pass waits for the time to pass, under load.
func (l *loaded) pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

// end ends the load, at the earliest after -load-time, and returns the answers.
func (l *loaded) end(t *testing.T) map[string]int {
	t.Helper()
	l.pass(t, *loadTime-time.Since(l.begin))
	took := time.Since(l.begin)
	l.stop()
	l.running.Wait()
	t.Logf("%d requests in %v (%.0f a second), the longest took %v: %v", l.sent(), took.Round(time.Millisecond),
		float64(l.sent())/took.Seconds(), l.longest.Round(time.Millisecond), l.answers)
	return maps.Clone(l.answers)
}

// allDecided ends the load: every request has passed, by a decision of Weir.
func (l *loaded) allDecided(t *testing.T) {
	t.Helper()
	for answer, n := range l.end(t) {
		if answer != "200" {
			t.Errorf("%d × %s (%s)", n, answer, l.why(t))
		}
	}
	if *loadTimeout == "10s" && l.sent() < 100 {
		t.Errorf("only %d requests", l.sent())
	}
}

// why tells what Envoy counts of requests to Weir that failed.
func (l *loaded) why(t *testing.T) string {
	t.Helper()
	var why []string
	for _, name := range []string{"upstream_rq_timeout", "upstream_rq_rx_reset", "upstream_cx_connect_fail", "upstream_cx_none_healthy", "lb_healthy_panic", "upstream_rq_pending_overflow", "outlier_detection.ejections_enforced_total", "health_check.failure"} {
		why = append(why, fmt.Sprintf("%s %d", name, l.stat(t, "cluster.weir."+name)))
	}
	return strings.Join(why, ", ")
}

// stat is a counter of Envoy's, 0 if it has none of the name.
func (l *loaded) stat(t *testing.T, name string) int {
	t.Helper()
	resp, err := http.Get("http://" + l.admin + "/stats?filter=^" + name + "$")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(strings.TrimSpace(string(body)), ": ")
	if value == "" {
		return 0
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	return n
}
