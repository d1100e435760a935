package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	grpcstatus "google.golang.org/grpc/status"

	"weir/client"
	"weir/internal/testenv"
	"weir/queue"
)

func TestWithoutWeirThePolicyDecidesEachRequest(t *testing.T) {
	for _, c := range []struct {
		policy client.FailurePolicy
		http   int
		grpc   grpccodes.Code
		passes bool
	}{
		{client.Allow, http.StatusOK, grpccodes.OK, true},
		{client.Deny, http.StatusTooManyRequests, grpccodes.ResourceExhausted, false},
		{client.Error, http.StatusServiceUnavailable, grpccodes.Unavailable, false},
	} {
		t.Run(fmt.Sprint(c.policy), func(t *testing.T) {
			var failed counted
			nobody := newClient(t, failed.options(client.Options{Addr: testenv.FreeAddr(t), OnFailure: c.policy}))
			h := nobody.Handler(hello, client.HTTPOptions{})
			const n = 50
			for range n {
				if got := get(h, "/posts"); got.Code != c.http {
					t.Fatalf("status %d, want %d", got.Code, c.http)
				}
			}
			d, err := nobody.Check(t.Context(), "default", client.Describe("a"))
			if (err == nil) == (c.policy == client.Error) || d.Allowed != c.passes || err == nil && d.Failure == nil {
				t.Errorf("%+v, %v", d, err)
			}
			service, _ := guard(t, nobody, client.GRPCOptions{})
			if _, err := service.Check(t.Context(), &healthpb.HealthCheckRequest{}); grpcstatus.Code(err) != c.grpc {
				t.Errorf("a call ends with %v", err)
			}
			if failed.n.Load() != n+2 || failed.logs.lines() == 0 || failed.logs.lines() > 3 {
				t.Errorf("%d failures counted, %d told", failed.n.Load(), failed.logs.lines())
			}
		})
	}
}

func TestAClosedClientDecidesByThePolicy(t *testing.T) {
	w := start(t, setup{rules: slow})
	w.Close()
	if d, err := w.Check(t.Context(), "default", client.Describe("endpoint", "/")); err != nil || !d.Allowed || d.Failure == nil {
		t.Errorf("%+v, %v", d, err)
	}
	if err := w.WaitReady(t.Context()); err == nil {
		t.Error("it says that it is ready")
	}
}

// startProcess starts `weir serve` with a rule that refuses whoever asks twice.
func startProcess(t *testing.T, addr string) *testenv.Weir {
	t.Helper()
	path := testenv.WriteFile(t, "rules.yaml", "rules:\n  - {match: {endpoint: '*'}, limit: 1, window: 1h}\n  - {match: {never: ''}, limit: 0, window: 1h}\n")
	return testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{path}, GRPCAddr: addr})
}

// decides tells whether Weir itself answers the client.
func decides(t *testing.T, c *client.Client) bool {
	t.Helper()
	d, err := c.Check(t.Context(), "default", client.Describe("never"))
	if err != nil {
		t.Fatal(err)
	}
	return d.Failure == nil && !d.Allowed
}

func TestNobodyNoticesThatWeirIsKilledAndComesBack(t *testing.T) {
	addr := testenv.FreeAddr(t)
	process := startProcess(t, addr)
	var failed counted
	c := newClient(t, failed.options(client.Options{Addr: addr, Timeout: time.Second}))
	eventually(t, "Weir decides", func() bool { return decides(t, c) })

	h := c.Handler(hello, client.HTTPOptions{})
	stop := make(chan struct{})
	var users sync.WaitGroup
	var served, others atomic.Int64
	for user := range 8 {
		users.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if get(h, fmt.Sprintf("/%d/%d", user, i)).Code == http.StatusOK { // each path may pass once
					served.Add(1)
				} else {
					others.Add(1)
				}
			}
		})
	}
	for range 2 {
		process.Kill()
		before := failed.n.Load()
		eventually(t, "the policy decides", func() bool { return failed.n.Load() > before+100 })
		process = startProcess(t, addr)
		eventually(t, "Weir decides again", func() bool { return decides(t, c) })
	}
	close(stop)
	users.Wait()
	if served.Load() == 0 || others.Load() > 0 {
		t.Errorf("%d requests were served, %d were not", served.Load(), others.Load())
	}
}

func TestAWeirThatHangsHoldsNobodyUpForLong(t *testing.T) {
	process := startProcess(t, "")
	c := newClient(t, client.Options{Addr: process.GRPCAddr, Timeout: 200 * time.Millisecond})
	eventually(t, "Weir decides", func() bool { return decides(t, c) })
	signal(t, process.Process, syscall.SIGSTOP)
	t.Cleanup(func() { signal(t, process.Process, syscall.SIGCONT) }) // or it could not end
	h := c.Handler(hello, client.HTTPOptions{})
	begin := time.Now()
	const n = 50
	for i := range n {
		one := time.Now()
		if got := get(h, fmt.Sprint("/", i)); got.Code != http.StatusOK {
			t.Fatalf("request %d: status %d", i, got.Code)
		}
		if took := time.Since(one); took > 3*time.Second { // 200 ms, where the machine is idle
			t.Errorf("request %d took %v", i, took)
		}
	}
	if all := time.Since(begin); all > 6*time.Second { // 10 s, were each sent; 1 s, where the machine is idle
		t.Errorf("%d requests took %v", n, all)
	}
	signal(t, process.Process, syscall.SIGCONT)
	eventually(t, "Weir decides each request again", func() bool {
		for range 20 {
			if !decides(t, c) {
				return false
			}
		}
		return true
	})
}

