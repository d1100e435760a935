package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ads "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"weir/internal/testenv"
)

// gateway is Envoy Gateway as its rate-limit service sees it: aggregated discovery
// over mTLS by the library that Envoy Gateway uses, for the node envoy-ratelimit,
// and nothing for anybody else.
type gateway struct {
	addr  string
	certs string // the folder that it mounts at /certs
	files *testenv.TLSFiles
	cache cache.SnapshotCache

	mu       sync.Mutex
	requests []*ads.DiscoveryRequest
}

func startGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{certs: t.TempDir(), cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	g.files = testenv.NewAuthority(t).MustIssue(t, g.certs, testenv.Leaf{})
	for from, to := range map[string]string{g.files.CA: "ca.crt", g.files.Cert: "tls.crt", g.files.Key: "tls.key"} {
		if err := os.Rename(from, filepath.Join(g.certs, to)); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = listener.Addr().String()
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{g.pair(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: g.files.Pool,
	})))
	ads.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(t.Context(), g.cache, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *ads.DiscoveryRequest) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.requests = append(g.requests, proto.Clone(request).(*ads.DiscoveryRequest))
			return nil
		},
	}))
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(listener) })
	t.Cleanup(func() { s.Stop(); served.Wait() })
	return g
}

func (g *gateway) pair(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(g.certs, "tls.crt"), filepath.Join(g.certs, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// push sends the whole set of domains.
func (g *gateway) push(t *testing.T, version string, configs ...*pb.RateLimitConfig) {
	t.Helper()
	var list []types.Resource
	for _, c := range configs {
		list = append(list, c)
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cache.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot); err != nil {
		t.Fatal(err)
	}
}

// answered waits for the ACK of a version (and no nack), or for a NACK after it.
func (g *gateway) answered(t *testing.T, version, nack string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the answer to version %s (nack: %q)", version, nack), func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return slices.ContainsFunc(g.requests, func(r *ads.DiscoveryRequest) bool {
			return r.VersionInfo == version && r.ResponseNonce != "" && (r.ErrorDetail != nil) == (nack != "") && strings.Contains(r.ErrorDetail.GetMessage(), nack)
		})
	})
}

// route is what Envoy Gateway makes of a policy with a global limit on one route.
const route = "httproute/default/shop/rule/0/match/0/shop_example_com"

func routeConfig(requests uint32) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http", Descriptors: []*pb.RateLimitDescriptor{
		{Key: route, Value: route, Descriptors: []*pb.RateLimitDescriptor{
			{Key: "rule-0-match-0", Value: "rule-0-match-0", RateLimit: &pb.RateLimitPolicy{RequestsPerUnit: requests, Unit: pb.RateLimitUnit_HOUR}},
		}},
	}}
}

// ratelimit is Weir, started as Envoy Gateway starts envoyproxy/ratelimit.
type ratelimit struct {
	*testenv.Process
	http, metrics string
	client        rls.RateLimitServiceClient
	health        healthpb.HealthClient
}

