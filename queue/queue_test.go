package queue_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/queue"
)

func TestAQueuedRequestArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100, 10)
	a := b.post("/orders/a%2Fb?x=1&y=%20", "four apples", "Host", "shop.example", "X-Client", "one", "X-Client", "two", "Traceparent", "00-1-2-01",
		"Connection", "X-Hop", "X-Hop", "gone", "Te", "trailers", "X-Weir-Delivery", "7", "Content-Type", "text/fruit")
	b.wantCode(a, 202)
	if b.state(a) != queue.StateWaiting || a.header.Get("Retry-After") != "1" {
		t.Fatalf("it is %s, Retry-After %q", b.state(a), a.header.Get("Retry-After"))
	}
	u := newUpstream(t, func(int, delivered) int { return 201 })
	b.work(u, queue.WorkerOptions{})
	await(t, "it is done", func() bool { return b.state(a) == queue.StateDone })

	d := u.all()
	if len(d) != 1 {
		t.Fatalf("the upstream got %d requests", len(d))
	}
	got := d[0]
	if got.method != "POST" || got.path != "/orders/a%2Fb?x=1&y=%20" || got.host != "shop.example" || got.body != "four apples" {
		t.Errorf("it got %s %s for %s: %q", got.method, got.path, got.host, got.body)
	}
	for name, want := range map[string]string{
		"X-Client": "one,two", "Traceparent": "00-1-2-01", "Content-Type": "text/fruit",
		"X-Hop": "", "Te": "", queue.HeaderOverflow: "", queue.HeaderTicket: "",
		queue.HeaderDelivery: "1", queue.HeaderIdempotencyKey: a.body["id"].(string), queue.HeaderQueueID: a.body["id"].(string),
	} {
		if value := strings.Join(got.header.Values(name), ","); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	if s := b.send("GET", a.header.Get("Location"), ""); s.body["status"] != 201.0 || s.body["deliveries"] != 1.0 {
		t.Errorf("its result is %v", s.body)
	}
}

func TestOrderAndRate(t *testing.T) {
	t.Parallel()
	b := newBench(t, 50, 200)
	for i := range 100 {
		b.wantCode(b.post(fmt.Sprint("/", i), ""), 202)
	}
	u := newUpstream(t, nil)
	b.work(u, queue.WorkerOptions{})
	await(t, "all are delivered", func() bool { return len(u.all()) == 100 })
	got := u.all()
	for i, d := range got {
		if d.path != fmt.Sprint("/", i) {
			t.Fatalf("the %d. is %s", i, d.path)
		}
	}
	// 99 intervals of 20 ms. Not more than 50 a second, and on a busy machine fewer.
	if took := got[99].at.Sub(got[0].at); took < 1900*time.Millisecond || took > 6*time.Second {
		t.Errorf("100 at 50 a second took %v", took)
	}
}

func TestAFullQueueAnswers429AndALargeBody413(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 2)
	b.wantCode(b.post("/", strings.Repeat("x", 1001)), 413)
	b.wantCode(b.post("/", strings.Repeat("x", 1000)), 202)
	second := b.post("/", "")
	b.wantCode(second, 202)
	if second.body["ahead"] != 1.0 || second.header.Get("Retry-After") != "1" {
		t.Errorf("the second: %v, Retry-After %s", second.body, second.header.Get("Retry-After"))
	}
	full := b.post("/", "")
	b.wantCode(full, 429)
	if full.header.Get("Retry-After") != "1" || full.header.Get("Location") != "" {
		t.Errorf("the third: %v", full.header)
	}
}

func TestAnIdempotencyKeyQueuesOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100, 2)
	const key = queue.HeaderIdempotencyKey
	first := b.post("/orders", "apples", key, "k1")
	again := b.post("/orders", "apples", key, "k1")
	b.wantCode(first, 202)
	b.wantCode(again, 202)
	if first.header.Get("Location") != again.header.Get("Location") || again.body["duplicate"] != true {
		t.Errorf("%v, and again %v", first.body, again.body)
	}
	b.wantCode(b.post("/orders", "pears", key, "k1"), 422)
	other := b.post("/orders", "pears", key, "k1", "Authorization", "someone else's")
	b.wantCode(other, 202)
	b.wantCode(b.post("/orders", "apples", key, "k1"), 202) // also where the queue is full
	b.wantCode(b.post("/orders", "plums", key, "k2"), 429)
	b.wantCode(b.post("/orders", "plums", key, strings.Repeat("k", 256)), 400)

	u := newUpstream(t, nil)
	b.work(u, queue.WorkerOptions{})
	await(t, "both are done", func() bool { return b.state(first) == queue.StateDone && b.state(other) == queue.StateDone })
	for _, d := range u.all() {
		if d.header.Get(key) != "k1" {
			t.Errorf("the upstream got the key %q", d.header.Get(key))
		}
	}
	done := b.post("/orders", "apples", key, "k1")
	b.wantCode(done, 202)
	if done.header.Get("Location") != first.header.Get("Location") || len(u.all()) != 2 || done.body["state"] != queue.StateDone {
		t.Errorf("after it was done: %v, %d deliveries", done.body, len(u.all()))
	}
}

