package queue_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	weirv1 "weir/api/weir/v1"
	"weir/internal/testenv"
	"weir/queue"
)

// An http.Transport sends a request with an Idempotency-Key again by itself when a
// connection that was used before breaks.
func TestEachDeliveryIsCountedAlsoWhenConnectionsBreak(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ method, body, remark string }{
		{"POST", "x", "with a body"},
		{"POST", "", "without"},
		{"GET", "", "of a method that is repeated without a key, too"},
	} {
		t.Run(tt.method+" "+tt.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 10)
			for range 3 {
				b.wantCode(b.send(tt.method, "/a", tt.body, "X-Weir-Queue", "d/orders", "X-Weir-Queue-Secret", direct), 202)
			}
			u := &upstream{}
			perConn := map[string]int{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				u.mu.Lock()
				u.got = append(u.got, delivered{at: time.Now(), header: r.Header})
				n := len(u.got)
				perConn[r.RemoteAddr]++
				used := perConn[r.RemoteAddr] > 1
				u.mu.Unlock()
				if used || n == 4 { // it has had the request, and says nothing
					panic(http.ErrAbortHandler)
				}
			}))
			t.Cleanup(u.Close)
			b.work(u, impatient)
			await(t, "all are delivered", func() bool {
				n, err := b.queues.Overviews(t.Context())
				return err == nil && n[0].Waiting == 0
			})
			seen := map[string]bool{}
			for _, d := range u.all() {
				which := d.header.Get(queue.HeaderQueueID) + " " + d.header.Get(queue.HeaderDelivery)
				if seen[which] {
					t.Errorf("delivery %s was there twice", which)
				}
				seen[which] = true
			}
		})
	}
}

func TestAnUpstreamThatTakesNoConnectionFailsNoRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	r := b.post("/a", "x")
	u := newUpstream(t, nil)
	opts := impatient
	opts.MaxDeliveries, opts.Timeout = 1, 20*time.Millisecond

	u.Server.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and never says hello
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	u.URL = "https://" + mute.Addr().String()
	b.work(u, opts)
	await(t, "it was tried often", func() bool { return b.send("GET", r.header.Get("Location"), "").body["deliveries"].(float64) > 4 })
	if s := b.state(r); s != queue.StateDelivering {
		t.Errorf("it is %s", s)
	}
}

func TestARetryAfterIsRespectedUpToTheLongestWait(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		after   func() string
		longest time.Duration
		waits   time.Duration // at least
		remark  string
	}{
		{func() string { return "2" }, time.Minute, 2 * time.Second, "seconds"},
		{func() string { return "100000" }, 2 * time.Second, 2 * time.Second, "many seconds"},
		{func() string { return in(4 * time.Second) }, time.Minute, 2500 * time.Millisecond, "a date, which has whole seconds"},
		{func() string { return in(100 * time.Hour) }, 2 * time.Second, 2 * time.Second, "a date that is far"},
		{func() string { return in(-time.Hour) }, time.Minute, 0, "a date that is past"},
		{func() string { return "soon" }, time.Minute, 0, "neither"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 10)
			b.wantCode(b.post("/a", "x"), 202)
			u := &upstream{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				u.mu.Lock()
				u.got = append(u.got, delivered{at: time.Now()})
				n := len(u.got)
				u.mu.Unlock()
				if n == 1 {
					w.Header().Set("Retry-After", c.after())
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			t.Cleanup(u.Close)
			b.work(u, queue.WorkerOptions{RetryMin: time.Millisecond, RetryMax: c.longest})
			await(t, "it is tried again", func() bool { return len(u.all()) == 2 })
			if got := u.all(); got[1].at.Sub(got[0].at) < c.waits*95/100 {
				t.Errorf("tried again after %v", got[1].at.Sub(got[0].at))
			}
		})
	}
}

// The answers' heads say all: what does not end after them holds nobody up.
func TestABodyThatDoesNotEndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remark string
		write  func(http.ResponseWriter) bool // more
	}{
		{"it says nothing", func(http.ResponseWriter) bool { return false }},
		{"it says ever more", func(w http.ResponseWriter) bool { _, err := w.Write(make([]byte, 100_000)); return err == nil }},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 10)
			var last answer
			for range 3 {
				last = b.post("/a", "x")
				b.wantCode(last, 202)
			}
			left := make(chan struct{}, 10)
			u := &upstream{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				u.mu.Lock()
				u.got = append(u.got, delivered{at: time.Now(), header: r.Header})
				u.mu.Unlock()
				w.WriteHeader(http.StatusCreated)
				_ = http.NewResponseController(w).Flush()
				for c.write(w) {
				}
				<-r.Context().Done() // the worker closes the connection
				left <- struct{}{}
			}))
			t.Cleanup(u.Close)
			b.work(u, queue.WorkerOptions{Timeout: time.Hour})
			await(t, "all are done", func() bool { return b.state(last) == queue.StateDone })
			if s := b.send("GET", last.header.Get("Location"), ""); s.body["status"] != 201.0 || s.body["deliveries"] != 1.0 {
				t.Errorf("the last is %v", s.body)
			}
			if n := len(u.all()); n != 3 {
				t.Errorf("%d deliveries, want 3", n)
			}
			for range 3 {
				<-left
			}
		})
	}
}

