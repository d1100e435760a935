package queue_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/queue"
)

// impatient are options of a worker that retries soon.
var impatient = queue.WorkerOptions{RetryMin: 10 * time.Millisecond, RetryMax: 50 * time.Millisecond}

func TestAFailedDeliveryIsRepeatedBeforeAnyOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	for _, path := range []string{"/a", "/b", "/c"} {
		b.wantCode(b.post(path, ""), 202)
	}
	u := newUpstream(t, func(n int, _ delivered) int { return []int{200, 503, 429, 500, 404, 200}[n] })
	b.work(u, impatient)
	await(t, "all are delivered", func() bool { return len(u.all()) == 6 })
	var seen []string
	for _, d := range u.all() {
		seen = append(seen, d.path+" "+d.header.Get(queue.HeaderDelivery))
	}
	want := []string{"/a 1", "/b 1", "/b 2", "/b 3", "/b 4", "/c 1"} // a 404 is an answer
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("the upstream saw %q, want %q", seen, want)
	}
}

func TestWhatFailsTooOftenIsGivenUpUntilAnOperatorDecides(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	healthy := make(chan struct{})
	u := newUpstream(t, func(_ int, d delivered) int {
		select {
		case <-healthy:
			return 200
		default:
		}
		if strings.HasPrefix(d.path, "/bad") {
			return 500
		}
		return 200
	})
	bad, worse, good := b.post("/bad", "b"), b.post("/bad/worse", ""), b.post("/good", "")
	opts := impatient
	opts.MaxDeliveries = 3
	b.work(u, opts)
	await(t, "the third is done", func() bool { return b.state(good) == queue.StateDone })
	s := b.send("GET", bad.header.Get("Location"), "")
	if s.body["state"] != queue.StateFailed || s.body["status"] != 500.0 || s.body["deliveries"] != 3.0 {
		t.Fatalf("it is %v", s.body)
	}
	entries, err := b.queues.Peek(t.Context(), &b.orders, true, 10)
	if err != nil || len(entries) != 2 || string(entries[0].Request.Path) != "/bad" || !strings.Contains(entries[0].Why, "500") {
		t.Fatalf("given up: %v, %v", entries, err)
	}
	if n, err := b.queues.Drop(t.Context(), &b.orders, true, []string{worse.body["id"].(string)}); n != 1 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	close(healthy)
	if n, err := b.queues.Retry(t.Context(), &b.orders, nil); n != 1 || err != nil {
		t.Fatalf("put back %d, %v", n, err)
	}
	await(t, "it is done after all", func() bool { return b.state(bad) == queue.StateDone })
	last := u.all()[len(u.all())-1]
	if last.path != "/bad" || last.body != "b" || last.header.Get(queue.HeaderDelivery) != "4" {
		t.Errorf("the last delivery: %s %q, number %s", last.path, last.body, last.header.Get(queue.HeaderDelivery))
	}
	if b.state(worse) != queue.StateDropped {
		t.Errorf("the other is %s", b.state(worse))
	}
}

func TestAnUpstreamThatIsDownIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	addr := testenv.FreeAddr(t)
	a := b.post("/a", "")
	down := &upstream{Server: &httptest.Server{URL: "http://" + addr}}
	opts := impatient
	opts.MaxDeliveries = 1
	b.work(down, opts)
	await(t, "it was tried several times", func() bool {
		n, _ := b.send("GET", a.header.Get("Location"), "").body["deliveries"].(float64)
		return n >= 5
	})
	up := make(chan string, 10)
	server := &http.Server{Addr: addr, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { up <- r.URL.Path })}
	go func() { _ = server.ListenAndServe() }()
	defer server.Close()
	if path := <-up; path != "/a" {
		t.Errorf("it got %s", path)
	}
	await(t, "it is done", func() bool { return b.state(a) == queue.StateDone })
}

func TestOneWorkerAtATimeAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, 100, 100)
	u := newUpstream(t, func(int, delivered) int { time.Sleep(2 * time.Millisecond); return 200 })
	var stops []func()
	for range 3 {
		stops = append(stops, b.work(u, impatient))
	}
	for i := range 60 {
		b.wantCode(b.post(fmt.Sprint("/", i), ""), 202)
		if i == 20 || i == 40 {
			n := len(u.all())
			await(t, "some are delivered", func() bool { return len(u.all()) > n })
			stops[i/20-1]()
		}
	}
	await(t, "all are delivered", func() bool { return len(u.all()) >= 60 })
	for i, d := range u.all() {
		if d.path != fmt.Sprint("/", i) || d.header.Get(queue.HeaderDelivery) != "1" {
			t.Fatalf("the %d. delivery is %s, its %s.", i, d.path, d.header.Get(queue.HeaderDelivery))
		}
	}
}

