package queue_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/internal/testenv"
	"weir/queue"
	"weir/rules"
)

// place is several Redis where queues lie.
type place struct {
	url      string
	replicas int
	master   func(t *testing.T, a *queue.About) *testenv.Redis // who has the queue now
}

func onCluster(t *testing.T) place {
	t.Helper()
	cluster := testenv.StartRedisCluster(t, testenv.RedisClusterOptions{Replicas: 1})
	return place{"redis+cluster://" + cluster.Addrs(), 1, func(t *testing.T, a *queue.About) *testenv.Redis { return cluster.Master(t, a.Tag) }}
}

// onSentinel has masters that take nothing without a replica. Else one that was
// frozen and comes back goes on as the master, for a second or two, until it is told
// of the next: the workers that have not heard either deliver from it what others
// deliver from the next.
func onSentinel(t *testing.T) place {
	t.Helper()
	s := testenv.StartSentinel(t, testenv.SentinelOptions{})
	for _, node := range s.Nodes {
		node.MustDo(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	}
	return place{"redis+sentinel://" + s.Addrs() + "/" + s.Name, 2, func(t *testing.T, _ *queue.About) *testenv.Redis { return s.Master(t) }}
}

// site is a `weir serve` on such a place, with two queues and an upstream for them.
type site struct {
	*testing.T
	place
	queues        *queue.Queues
	orders, mails queue.About // on a cluster, of two masters
	ingest        string
	upstream      *upstream

	// Who posts holds it for reading, so that who writes sees all posts answered.
	posting sync.RWMutex
}

// Of each queue, departures a second.
const siteRate = 50

func newSite(t *testing.T, p place, answer func(n int, d delivered) int) *site {
	t.Helper()
	s := &site{T: t, place: p, upstream: newUpstream(t, answer)}
	var err error
	if s.queues, err = queue.Open(queue.Options{URL: p.url}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.queues.Close() })
	text := s.choose()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := testenv.FreeAddr(t)
	s.ingest = "http://" + addr
	testenv.Start(t, testenv.Program{Path: testenv.WeirBinary(t), Addr: addr, Args: []string{
		"serve", "--rules", path, "--store", p.url, "--queue-addr", addr, "--queue-secret", direct,
		"--grpc-addr", testenv.FreeAddr(t), "--http-addr", testenv.FreeAddr(t),
	}})
	await(t, "the queues are announced", func() bool {
		all, err := s.queues.Overviews(t.Context())
		return err == nil && len(all) == 2
	})
	return s
}

// choose makes two rules, whose queues lie on two masters if there are several.
func (s *site) choose() string {
	s.Helper()
	for n := range 20 {
		text := fmt.Sprintf(`
domain: d
rules:
- {name: orders, endpoint: /orders, limit: %[1]d, window: 1s, algorithm: leaky_bucket, queue: 5000, over_limit: queue}
- {name: mails%[2]d, endpoint: /mails, limit: %[1]d, window: 1s, algorithm: leaky_bucket, queue: 5000, over_limit: queue}
`, siteRate, n)
		doc, err := rules.Parse("rules.yaml", []byte(text))
		if err != nil {
			s.Fatal(err)
		}
		set, err := rules.Compile(doc)
		if err != nil {
			s.Fatal(err)
		}
		for _, r := range set.Queues() {
			if a := s.queues.AboutRule(r); r.Label() == "orders" {
				s.orders = a
			} else {
				s.mails = a
			}
		}
		if strings.Contains(s.url, "sentinel") || s.master(s.T, &s.orders) != s.master(s.T, &s.mails) {
			return text
		}
	}
	s.Fatal("all queues lie on one master")
	return ""
}

// startWorker runs `weir worker`.
func (s *site) startWorker(args ...string) *testenv.Process {
	s.Helper()
	return testenv.Start(s.T, testenv.Program{Path: testenv.WeirBinary(s.T), Args: append([]string{
		"worker", "--store", s.url, "--upstream", s.upstream.URL, "--retry-min", "10ms", "--retry-max", "100ms",
	}, args...)})
}

// of are the deliveries of a queue.
func (s *site) of(a *queue.About) (got []delivered) {
	for _, d := range s.upstream.all() {
		if d.host == a.Rule {
			got = append(got, d)
		}
	}
	return got
}

// empty tells whether nobody waits.
func (s *site) empty() bool {
	all, err := s.queues.Overviews(s.Context())
	return err == nil && len(all) == 2 && all[0].Waiting == 0 && all[1].Waiting == 0
}

// replicated waits until the replicas have all that the queue's master has
// written. WAIT is about what its own connection wrote, and so about what was
// before that.
func (s *site) replicated(a *queue.About, master *testenv.Redis) {
	s.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: master.Addr})
	defer client.Close()
	conn := client.Conn()
	defer conn.Close()
	if err := conn.Set(s.Context(), a.Tag+"mark", "x", time.Hour).Err(); err != nil {
		s.Fatal(err)
	}
	if n, err := conn.Wait(s.Context(), s.replicas, 10*time.Second).Result(); err != nil || int(n) < s.replicas {
		s.Fatalf("%d of %d replicas have it: %v", n, s.replicas, err)
	}
}

// client is one that sends requests /0, /1, … into a queue, each until it is told
// 202, by an idempotency key.
type client struct {
	site  *site
	queue *queue.About

	mu      sync.Mutex
	codes   map[int]int
	longest time.Duration // until an answer
}

func (c *client) count(code int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.codes[code]
}