// Nobody asked for another protocol, and Go reads its connection without a bound.
func TestAnAnswerThatIsNoneIsAFailedDelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, head string }{
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"},
		{"another protocol, unnamed", "HTTP/1.1 101 Switching Protocols\r\n\r\n"},
		{"a status that is none", "HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 10)
			first, next := b.post("/a", "x"), b.post("/b", "x")
			u := &upstream{}
			u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.RequestURI != "/a" {
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(conn, c.head)
				_, _ = io.Copy(io.Discard, conn) // until the worker closes it
				conn.Close()
			}))
			t.Cleanup(u.Close)
			opts := impatient
			opts.MaxDeliveries, opts.Timeout = 2, time.Minute
			b.work(u, opts)
			await(t, "it is given up", func() bool { return b.state(first) == queue.StateFailed })
			await(t, "the next is done", func() bool { return b.state(next) == queue.StateDone })
		})
	}
}

func TestAnAnswerThatWasReadLeavesItsConnectionForTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	for range 3 {
		b.wantCode(b.post("/a", "x"), 202)
	}
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.got = append(u.got, delivered{host: r.RemoteAddr})
		u.mu.Unlock()
		_, _ = w.Write(make([]byte, 100_000))
	}))
	t.Cleanup(u.Close)
	b.work(u, impatient)
	await(t, "all are delivered", func() bool { return len(u.all()) == 3 })
	if got := u.all(); got[0].host != got[1].host || got[1].host != got[2].host {
		t.Errorf("they came from %v", got)
	}
}

// 0.0.0.0 is this machine, and none of the addresses that are never asked of a proxy.
func TestAWorkerHeedsNoProxyOfItsEnvironment(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	a := b.post("/a", "x")
	var proxied atomic.Bool
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		proxied.Store(true)
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(proxy.Close)
	u := newUpstream(t, nil)
	testenv.Start(t, testenv.Program{
		Path: testenv.WeirBinary(t),
		Args: []string{"worker", "--store", b.url, "--upstream", strings.Replace(u.URL, "127.0.0.1", "0.0.0.0", 1)},
		Env:  []string{"HTTP_PROXY=" + proxy.URL, "http_proxy=" + proxy.URL, "NO_PROXY=", "no_proxy="},
	})
	await(t, "it is done", func() bool { return b.state(a) == queue.StateDone })
	if proxied.Load() || len(u.all()) != 1 {
		t.Errorf("%d requests came to the upstream, by a proxy: %t", len(u.all()), proxied.Load())
	}
}

func TestAFullRedisIsEmptied(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	for range 3 {
		b.wantCode(b.post("/a", "x"), 202)
	}
	client := goredis.NewClient(&goredis.Options{Addr: b.redis.Addr})
	t.Cleanup(func() { client.Close() })
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	b.wantCode(b.post("/b", "x"), 503)
	opts := impatient
	opts.MaxDeliveries = 2
	u := newUpstream(t, func(n int, _ delivered) int { return []int{200, 500, 500, 200}[min(n, 3)] }) // one is given up
	b.work(u, opts)
	await(t, "it is empty", func() bool {
		n, err := b.queues.Overviews(t.Context())
		return err == nil && n[0].Waiting == 0
	})
	if n := len(u.all()); n != 4 {
		t.Errorf("%d deliveries, want 4", n)
	}
}

func TestWhatCannotBeReplayedIsRefusedForGood(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.ingest.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("GET //a|b HTTP/1.1\r\nHost: a\r\nX-Weir-Queue: d/orders\r\nX-Weir-Queue-Secret: " + direct + "\r\n\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("answered %d, want 400", resp.StatusCode)
	}
	_, err = b.queues.Append(t.Context(), &b.orders, queue.Request{HTTP: &weirv1.HttpRequest{Path: []byte("/"), Authority: "a b\n"}})
	if err == nil {
		t.Error("an authority that is none was queued")
	}
}

func TestTheSecretOutlivesARedisThatLosesIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	ticket := b.queues.Ticket(&b.orders, 1)
	client := goredis.NewClient(&goredis.Options{Addr: b.redis.Addr})
	t.Cleanup(func() { client.Close() })
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.queues.LoadSecret(t.Context()); err != nil { // as serve does now and then
		t.Fatal(err)
	}
	other := b.open() // an instance that starts afterwards
	if err := other.LoadSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	ingest := httptest.NewServer(queue.NewIngest(queue.IngestOptions{Queues: other}))
	t.Cleanup(ingest.Close)
	b.ingest.URL = ingest.URL
	b.wantCode(b.send("POST", "/a", "x", queue.HeaderOverflow, "orders", queue.HeaderTicket, ticket), 202)
}