func TestTheQueueOutlivesARestartOfRedis(t *testing.T) {
	t.Parallel()
	opts := testenv.RedisOptions{Addr: testenv.FreeAddr(t), Dir: t.TempDir(), Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}
	b := newBenchOn(t, testenv.StartRedis(t, opts), 50, 100)
	u := newUpstream(t, nil)
	for i := range 40 {
		b.wantCode(b.post(fmt.Sprint("/", i), ""), 202)
	}
	b.work(u, impatient)
	await(t, "some are delivered", func() bool { return len(u.all()) > 5 })
	b.redis.Kill()
	b.redis = testenv.StartRedis(t, opts)
	seen := func() map[string]int {
		m := map[string]int{}
		for _, d := range u.all() {
			m[d.path]++
			if fmt.Sprint(m[d.path]) > d.header.Get(queue.HeaderDelivery) {
				t.Errorf("%s came the %d. time and says %s", d.path, m[d.path], d.header.Get(queue.HeaderDelivery))
			}
		}
		return m
	}
	await(t, "all are delivered", func() bool { return len(seen()) == 40 })
}

func TestALimitChangedLiveIsTheNewRate(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 100)
	for i := range 30 {
		b.wantCode(b.post(fmt.Sprint("/", i), ""), 202)
	}
	u := newUpstream(t, nil)
	b.work(u, impatient)
	await(t, "the first is delivered", func() bool { return len(u.all()) == 1 })
	begin := time.Now()
	if err := b.queues.Announce(t.Context(), []queue.About{b.about(100, 100)}); err != nil {
		t.Fatal(err)
	}
	await(t, "all are delivered", func() bool { return len(u.all()) == 30 })
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %v, as if nothing had changed", took)
	}
}

func TestOperatorsSeeAndDropWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, 100)
	first, second := b.post("/a", "apples"), b.post("/b", "")
	third := b.post("/c", "")
	all, err := b.queues.Overviews(t.Context())
	if err != nil || len(all) != 1 || all[0].Name() != "d/orders" || all[0].Waiting != 3 || all[0].Worked || all[0].Oldest.IsZero() {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, name := range []string{"d/orders", all[0].Hash} {
		if a, err := b.queues.Lookup(t.Context(), name); err != nil || a.Tag != b.orders.Tag {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if _, err := b.queues.Lookup(t.Context(), "d/other"); err == nil || !strings.Contains(err.Error(), "d/orders") {
		t.Errorf("an unknown queue: %v", err)
	}
	entries, err := b.queues.Peek(t.Context(), &b.orders, false, 2)
	if err != nil || len(entries) != 2 || entries[0].ID != first.body["id"] || string(entries[1].Request.Path) != "/b" {
		t.Fatalf("%v, %v", entries, err)
	}
	if n, err := b.queues.Drop(t.Context(), &b.orders, false, []string{second.body["id"].(string)}); n != 1 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if b.state(second) != queue.StateDropped {
		t.Errorf("it is %s", b.state(second))
	}
	if s := b.send("GET", third.header.Get("Location"), ""); s.body["ahead"] != 1.0 {
		t.Errorf("the third is %v", s.body)
	}
	if n, err := b.queues.Drop(t.Context(), &b.orders, false, nil); n != 2 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	if all, _ := b.queues.Overviews(t.Context()); all[0].Waiting != 0 {
		t.Errorf("%d wait", all[0].Waiting)
	}
}

// Redis lets one depart, its answer takes longer than an interval, and it would let the
// next at once.
func TestDeliveriesKeepApartAlsoWhenAnswersOfRedisAreLate(t *testing.T) {
	t.Parallel()
	b := newBench(t, 5, 100)
	for range 20 {
		b.wantCode(b.post("/a", ""), 202)
	}
	var answers atomic.Int64
	b.url = b.behind(func([]byte) {}, func([]byte) {
		if answers.Add(1)%7 == 0 { // 7: each kind of answer is late now and then
			time.Sleep(500 * time.Millisecond)
		}
	})
	u := newUpstream(t, nil)
	b.work(u, impatient)
	await(t, "all are delivered", func() bool { return len(u.all()) == 20 })
	for i, d := range u.all()[1:] {
		if gap := d.at.Sub(u.all()[i].at); gap < 60*time.Millisecond { // half an interval is 100
			t.Errorf("number %d came %v after the one before", i+1, gap)
		}
	}
}