func TestWhoIsLetIntoTheIngest(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 100)
	good := b.queues.Ticket(&b.orders, 1)
	elsewhere := newBench(t, 1, 100)
	for _, c := range []struct {
		headers []string
		code    int
		remark  string
	}{
		{nil, 404, "nothing is asked of the ingest"},
		{[]string{queue.HeaderOverflow, "orders"}, 403, "a client's own header"},
		{[]string{queue.HeaderOverflow, "orders", queue.HeaderTicket, "x.y"}, 403, "no ticket"},
		{[]string{queue.HeaderOverflow, "orders", queue.HeaderTicket, good[:len(good)-1]}, 403, "a broken one"},
		{[]string{queue.HeaderOverflow, "orders", queue.HeaderTicket, "x" + good}, 403, "another text"},
		{[]string{queue.HeaderOverflow, "orders", queue.HeaderTicket, elsewhere.queues.Ticket(&b.orders, 1)}, 403, "signed elsewhere"},
		{[]string{queue.HeaderTicket, good}, 202, "a ticket is enough"},
		{[]string{queue.HeaderQueue, "d/orders"}, 403, "without the secret"},
		{[]string{queue.HeaderQueue, "d/orders", queue.HeaderSecret, direct + "x"}, 403, "another secret"},
		{[]string{queue.HeaderQueue, "d/other", queue.HeaderSecret, direct}, 404, "another queue"},
		{[]string{queue.HeaderQueue, "d/orders", queue.HeaderSecret, direct}, 202, "directly"},
		{[]string{queue.HeaderTicket, good, "Content-Type", "application/grpc"}, 501, "a gRPC call wants its answer now"},
		{[]string{queue.HeaderTicket, good, "Connection", "Upgrade", "Upgrade", "websocket"}, 501, "a web socket"},
	} {
		if a := b.send("POST", "/orders", "", c.headers...); a.code != c.code {
			t.Errorf("%s: %d %v, want %d", c.remark, a.code, a.body, c.code)
		}
	}
	for _, path := range []string{"/queue/", "/queue/x", "/queue/x.y", "/queue/" + strings.Repeat("a", 22) + "." + strings.Repeat("A", 26)} {
		if a := b.send("GET", path, ""); a.code != 404 {
			t.Errorf("GET %s: %d, want 404", path, a.code)
		}
	}
}

func TestWithoutRedisNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 100)
	a := b.post("/orders", "")
	b.wantCode(a, 202)
	b.redis.Stop(t)
	b.wantCode(b.post("/orders", ""), 503)
	b.wantCode(b.send("GET", a.header.Get("Location"), ""), 503)
}

func TestARedisThatBeganAnewIsToldAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 10)
	known := func(want bool) {
		t.Helper()
		if got, err := b.queues.Announced(t.Context(), []queue.About{b.orders}); err != nil || got != want {
			t.Errorf("announced: %t, %v; want %t", got, err, want)
		}
	}
	known(true)
	ticket := b.queues.Ticket(&b.orders, 1)
	b.redis.MustDo(t, "FLUSHALL")
	known(false)
	if err := b.queues.LoadSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := b.open()
	if err := other.LoadSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	ingest := queue.NewIngest(queue.IngestOptions{Queues: other, Find: func(_, _ string) *queue.About { return nil }})
	r := httptest.NewRequest(http.MethodPost, "/orders", nil)
	r.Header.Set(queue.HeaderTicket, ticket)
	w := httptest.NewRecorder()
	ingest.ServeHTTP(w, r)
	if w.Code != 202 {
		t.Errorf("another instance answers %d to a ticket of before", w.Code)
	}
}

func TestALimitOf0QueuesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0, 10)
	a := b.post("/orders", "")
	b.wantCode(a, 429)
	if a.header.Get("Retry-After") != "" {
		t.Errorf("it says when to come again: %v", a.header)
	}
}

func TestATicketIsShortHoweverLongTheNames(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 10)
	long := b.orders
	long.Domain, long.Rule, long.Path = strings.Repeat("é", 50_000), strings.Repeat("é", 50_000), strings.Repeat("é", 50_000)
	ticket := b.queues.Ticket(&long, 1)
	if len(ticket) > 4000 {
		t.Errorf("it has %d bytes", len(ticket))
	}
	b.wantCode(b.send("POST", "/orders", "", queue.HeaderTicket, ticket), 202)
}