func TestOneOfSeveralMayGo(t *testing.T) {
	first, second := startProcess(t, ""), startProcess(t, "")
	both := manual.NewBuilderWithScheme("both")
	both.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: first.GRPCAddr}, {Addr: second.GRPCAddr}}})
	c := newClient(t, client.Options{Addr: "both:///weir", Timeout: 10 * time.Second, DialOptions: []grpc.DialOption{grpc.WithResolvers(both)}})
	// Each counts for itself, in its memory: a path passes once at each.
	eventually(t, "both are asked", func() bool {
		h := c.Handler(hello, client.HTTPOptions{})
		return codes(3, h, fmt.Sprint("/", time.Now().UnixNano())) == "200 200 429"
	})
	first.Kill()
	eventually(t, "the other decides each request", func() bool {
		for range 20 {
			if !decides(t, c) {
				return false
			}
		}
		return true
	})
}

func signal(t *testing.T, p *testenv.Process, s os.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

func TestWhatIsOverTheLimitIsQueuedIfTheServiceWantsIt(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	const token = "a-token"
	store := "redis://" + redis.Addr
	process := testenv.StartWeir(t, testenv.WeirOptions{
		Rules: []string{testenv.WriteFile(t, "rules.yaml",
			"rules:\n  - {name: orders, endpoint: /orders, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 20, over_limit: queue}\n")},
		Args: []string{"--store", store, "--store-timeout", "10s", "--queue-addr", testenv.FreeAddr(t)},
	})
	c := newClient(t, client.Options{Addr: process.GRPCAddr, Timeout: 10 * time.Second, OnFailure: client.Error, Token: token})
	eventually(t, "Weir keeps queues", func() bool {
		out, err := exec.CommandContext(t.Context(), testenv.WeirBinary(t), "queue", "--store", store, "ls").CombinedOutput()
		return err == nil && strings.Contains(string(out), "default/orders")
	})
	queueing := c.Handler(hello, client.HTTPOptions{Enqueue: true, MaxBody: 10})
	refusing := c.Handler(hello, client.HTTPOptions{})
	for _, step := range []struct {
		h        http.Handler
		body     string
		header   []string
		code     int
		text     string
		location bool
		remark   string
	}{
		{queueing, "one", nil, http.StatusOK, "hello", false, "nobody waits: it passes"},
		{queueing, "two", []string{"Idempotency-Key", "k", "Authorization", "alice"}, http.StatusAccepted, `"ahead":0,"duplicate":false`, true, "the second waits in the queue"},
		{queueing, "two", []string{"Idempotency-Key", "k", "Authorization", "alice"}, http.StatusAccepted, `"duplicate":true`, true, "sent again, it is the same"},
		{queueing, "a body too long", nil, http.StatusRequestEntityTooLarge, "10 bytes", false, "a body has an end"},
		{queueing, "two", []string{"Idempotency-Key", "k", "Authorization", "bob"}, http.StatusAccepted, `"ahead":1,"duplicate":false`, true, "the key of another client is another key"},
		{queueing, "three", []string{"Idempotency-Key", strings.Repeat("k", 256)}, http.StatusBadRequest, "255", false, "a key has an end"},
		{queueing, "four", []string{"Connection", "keep-alive, Upgrade"}, http.StatusNotImplemented, "cannot be queued", false, "another protocol cannot be replayed"},
		{queueing, "five", []string{"Connection", "close, x-HOP", "X-Hop", "1", "X-Kept", "1"}, http.StatusAccepted, `"ahead":2`, true, "what belongs to the connection is not kept: see below"},
		{refusing, "four", nil, http.StatusTooManyRequests, "", false, "not queued"},
	} {
		got := post(step.h, "/orders?id=7", step.body, step.header...)
		if got.Code != step.code || !strings.Contains(got.Body.String(), step.text) || strings.HasPrefix(got.Header().Get("Location"), "/queue/") != step.location {
			t.Errorf("%s: %d %s with %s", step.remark, got.Code, got.Body, headersText(got.Header()))
		}
	}
	queues, err := queue.Open(queue.Options{URL: store})
	if err != nil {
		t.Fatal(err)
	}
	defer queues.Close()
	about, err := queues.Lookup(t.Context(), "default/orders")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := queues.Peek(t.Context(), about, false, 10)
	if err != nil || len(kept) != 3 {
		t.Fatalf("%d requests wait (%v), want 3", len(kept), err)
	}
	var names []string
	for _, h := range kept[2].Request.Headers {
		names = append(names, h.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"X-Kept"}) {
		t.Errorf("the queue keeps the headers %v", names)
	}
}
