package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	weirv1 "weir/api/weir/v1"
	"weir/internal/testenv"
	"weir/queue"
	"weir/rules"
)

// bench is a Redis, its queues and an ingest.
type bench struct {
	*testing.T
	redis  *testenv.Redis
	url    string
	queues *queue.Queues
	ingest *httptest.Server
	orders queue.About
}

const direct = "the clients' secret"

// newBench has one queue, d/orders: so many a second, and so many may wait.
func newBench(t *testing.T, rate, waiting uint64) *bench {
	t.Helper()
	return newBenchOn(t, testenv.StartRedis(t, testenv.RedisOptions{}), rate, waiting)
}

func newBenchOn(t *testing.T, redis *testenv.Redis, rate, waiting uint64) *bench {
	t.Helper()
	return newBenchAt(t, redis, "redis://"+redis.Addr, rate, waiting)
}

func newBenchAt(t *testing.T, redis *testenv.Redis, url string, rate, waiting uint64) *bench {
	t.Helper()
	b := &bench{T: t, redis: redis, url: url}
	b.queues = b.open()
	b.orders = b.about(rate, waiting)
	if err := b.queues.LoadSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.queues.Announce(t.Context(), []queue.About{b.orders}); err != nil {
		t.Fatal(err)
	}
	b.ingest = httptest.NewServer(queue.NewIngest(queue.IngestOptions{
		Queues: b.queues, Direct: direct, MaxBody: 1000, Logger: b.logger(),
		Find: func(domain, rule string) *queue.About {
			if domain == "d" && rule == "orders" {
				return &b.orders
			}
			return nil
		},
	}))
	t.Cleanup(b.ingest.Close)
	return b
}

func (b *bench) open() *queue.Queues {
	b.Helper()
	queues, err := queue.Open(queue.Options{URL: b.url, Timeout: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = queues.Close() })
	return queues
}

// about is what the queue knows of a rule, which is compiled like any other.
func (b *bench) about(rate, waiting uint64) queue.About {
	b.Helper()
	doc, err := rules.Parse("orders.yaml", fmt.Appendf(nil,
		"domain: d\nrules: [{name: orders, endpoint: /orders, limit: %d, window: 1s, algorithm: leaky_bucket, queue: %d, over_limit: queue}]", rate, waiting))
	if err != nil {
		b.Fatal(err)
	}
	set, err := rules.Compile(doc)
	if err != nil {
		b.Fatal(err)
	}
	return b.queues.AboutRule(set.Queues()[0])
}

func (b *bench) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&testLog{t: b.T}, nil))
}

// testLog logs to the test, as long as it runs.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	over bool
}

func (l *testLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t.Context().Err() != nil {
		l.over = true
	}
	if !l.over {
		l.t.Log(strings.TrimSpace(string(text)))
	}
	return len(text), nil
}

// answer is what the ingest answered.
type answer struct {
	code   int
	header http.Header
	body   map[string]any
}

// post sends a request into the queue, as Envoy does after a decision.
func (b *bench) post(path, body string, headers ...string) answer {
	b.Helper()
	return b.send("POST", path, body, append([]string{
		queue.HeaderOverflow, "orders", queue.HeaderTicket, b.queues.Ticket(&b.orders, 1),
	}, headers...)...)
}

func (b *bench) send(method, path, body string, headers ...string) answer {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.ingest.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{code: resp.StatusCode, header: resp.Header}
	text, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(text, &a.body); err != nil {
		b.Fatalf("%s %s answers %q: %v", method, path, text, err)
	}
	return a
}

func (b *bench) wantCode(a answer, code int) {
	b.Helper()
	if a.code != code {
		b.Fatalf("answered %d %v, want %d", a.code, a.body, code)
	}
}

// state asks what has become of a request.
func (b *bench) state(a answer) string {
	b.Helper()
	s := b.send("GET", a.header.Get("Location"), "")
	b.wantCode(s, 200)
	return s.body["state"].(string)
}

// delivered is a request as the upstream saw it.
type delivered struct {
	at           time.Time
	method, path string
	host, body   string
	header       http.Header
}

// upstream keeps what it gets, and answers as the test says.
type upstream struct {
	*httptest.Server
	mu     sync.Mutex
	got    []delivered
	answer func(n int, d delivered) int // the n-th request's status, from 0; nil: 200
}

func newUpstream(t *testing.T, answer func(n int, d delivered) int) *upstream {
	u := &upstream{answer: answer}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		d := delivered{time.Now(), r.Method, r.RequestURI, r.Host, string(body), r.Header}
		u.mu.Lock()
		n := len(u.got)
		u.got = append(u.got, d)
		u.mu.Unlock()
		if u.answer != nil {
			w.WriteHeader(u.answer(n, d))
		}
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) all() []delivered {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]delivered(nil), u.got...)
}

// work starts a worker, which stops with the test or when asked to.
func (b *bench) work(u *upstream, opts queue.WorkerOptions) (stop func()) {
	b.Helper()
	target, err := url.Parse(u.URL)
	if err != nil {
		b.Fatal(err)
	}
	opts.Queues, opts.Upstream, opts.Logger = b.open(), target, b.logger()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := queue.NewWorker(opts).Run(ctx); err != nil {
			b.Errorf("the worker ended: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.Cleanup(stop)
	return stop
}

// await polls until what is true.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after 30 s: %s", what)
		}
	}
}

func httpPost(path string) *weirv1.HttpRequest {
	return &weirv1.HttpRequest{Method: "POST", Path: []byte(path)}
}
