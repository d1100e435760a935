package main

import (
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/internal/testenv"
)

const orders = `
domain: shop
rules: [{name: orders, endpoint: /orders, limit: 1, window: 1h, algorithm: leaky_bucket, queue: 2, over_limit: queue}]
`

func TestAClientWithoutEnvoyChecksAndEnqueues(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	store := "redis://" + redis.Addr
	s := serving(t, "--rules", rulesFile(t, orders), "--store", store, "--store-timeout", "5s", "--queue-addr", "127.0.0.1:0")
	eventually(t, "queues can be used", func() bool { return strings.Contains(weir(t, "queue", "ls", "--store", store).stdout, "shop/orders") })
	conn, err := grpc.NewClient(s.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := weirv1.NewWeirServiceClient(conn)
	entries := []*weirv1.Entry{{Key: "endpoint", Value: "/orders"}}
	for _, want := range []string{"", "orders"} {
		resp, err := client.Check(t.Context(), &weirv1.CheckRequest{Domain: "shop", Descriptors: []*weirv1.Descriptor{{Entries: entries}}})
		if err != nil || !resp.Allowed || resp.Queue != want {
			t.Fatalf("%v, %v; want queue %q", resp, err, want)
		}
	}
	s.decide(t, "shop", "endpoint=/orders").want(t, exitDone, "OK\n", "to be queued by orders")
	enqueue := func(path, key string) (*weirv1.EnqueueResponse, error) {
		return client.Enqueue(t.Context(), &weirv1.EnqueueRequest{
			Domain: "shop", Entries: entries, IdempotencyKey: key,
			Request: &weirv1.HttpRequest{Path: []byte(path), Headers: []*weirv1.HttpHeader{{Name: "X-A", Value: []byte("b")}}, Body: []byte("one")},
		})
	}
	first, err := enqueue("/orders", "k")
	if err != nil || first.Ahead != 0 || first.DepartsAfter.AsDuration() <= 0 {
		t.Fatalf("%v, %v", first, err)
	}
	again, err := enqueue("/orders", "k")
	if err != nil || again.Id != first.Id || !again.Duplicate {
		t.Errorf("%v, %v", again, err)
	}
	if second, err := enqueue("/orders", ""); err != nil || second.Ahead != 1 {
		t.Errorf("%v, %v", second, err)
	}
	for _, c := range []struct {
		path, key string
		code      codes.Code
	}{
		{"/orders", "", codes.ResourceExhausted},
		{"/other", "k", codes.AlreadyExists},
		{"orders", "", codes.InvalidArgument},
		{"", "", codes.InvalidArgument},
		{"/orders", strings.Repeat("k", 256), codes.InvalidArgument},
		{"/a b\x00", "", codes.InvalidArgument},
	} {
		if resp, err := enqueue(c.path, c.key); grpcstatus.Code(err) != c.code {
			t.Errorf("%.20q, %.20q: %v, %v, want %v", c.path, c.key, resp, err, c.code)
		}
	}
	// One more says over the limit: the queue is full.
	s.decide(t, "shop", "endpoint=/orders").want(t, exitDone, "OVER_LIMIT")

	queueAddr := regexp.MustCompile(`(?m)^  queue (\S+)`).FindStringSubmatch(s.stdout.String())[1]
	resp, err := http.Get("http://" + queueAddr + "/queue/" + first.Id)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"state":"waiting"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	weir(t, "queue", "peek", "shop/orders", "--store", store).want(t, exitDone, first.Id, "POST /orders, 3 bytes")
	weir(t, "queue", "drop", "shop/orders", first.Id, "--store", store).want(t, exitDone, "1 request dropped")
	weir(t, "queue", "drop", "shop/orders", first.Id, "--store", store).want(t, exitFailed, "are not there")
	weir(t, "queue", "peek", "shop/mails", "--store", store).want(t, exitFailed, "there are: shop/orders")
}

func TestWithoutAQueueAddressQueueingRulesRefuseAndSaySo(t *testing.T) {
	s := serving(t, "--rules", rulesFile(t, orders))
	if got := s.codes(t, 2, "shop", "endpoint=/orders"); got != "AD" {
		t.Errorf("%s, want AD", got)
	}
	eventually(t, "the log says so", func() bool { return strings.Contains(s.stderr.String(), "there is no --queue-addr") })
}

func TestServeStartsWhileTheQueuesRedisIsAway(t *testing.T) {
	addr := testenv.FreeAddr(t)
	s := serving(t, "--rules", rulesFile(t, orders), "--store", "redis://"+addr, "--queue-addr", "127.0.0.1:0")
	if got := s.codes(t, 2, "shop", "endpoint=/orders"); got != "AD" {
		t.Errorf("%s, want AD", got)
	}
	testenv.StartRedis(t, testenv.RedisOptions{Addr: addr})
	eventually(t, "queues can be used", func() bool {
		return strings.Contains(weir(t, "queue", "ls", "--store", "redis://"+addr).stdout, "shop/orders")
	})
}

func TestAQueueIsRemovedWhoseRuleIsGone(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	store := "redis://" + redis.Addr
	file := rulesFile(t, orders)
	s := serving(t, "--rules", file, "--store", store, "--store-timeout", "5s", "--queue-addr", "127.0.0.1:0", "--queue-secret", "x")
	ls := func() string { return weir(t, "queue", "ls", "--store", store).stdout }
	eventually(t, "queues can be used", func() bool { return strings.Contains(ls(), "in force") })
	queueAddr := regexp.MustCompile(`(?m)^  queue (\S+)`).FindStringSubmatch(s.stdout.String())[1]
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+queueAddr+"/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Weir-Queue", "shop/orders")
	r.Header.Set("X-Weir-Queue-Secret", "x")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	rm := func(args ...string) result {
		return weir(t, append([]string{"queue", "rm", "--store", store}, args...)...)
	}
	rm("shop/orders").want(t, exitFailed, "its rule is in force", "remove the rule first")
	rm("shop/orders", "--force").want(t, exitFailed, "its rule is in force")
	if !strings.Contains(ls(), "shop/orders  1 ") {
		t.Errorf("what stays was emptied:\n%s", ls())
	}
	// What is left of a rule that was removed a while ago.
	if code := s.stop(); code != exitDone {
		t.Fatalf("serve ended with %d", code)
	}
	for _, key := range strings.Fields(redis.MustDo(t, "KEYS", "*}ruled")) {
		redis.MustDo(t, "DEL", key)
	}
	if !strings.Contains(ls(), "gone") {
		t.Errorf("the rule is not gone:\n%s", ls())
	}
	rm("shop/mails").want(t, exitFailed, "there are: shop/orders")
	rm().want(t, exitWrongUse, "DOMAIN/RULE")
	rm("shop/orders").want(t, exitFailed, "1 wait and 0 were given up", "--force drops them")
	rm("shop/orders", "--force").want(t, exitDone, "1 request dropped", "shop/orders removed")
	if strings.Contains(ls(), "shop/orders") {
		t.Errorf("it is still there:\n%s", ls())
	}
}

// The Redis client has words of its own, for os.Stderr.
func TestADeadRedisIsOneErrorOfAQueueCommand(t *testing.T) {
	p := exec.CommandContext(t.Context(), testenv.WeirBinary(t), "queue", "ls", "--store", "redis://"+testenv.FreeAddr(t))
	out, err := p.CombinedOutput()
	if lines := strings.Count(string(out), "\n"); err == nil || lines != 1 || !strings.HasPrefix(string(out), "weir: ") {
		t.Errorf("%v, and it printed\n%s", err, out)
	}
}
