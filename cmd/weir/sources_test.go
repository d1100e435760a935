package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/internal/testenv"
	"weir/rules"
)

// ruleOf is a document with a rule for an endpoint. Its limit is a bucket, which
// has no edge that a test could fall on.
func ruleOf(endpoint string, limit int) string {
	return fmt.Sprintf("rules: [{endpoint: %s, limit: %d, window: 1h, algorithm: token_bucket}]\n", endpoint, limit)
}

// limitOf is the limit that a server names for an endpoint; 0: none.
func limitOf(t *testing.T, c rls.RateLimitServiceClient, endpoint string) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := c.ShouldRateLimit(ctx, asking(endpoint))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit()
}

func asking(endpoint string) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "default", Descriptors: []*rlcommon.RateLimitDescriptor{
		{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "endpoint", Value: endpoint}}},
	}}
}

// statusAt is what a server's /rules says of its one remote source.
func statusAt(t *testing.T, httpAddr, source string) rules.SourceStatus {
	t.Helper()
	resp, err := http.Get("http://" + httpAddr + "/rules")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status rules.LiveStatus
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	return status.Sources[source]
}

func TestThreeInstancesFollowConsul(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/a", 1))
	const service = "weir-test"
	var clients []rls.RateLimitServiceClient
	var instances []*running
	for range 3 {
		i := serving(t, "--rules", s.url, "--register", "consul://"+s.consul.Addr, "--register-service", service)
		instances = append(instances, i)
		clients = append(clients, client(t, i.grpcAddr))
	}
	for n := 2; n < 12; n++ {
		s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/a", n))
		for i, c := range clients {
			eventually(t, fmt.Sprintf("limit %d in instance %d", n, i), func() bool { return limitOf(t, c, "/a") == uint32(n) })
		}
	}
	s.rules(t, "push", s.dir, "-m", "for all").want(t, 0, "pushed version 2")
	r := s.rules(t, "status", "--service", service, "--wait", "20s", "--expect", "3")
	r.want(t, 0, "version 2, 2 documents", "alice@example: for all", "current")
	for _, i := range instances {
		r.want(t, 0, i.httpAddr)
	}
	if code, body := instances[0].get(t, "/readyz"); code != 200 || !strings.Contains(body, "ok\n"+s.url+": version 2, 2 documents, loaded ") || !strings.Contains(body, "confirmed ") {
		t.Errorf("/readyz: %d %s", code, body)
	}

	s.consul.Put(t, "weir/rules/bad.yaml", "rules: [{endpoint: /x, limt: 1}]")
	eventually(t, "the fault in /rules", func() bool {
		return strings.Contains(statusAt(t, instances[0].httpAddr, s.url).LastError, s.url+"/bad.yaml:1:24: unknown field")
	})
	s.rules(t, "status", "--service", service).want(t, 1, "it serves other rules", "unknown field", "3 of 3 instances not well")
	s.rules(t, "status", "--instance", testenv.FreeAddr(t)).want(t, 1, "connection refused", "1 of 1 instance not well")
	s.rules(t, "status", "--service", "nobody", "--wait", "10ms").want(t, 1, "no instance is known", "0 instances known, and 1 expected")
	weir(t, "rules", "status", "--rules", "consul://"+testenv.FreeAddr(t), "--instance", instances[0].httpAddr).want(t, 1, instances[0].httpAddr, "connection refused")
	instances[2].stop()
	s.consul.Delete(t, "weir/rules/bad.yaml")
	eventually(t, "an instance that stopped is registered no more", func() bool {
		r := s.rules(t, "status", "--service", service)
		return r.code == 0 && strings.Count(r.stdout, "current") == 2
	})
}

func TestServeWaitsForConsulAndSaysSo(t *testing.T) {
	t.Parallel()
	consulAddr, httpAddr := testenv.FreeAddr(t), testenv.FreeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := new(output), new(output)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"serve", "--rules", "consul://" + consulAddr, "--grpc-addr", "127.0.0.1:0", "--http-addr", httpAddr}, stdout, stderr)
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + httpAddr + path)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		body := new(strings.Builder)
		_ = resp.Write(body)
		return resp.StatusCode, body.String()
	}
	eventually(t, "it says what it waits for", func() bool {
		code, body := get("/readyz")
		return code == 503 && strings.Contains(body, "not all rules are loaded yet") && strings.Contains(body, "connection refused")
	})
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	resp, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader("{}"))
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/json: %v, %v", resp, err)
	}
	resp.Body.Close()
	if strings.Contains(stdout.String(), "serves") {
		t.Error("it announces that it serves")
	}
	c := testenv.StartConsul(t, testenv.ConsulOptions{Addr: consulAddr})
	eventually(t, "it says that there are none", func() bool {
		_, body := get("/readyz")
		return strings.Contains(body, "no rules beneath weir/rules/")
	})
	c.Put(t, "weir/rules/a.yaml", ruleOf("/a", 1))
	eventually(t, "it serves", func() bool { return strings.Contains(stdout.String(), "serves 1 rule in 1 domain from consul://") })
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d\n%s", got, stderr)
	}
}

func TestAStopWhileWaitingForRulesIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stderr := new(output)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"serve", "--rules", "consul://" + testenv.FreeAddr(t), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, new(output), stderr)
	}()
	eventually(t, "it waits", func() bool { return strings.Contains(stderr.String(), "connection refused") })
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d\n%s", got, stderr)
	}
}

func TestTheRulesCacheServesAStartWithoutConsul(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	s.rules(t, "push", s.dir).want(t, 0)
	flags := []string{"--rules", s.url, "--rules-cache", dir}
	serving(t, flags...).stop()
	s.consul.Kill()

	i := serving(t, flags...)
	st := statusAt(t, i.httpAddr, s.url)
	if !st.Cached || st.Version != "1" || !strings.Contains(st.LastError, "connection refused") {
		t.Errorf("%+v", st)
	}
	if code, body := i.get(t, "/readyz"); code != 200 || !strings.Contains(body, "version 1, 2 documents, loaded ") || !strings.Contains(body, "from the rules cache, as of ") || !strings.Contains(body, "failing since ") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if got := i.codes(t, 3, "login", "remote_address=192.0.2.1"); got != "AAD" {
		t.Errorf("the rules of the cache: %s", got)
	}
	testenv.StartConsul(t, testenv.ConsulOptions{Addr: s.consul.Addr}) // empty
	eventually(t, "that it is empty is told of", func() bool { return strings.Contains(statusAt(t, i.httpAddr, s.url).LastError, "no rules beneath") })
	s.write(t, "new.yaml", ruleOf("/new", 7))
	s.rules(t, "push", s.dir).want(t, 0)
	c := client(t, i.grpcAddr)
	eventually(t, "the new rules", func() bool { return limitOf(t, c, "/new") == 7 && !statusAt(t, i.httpAddr, s.url).Cached })

	weir(t, "serve", "--rules", s.url, "--rules-cache", testenv.WriteFile(t, "file", "")+"/x").want(t, 1, "rules cache")
}

// Consul is killed, started empty, and started with new rules: no request fails,
// and the limits are always those that were last good.
func TestNoRequestFailsWhateverConsulDoes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/a", 1))
	i := serving(t, "--rules", s.url)
	var written atomic.Uint32
	written.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var asked atomic.Int64
	for range 4 {
		c := client(t, i.grpcAddr)
		load.Go(func() {
			seen := uint32(1) // new rules never give way to those before
			for ctx.Err() == nil {
				resp, err := c.ShouldRateLimit(context.Background(), asking("/a"))
				if err != nil {
					t.Error(err)
					return
				}
				got := resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit()
				if got < seen || got > written.Load() {
					t.Errorf("the limit is %d; it was %d, and %d is what was written", got, seen, written.Load())
					return
				}
				seen = got
				asked.Add(1)
			}
		})
	}
	s.consul.Kill()
	eventually(t, "its end is seen", func() bool { return statusAt(t, i.httpAddr, s.url).LastError != "" })
	again := testenv.StartConsul(t, testenv.ConsulOptions{Addr: s.consul.Addr})
	eventually(t, "that it is empty is seen", func() bool { return strings.Contains(statusAt(t, i.httpAddr, s.url).LastError, "no rules") })
	written.Store(2)
	again.Put(t, "weir/rules/a.yaml", ruleOf("/a", 2))
	c := client(t, i.grpcAddr)
	eventually(t, "the new rules", func() bool { return limitOf(t, c, "/a") == 2 })
	cancel()
	load.Wait()
	if asked.Load() < 100 {
		t.Errorf("only %d requests", asked.Load())
	}
}

