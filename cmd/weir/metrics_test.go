package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/server/metrics"
)

// metric is the sum of the series that have all of the texts in them.
func (s *running) metric(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	code, body := s.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d", code)
	}
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(line, "{") {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		of, with, _ := strings.Cut(series, "{")
		if of != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(with, l) }) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func (s *running) wantMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	if got := s.metric(t, name, labels...); got != want {
		t.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}

const policies = `
rules:
  - {name: local, endpoint: /local, limit: 2, window: 1h, on_store_failure: local}
  - {name: allow, endpoint: /allow, limit: 2, window: 1h, on_store_failure: allow}
  - {name: deny, endpoint: /deny, limit: 2, window: 1h, on_store_failure: deny}
  - {name: error, endpoint: /error, limit: 2, window: 1h, on_store_failure: error}
  - {name: shadow, endpoint: /shadow, limit: 1, window: 1h, shadow_mode: true}
`

func TestDecisionsAreCountedByWhoMadeThem(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	s := serving(t, "--rules", rulesFile(t, policies), "--store", "redis://"+redis.Addr, "--store-timeout", "5s", "--deny-cache", "1h")
	s.wantMetric(t, 1, "weir_store_up")
	for _, rule := range []string{"local", "allow", "deny", "error", "shadow"} {
		s.codes(t, 4, "default", "endpoint=/"+rule)
	}
	for rule, want := range map[string][]int{ // ok, near_limit, over_limit, deny_cache, shadow_over_limit
		"local": {1, 1, 1, 1, 0}, "allow": {1, 1, 1, 1, 0}, "deny": {1, 1, 1, 1, 0}, "error": {1, 1, 1, 1, 0}, "shadow": {0, 1, 0, 0, 3},
	} {
		for i, outcome := range []string{"ok", "near_limit", "over_limit", "deny_cache", "shadow_over_limit"} {
			s.wantMetric(t, float64(want[i]), "weir_decisions_total", fmt.Sprintf("rule=%q", rule), fmt.Sprintf("outcome=%q", outcome))
		}
	}
	s.wantMetric(t, 4, "weir_deny_cache_refusals")
	s.wantMetric(t, 16, "weir_store_duration_seconds_count") // the deny cache asks nobody
	s.wantMetric(t, 0, "weir_store_failures_total")

	redis.Kill()
	want := map[string]float64{}
	for range 8 { // until the breaker opens, and then too
		for _, x := range []struct{ rule, outcome string }{{"local", "failed_local"}, {"allow", "failed_open"}, {"deny", "failed_closed"}, {"shadow", "failed_local"}} {
			if s.decide(t, "default", "endpoint=/"+x.rule, "--hits", "2").code == exitDone { // not what the deny cache knows
				want[x.rule]++
			}
			s.wantMetric(t, want[x.rule], "weir_decisions_total", fmt.Sprintf("rule=%q", x.rule), fmt.Sprintf("outcome=%q", x.outcome))
		}
	}
	s.decide(t, "default", "endpoint=/error", "--hits", "2")
	s.wantMetric(t, 1, "weir_requests_total", `code="unavailable"`)
	s.wantMetric(t, 0, "weir_store_up")
	s.wantMetric(t, 1, "weir_store_breaker_open")
	if n := s.metric(t, "weir_store_failures_total"); n < 5 || n > 33 {
		t.Errorf("%v failures", n)
	}
	if n := s.metric(t, "weir_store_duration_seconds_count") - s.metric(t, "weir_store_failures_total"); n != 16 {
		t.Errorf("failures are not among what the store took: %v", n)
	}
	testenv.StartRedis(t, testenv.RedisOptions{Addr: redis.Addr})
	eventually(t, "the store is up", func() bool { return s.metric(t, "weir_store_up") == 1 })
}

func TestMetricsAreServedWhileRedisHangs(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	s := serving(t, "--rules", rulesFile(t, orders), "--store", "redis://"+redis.Addr, "--queue-addr", "127.0.0.1:0")
	eventually(t, "the queue is told of", func() bool { return s.metric(t, "weir_queue_capacity", `rule="orders"`) == 2 })
	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the breaker opens", func() bool {
		s.codes(t, 1, "shop", "endpoint=/orders")
		return s.metric(t, "weir_store_breaker_open") == 1
	})
	begin := time.Now()
	for range 20 {
		s.wantMetric(t, 0, "weir_store_up")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("20 scrapes took %v", took)
	}
	eventually(t, "nothing is told of queues that nobody knows", func() bool {
		_, body := s.get(t, "/metrics")
		return !strings.Contains(body, "weir_queue_capacity{")
	})
}