// start has the environment and the command of Envoy Gateway's Deployment
// (internal/infrastructure/kubernetes/ratelimit/resource.go there): all of its
// names, also those that envoyproxy/ratelimit does not know. Ports, which are fixed
// in a Pod, are free ones here.
func (g *gateway) start(t *testing.T, redis string) *ratelimit {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(testenv.WeirBinary(t), link); err != nil {
		t.Fatal(err)
	}
	ports := testenv.FreePorts(t, 3)
	addr := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	file := func(name string) string { return filepath.Join(g.certs, name) }
	r := &ratelimit{http: "http://" + addr(1), metrics: "http://" + addr(2)}
	r.Process = testenv.Start(t, testenv.Program{Path: link, Addr: addr(0), Env: []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + g.addr, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + file("tls.crt"), "GRPC_SERVER_TLS_KEY=" + file("tls.key"), "GRPC_SERVER_TLS_CA_CERT=" + file("ca.crt"),
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + file("tls.crt"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + file("tls.key"),
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + file("ca.crt"), "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
		"USE_PROMETHEUS=true", fmt.Sprintf("PROMETHEUS_ADDR=:%d", ports[2]), "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		fmt.Sprintf("GRPC_PORT=%d", ports[0]), fmt.Sprintf("PORT=%d", ports[1]),
	}})
	conn, err := grpc.NewClient(addr(0), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: g.files.Pool, Certificates: []tls.Certificate{g.pair(t)}, // a proxy's
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r.client, r.health = rls.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	return r
}

// ask asks as Envoy does for a request on the route.
func (r *ratelimit) ask(t *testing.T) *rls.RateLimitResponse {
	t.Helper()
	answer, err := r.client.ShouldRateLimit(context.WithoutCancel(t.Context()), &rls.RateLimitRequest{
		Domain: "default/eg/http",
		Descriptors: []*rlcommon.RateLimitDescriptor{{Entries: []*rlcommon.RateLimitDescriptor_Entry{
			{Key: route, Value: route}, {Key: "rule-0-match-0", Value: "rule-0-match-0"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// wantLimit waits until the limit in force is so many requests an hour; 0: none.
func (r *ratelimit) wantLimit(t *testing.T, requests uint32) {
	t.Helper()
	eventually(t, fmt.Sprintf("a limit of %d", requests), func() bool {
		return r.ask(t).Statuses[0].CurrentLimit.GetRequestsPerUnit() == requests
	})
}

func TestServesInTheRateLimitDeploymentOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	g := startGateway(t)
	g.push(t, "1", routeConfig(3))
	r := g.start(t, redis.Addr)
	g.answered(t, "1", "")

	eventually(t, "/healthcheck is 200", func() bool { // rules are acknowledged a moment before it serves
		code, body := fetch(t, r.http+"/healthcheck")
		return code == 200 && body == "OK"
	})
	if _, err := r.health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"}); err != nil {
		t.Errorf("health over gRPC: %v", err)
	}
	var codes []rls.RateLimitResponse_Code
	for range 4 {
		answer := r.ask(t)
		codes = append(codes, answer.OverallCode)
		// Envoy writes X-RateLimit headers of its own there, from the statuses.
		if len(answer.ResponseHeadersToAdd) != 0 || answer.Statuses[0].CurrentLimit.GetRequestsPerUnit() != 3 || answer.Statuses[0].DurationUntilReset == nil {
			t.Errorf("the answer is %v; want no headers, and a status that they can be made of", answer)
		}
	}
	if fmt.Sprint(codes) != "[OK OK OK OVER_LIMIT]" {
		t.Errorf("the answers are %v", codes)
	}
	if _, body := fetch(t, r.metrics+"/metrics"); !strings.Contains(body, `outcome="over_limit"`) || !strings.Contains(body, `domain="default/eg/http"`) {
		t.Errorf("Prometheus gets\n%s", body)
	}
	if keys := redis.MustDo(t, "DBSIZE"); keys == "0" {
		t.Error("nothing is counted in Redis")
	}
	for _, line := range strings.Split(r.Output(), "\n") {
		if strings.Contains(line, "is not heeded") && !strings.Contains(line, "PROMETHEUS_MAPPER_YAML") && !strings.Contains(line, "FORCE_START") {
			t.Errorf("of what Envoy Gateway sets, the log says: %s", line)
		}
	}
}

func TestFollowsThePushesOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	g := startGateway(t)
	g.push(t, "1", routeConfig(100))
	r := g.start(t, redis.Addr)
	g.answered(t, "1", "")
	r.wantLimit(t, 100)

	g.push(t, "2", routeConfig(200))
	g.answered(t, "2", "")
	r.wantLimit(t, 200)

	bad := routeConfig(300)
	bad.Descriptors[0].Key = ""
	g.push(t, "3", bad)
	g.answered(t, "2", "key") // a NACK names the version before
	r.wantLimit(t, 200)

	g.push(t, "4") // no Gateway is left
	g.answered(t, "4", "")
	r.wantLimit(t, 0)
	if code, body := fetch(t, r.http+"/healthcheck"); code != 200 {
		t.Errorf("/healthcheck without rules: %d %s", code, body)
	}
}

func TestIsReadyForEnvoyGatewayWithoutAnyRules(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	g.push(t, "1")
	r := g.start(t, "127.0.0.1:1") // nobody there: a reason to be ready all the same
	if code, body := fetch(t, r.http+"/healthcheck"); code != 200 {
		t.Errorf("/healthcheck: %d %s", code, body)
	}
	if got := r.ask(t).OverallCode; got != rls.RateLimitResponse_OK {
		t.Errorf("without rules: %v", got)
	}
}