// run posts until stop is closed: so many at once, and from then on at the rate at
// which the queue empties.
func (c *client) run(atOnce int, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second / siteRate)
	defer tick.Stop()
	for {
		if c.count(202) >= atOnce {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
		code, err := c.post()
		if err != nil || code != 202 && code != 503 {
			c.site.Errorf("a post to %s is answered %d, %v", c.queue.Name(), code, err)
			return
		}
	}
}

// post sends the first that was not told 202 yet.
func (c *client) post() (int, error) {
	c.site.posting.RLock()
	defer c.site.posting.RUnlock()
	n := c.count(202)
	r, err := http.NewRequestWithContext(c.site.Context(), http.MethodPost, fmt.Sprint(c.site.ingest, "/", n), strings.NewReader("x"))
	if err != nil {
		return 0, err
	}
	r.Host = c.queue.Rule
	r.Header.Set(queue.HeaderQueue, c.queue.Name())
	r.Header.Set(queue.HeaderSecret, direct)
	r.Header.Set(queue.HeaderIdempotencyKey, fmt.Sprint(c.queue.Rule, n))
	begin := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.codes[resp.StatusCode]++
	c.longest = max(c.longest, time.Since(begin))
	return resp.StatusCode, err
}

// checkRate holds deliveries against the rate: it is a bound over any time, and the
// first ones come about as fast. One that came late may be followed an interval too
// early, and a busy machine sees them late.
func checkRate(t *testing.T, name string, got []delivered, first int) {
	t.Helper()
	const interval, slack = time.Second / siteRate, 300 * time.Millisecond
	for i := range got {
		for j := i + 1; j < len(got); j++ {
			if took, least := got[j].at.Sub(got[i].at), time.Duration(j-i-1)*interval-slack; took < least {
				t.Fatalf("%s: from delivery %d to %d are %v, less than %v", name, i, j, took, least)
			}
		}
	}
	if took, most := got[first].at.Sub(got[0].at), 5*time.Duration(first)*interval; took > most {
		t.Errorf("%s: the first %d took %v, more than %v", name, first, took, most)
	}
}

// The master is lost while one request is at the upstream and others are posted.
// What was acknowledged is on its replicas by then; nothing else is promised.
func TestQueuesGoOnWhenAMasterIsLost(t *testing.T) {
	t.Parallel()
	kill := func(_ *testing.T, r *testenv.Redis) { r.Kill() }
	freeze := func(t *testing.T, r *testenv.Redis) {
		if err := r.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		on     func(*testing.T) place
		lose   func(*testing.T, *testenv.Redis)
		remark string
	}{
		{"cluster, killed", onCluster, kill, "connections are refused"},
		{"cluster, frozen", onCluster, freeze, "connections are silent, and the old master comes back and thinks it is one"},
		{"sentinel, killed", onSentinel, kill, "connections are refused"},
		{"sentinel, frozen", onSentinel, freeze, "connections are silent, and the old master comes back and thinks it is one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			t.Log(tt.remark)
			loseMaster(t, tt.on(t), tt.lose)
		})
	}
}

func loseMaster(t *testing.T, p place, lose func(*testing.T, *testenv.Redis)) {
	const before, after = 40, 40
	held, release := make(chan struct{}), make(chan struct{})
	hold, let := sync.OnceFunc(func() { close(held) }), sync.OnceFunc(func() { close(release) })
	defer let()
	s := newSite(t, p, func(_ int, d delivered) int {
		if d.host == "orders" && d.path == fmt.Sprint("/", before) {
			hold()
			<-release
		}
		return 200
	})
	s.startWorker()
	s.startWorker()
	var posting sync.WaitGroup
	stop := make(chan struct{})
	stopped := sync.OnceFunc(func() { close(stop); posting.Wait() })
	defer stopped()
	orders, mails := &client{site: s, queue: &s.orders, codes: map[int]int{}}, &client{site: s, queue: &s.mails, codes: map[int]int{}}
	for _, c := range []*client{orders, mails} {
		posting.Go(func() { c.run(before/2, stop) })
	}
	<-held

	s.posting.Lock()
	master := p.master(t, &s.orders)
	s.replicated(&s.orders, master)
	acknowledged := orders.count(202)
	lose(t, master)
	s.posting.Unlock()
	lost := time.Now()
	let()
	await(t, "the ingest says that Redis is away", func() bool { return orders.count(503) > 0 })
	await(t, "the ingest takes requests again", func() bool { return orders.count(202) > acknowledged })
	taking := time.Since(lost)
	delivering := len(s.of(&s.orders))
	await(t, "requests are delivered again", func() bool { return len(s.of(&s.orders)) > delivering })
	again := time.Since(lost)
	// A departure that a master granted and told nobody of would be granted again by
	// the next, as the same delivery. So it comes back when nobody waits for its
	// answers any more.
	await(t, "all have given up to wait for the old master", func() bool { return time.Since(lost) > 2*queue.DefaultTimeout })
	if err := master.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	acknowledged = orders.count(202)
	await(t, "more is taken", func() bool { return orders.count(202) > acknowledged+after })
	stopped()
	await(t, "all are delivered", s.empty)

	for _, c := range []*client{orders, mails} {
		got := s.of(c.queue)
		t.Logf("%s: answers %v, the longest after %v; %d deliveries", c.queue.Name(), c.codes, c.longest.Round(time.Millisecond), len(got))
		if len(got) < before+after {
			t.Fatal("too few to judge")
		}
		checkDeliveries(t, got, c.count(202))
		checkRate(t, c.queue.Name(), got, before)
		if c.longest > 10*time.Second {
			t.Errorf("%s: an answer took %v", c.queue.Name(), c.longest)
		}
	}
	t.Logf("after the loss: 202 after %v, deliveries after %v", taking.Round(time.Millisecond), again.Round(time.Millisecond))
}