func TestQueuesAreCounted(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	store := "redis://" + redis.Addr
	s := serving(t, "--rules", rulesFile(t, orders), "--store", store, "--store-timeout", "5s", "--queue-addr", "127.0.0.1:0", "--queue-secret", "s")
	queueAddr := regexp.MustCompile(`(?m)^  queue (\S+)`).FindStringSubmatch(s.stdout.String())[1]
	eventually(t, "queues can be used", func() bool { return strings.Contains(weir(t, "queue", "ls", "--store", store).stdout, "shop/orders") })
	post := func(queue string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+queueAddr+"/orders", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Weir-Queue", queue)
		req.Header.Set("X-Weir-Queue-Secret", "s")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, want := range []int{202, 202, 429} {
		if got := post("shop/orders"); got != want {
			t.Fatalf("status %d, want %d", got, want)
		}
	}
	post("shop/none")
	s.wantMetric(t, 2, "weir_queue_ingested_total", `rule="orders"`, `code="202"`)
	s.wantMetric(t, 1, "weir_queue_ingested_total", `rule="orders"`, `code="429"`)
	s.wantMetric(t, 3, "weir_queue_ingested_total") // what names no queue makes no series
	eventually(t, "two wait", func() bool { return s.metric(t, "weir_queue_waiting", `rule="orders"`) == 2 })
}

func TestReloadsAreCounted(t *testing.T) {
	path := rulesFile(t, hourly)
	s := serving(t, "--rules", path)
	s.wantMetric(t, 1, "weir_rules_reloads_total", `result="success"`)
	replace(t, path, "rules: [{}]")
	eventually(t, "a failure", func() bool { return s.metric(t, "weir_rules_last_reload_successful") == 0 })
	s.wantMetric(t, 1, "weir_rules_reloads_total", `result="failure"`)
	replace(t, path, policies)
	eventually(t, "it is mended", func() bool { return s.metric(t, "weir_rules_last_reload_successful") == 1 })
	s.wantMetric(t, 2, "weir_rules_reloads_total", `result="success"`)
	s.wantMetric(t, 5, "weir_rules")
}

func TestTheEndOfTheCertificateIsTold(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{NotAfter: end})
	s := serving(t, "--tls-cert", files.Cert, "--tls-key", files.Key, "--http-tls", "off")
	s.wantMetric(t, float64(end.Unix()), "weir_tls_certificate_not_after_timestamp_seconds")
}

func TestMetricsFlags(t *testing.T) {
	s := serving(t, "--metrics", "off", "--log-refused", "0")
	if code, _ := s.get(t, "/metrics"); code != http.StatusNotFound {
		t.Errorf("/metrics: %d", code)
	}
	if s.codes(t, 5, "default", "endpoint=/api/posts", "user=1"); strings.Contains(s.stderr.String(), "msg=refused") || strings.Contains(s.stdout.String(), "/metrics") {
		t.Errorf("refusals are logged, or metrics announced:\n%s%s", s.stdout, s.stderr)
	}
	for _, flag := range []string{"--metrics=some", "--near-limit-ratio=0", "--near-limit-ratio=1.1", "--near-limit-ratio=NaN", "--metrics-max-values=-1", "--log-refused=-1"} {
		name, _, _ := strings.Cut(flag, "=")
		weir(t, "serve", flag).want(t, exitWrongUse, name)
	}
}

// What Prometheus's own tool has to say of a page with all kinds of metrics on it.
func TestPromtoolLikesTheMetrics(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	s := serving(t, "--rules", rulesFile(t, policies+`
  - {name: "odd \"name\" \\ \n", match: {a: "*"}, limit: 2, window: 1h, value_to_metric: true}
  - {name: orders, endpoint: /orders, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 2, over_limit: queue}
`), "--store", "redis://"+redis.Addr, "--store-timeout", "5s", "--queue-addr", "127.0.0.1:0",
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--http-tls", "off")
	ask := func(hits string) {
		for _, entry := range []string{"endpoint=/local", "endpoint=/allow", "endpoint=/deny", "endpoint=/error", "endpoint=/shadow", "endpoint=/orders", "a=\"\\\n\x01"} {
			for range 4 {
				weir(t, "decide", "--addr", s.grpcAddr, "--tls-ca", files.CA, "default", entry, "--hits", hits)
			}
		}
	}
	ask("1")
	eventually(t, "the queue is told of", func() bool { return s.metric(t, "weir_queue_capacity") == 2 })
	redis.Kill()
	ask("2") // the deny cache knows nothing of it
	for _, outcome := range metrics.Outcomes() {
		if s.metric(t, "weir_decisions_total", fmt.Sprintf("outcome=%q", outcome)) == 0 {
			t.Errorf("there was no %s", outcome)
		}
	}
	_, body := s.get(t, "/metrics")
	cmd := exec.Command(testenv.Promtool(t), "check", "metrics")
	cmd.Stdin = strings.NewReader(body)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