func TestSourcesMergeAndARuleInTwoOfThemNamesBoth(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	etcd := testenv.StartEtcd(t, testenv.EtcdOptions{})
	etcdURL := "etcd://" + etcd.Addr + "/limits/shop"
	path := rulesFile(t, ruleOf("/file", 1))
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/consul", 2))
	etcd.Put(t, "limits/shop/b.yaml", ruleOf("/etcd", 3))
	i := serving(t, "--rules", path, "--rules", s.url, "--rules", etcdURL)
	c := client(t, i.grpcAddr)
	for n, endpoint := range []string{"/file", "/consul", "/etcd"} {
		if got := limitOf(t, c, endpoint); got != uint32(n+1) {
			t.Errorf("%s: limit %d", endpoint, got)
		}
	}
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/etcd", 9))
	want := s.url + "/a.yaml:1:9: the path endpoint=/etcd has a rule already, at " + etcdURL + "/b.yaml:1:9"
	other := etcdURL + "/b.yaml:1:9: the path endpoint=/etcd has a rule already, at " + s.url + "/a.yaml:1:9"
	eventually(t, "the fault names both", func() bool {
		text := statusAt(t, i.httpAddr, s.url).LastError
		return text == want || text == other
	})
	if limitOf(t, c, "/consul") != 2 || limitOf(t, c, "/etcd") != 3 {
		t.Error("a change that was refused is in force")
	}
	etcd.Put(t, "limits/shop/b.yaml", "# moved to Consul")
	eventually(t, "the rule has moved", func() bool { return limitOf(t, c, "/etcd") == 9 && limitOf(t, c, "/consul") == 0 })
}

// A change that is refused for what another source says is taken when that one
// has changed: at a start, and with a cache, too.
func TestAConflictBetweenSourcesEndsFromEitherSide(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	cache := t.TempDir()
	path := rulesFile(t, ruleOf("/x", 1))
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/x", 2)+ruleOf2("/y", 2))
	flags := []string{"--rules", path, "--rules", s.url, "--rules-cache", cache}
	mended := make(chan struct{})
	go func() {
		defer close(mended)
		time.Sleep(2 * time.Second) // the start is refused by then; if not, the test shows less
		replace(t, path, ruleOf("/file", 1))
	}()
	i := serving(t, flags...)
	<-mended
	c := client(t, i.grpcAddr)
	if limitOf(t, c, "/x") != 2 || limitOf(t, c, "/file") != 1 {
		t.Error("it serves other rules")
	}
	i.stop()

	// The newest rules conflict, and the cache stands in, until the file changes.
	replace(t, path, ruleOf("/z", 1))
	s.consul.Put(t, "weir/rules/a.yaml", ruleOf("/x", 3)+ruleOf2("/z", 3))
	i = serving(t, flags...)
	c = client(t, i.grpcAddr)
	if got := limitOf(t, c, "/x"); got != 2 || !statusAt(t, i.httpAddr, s.url).Cached {
		t.Errorf("the cache does not stand in: limit %d", got)
	}
	replace(t, path, ruleOf("/file", 1))
	eventually(t, "the newest rules", func() bool { return limitOf(t, c, "/x") == 3 && limitOf(t, c, "/z") == 3 })
	i.stop()
	s.consul.Kill()
	i = serving(t, flags...)
	if got := limitOf(t, client(t, i.grpcAddr), "/x"); got != 3 {
		t.Errorf("the cache has older rules: limit %d", got)
	}
}

// ruleOf2 is a second rule of a document that begins with ruleOf.
func ruleOf2(endpoint string, limit int) string {
	return "---\n" + ruleOf(endpoint, limit)
}

func TestTheEnvironmentMaySayWhereRulesAre(t *testing.T) {
	for value, want := range map[string]string{
		"a.yaml,b/": "a.yaml|b/",
		"etcd://a:1,b:2,c:3/weir/rules,more.yaml":       "etcd://a:1,b:2,c:3/weir/rules|more.yaml",
		"etcd://a:1/x,b:2":                              "etcd://a:1/x|b:2",
		"consul://a:1,xds://b:2":                        "consul://a:1|xds://b:2",
		"etcd://a:1,b:2":                                "etcd://a:1,b:2",
		"etcd+https://a:1,[::1]:2/p,consul://c:3,d.yml": "etcd+https://a:1,[::1]:2/p|consul://c:3|d.yml",
	} {
		if got := strings.Join(splitList(value), "|"); got != want {
			t.Errorf("%s: %s", value, got)
		}
	}
}

func TestRulesCommandsTakeTheOneStoreOfTheEnvironment(t *testing.T) {
	addr := testenv.FreeAddr(t)
	t.Setenv("WEIR_RULES", "base.yaml,consul://"+addr)
	weir(t, "rules", "log").want(t, 1, addr, "connection refused")
}

func TestAConsulThatHangsIsToldOf(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	weir(t, "rules", "log", "--rules", "consul://"+l.Addr().String(), "--timeout", "1s").want(t, 1, "deadline exceeded")
}
