package conformance_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ads "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weir/internal/testenv"
)

// asRatelimit runs Weir as whoever starts /bin/ratelimit would: by that name,
// with nothing but an environment.
func asRatelimit(t *testing.T, env ...string) (p *testenv.Process, grpcAddr, httpAddr string) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(testenv.WeirBinary(t), link); err != nil {
		t.Fatal(err)
	}
	ports := testenv.FreePorts(t, 2)
	addr := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	env = append([]string{
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", ports[0]), "GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", ports[1]),
		"REDIS_TIMEOUT=" + patient, "USE_STATSD=false", "LOG_LEVEL=debug",
	}, env...)
	return testenv.Start(t, testenv.Program{Path: link, Env: env, Addr: addr(1)}), addr(1), addr(0)
}

func TestTheEnvironmentOfADeploymentWithFiles(t *testing.T) {
	t.Parallel()
	awaitRoom(t)
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	redis := testenv.StartRedis(t, testenv.RedisOptions{Password: "se:cr@t/"})
	p, grpcAddr, httpAddr := asRatelimit(t, "RUNTIME_ROOT="+string(f), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "REDIS_AUTH=default:se:cr@t/", "REDIS_POOL_SIZE=50", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LOG_FORMAT=json")
	c := connect(t, "weir", grpcAddr)
	c.want(t, "a=1", "OK: ok 1/DAY left 0 end; ratelimit-limit: 1; ratelimit-remaining: 0; ratelimit-reset: end")
	c.want(t, "a=1", "OVER_LIMIT: …")
	get(t, httpAddr, "/healthcheck", http.StatusOK)
	out := p.Output()
	if !strings.Contains(out, "REDIS_POOL_SIZE is not heeded") || strings.Contains(out, "RUNTIME_IGNOREDOTFILES") || strings.Contains(out, "cr@t") {
		t.Errorf("it logs:\n%s", out)
	}
}

func TestTheEnvironmentOfADeploymentWithSentinels(t *testing.T) {
	t.Parallel()
	awaitRoom(t)
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	redis := testenv.StartSentinel(t, testenv.SentinelOptions{})
	var sentinels []string
	for _, s := range redis.Sentinels {
		sentinels = append(sentinels, s.Addr)
	}
	_, grpcAddr, _ := asRatelimit(t, "RUNTIME_ROOT="+string(f), "RUNTIME_SUBDIRECTORY=ratelimit",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SENTINEL", "REDIS_URL="+redis.Name+","+strings.Join(sentinels, ","))
	connect(t, "weir", grpcAddr).want(t, "a=1", "OK: ok 1/DAY left 0 end")
}

// TestTheEnvironmentOfEnvoyGateway is what Envoy Gateway sets in its Deployment
// of ratelimit: rules by xDS over mTLS, and mTLS on gRPC. The same control plane
// serves both.
func TestTheEnvironmentOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	awaitRoom(t)
	files, err := testenv.MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	env := []string{
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + startControlPlane(t, files), "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + files.Cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + files.Key,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + files.CA, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr,
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + files.Cert, "GRPC_SERVER_TLS_KEY=" + files.Key, "GRPC_CLIENT_TLS_CACERT=" + files.CA,
	}
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	mutual := credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: files.Pool, ServerName: "localhost"})
	theirs := testenv.StartRatelimit(t, testenv.RatelimitOptions{Redis: redis.Addr, Env: env})
	_, grpcAddr, httpAddr := asRatelimit(t, env...)
	for _, addr := range []string{theirs.HTTPAddr, httpAddr} {
		get(t, addr, "/healthcheck", http.StatusOK) // plain: probes have no certificate
	}
	for name, addr := range map[string]string{"theirs": theirs.GRPCAddr, "weir": grpcAddr} {
		p := connectBy(t, name, addr, mutual)
		eventually(t, "rules in "+p.name, func() bool {
			got, _, _ := p.ask(t, "d", "a=1 +0")
			return strings.HasPrefix(got, "OK: ok 1/DAY left 1 ")
		})
		p.want(t, "a=1", "OK: ok 1/DAY left 0 end")
		connect(t, name+" without a certificate", addr).want(t, "a=1", "error Unavailable: …")
	}
}

// startControlPlane serves one rule to those who show a certificate of the files'
// authority.
func startControlPlane(t *testing.T, files *testenv.TLSFiles) (addr string) {
	t.Helper()
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	rule := &pb.RateLimitConfig{Name: "d", Domain: "d", Descriptors: []*pb.RateLimitDescriptor{
		{Key: "a", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_DAY, RequestsPerUnit: 1}},
	}}
	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{resource.RateLimitConfigType: {rule}})
	if err == nil {
		err = snapshots.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: files.Pool, ClientAuth: tls.RequireAndVerifyClientCert})))
	ads.RegisterAggregatedDiscoveryServiceServer(s, server.NewServer(t.Context(), snapshots, nil))
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return fmt.Sprintf("localhost:%d", listener.Addr().(*net.TCPAddr).Port)
}

// TestWindowsOfFixedLength is the switch of the rows on weeks, months and years:
// windows that begin where those of envoyproxy/ratelimit do.
func TestWindowsOfFixedLength(t *testing.T) {
	t.Parallel()
	awaitRoom(t)
	rules := testenv.WriteFile(t, "rules.yaml", `
domain: d
descriptors:
  - {key: w, rate_limit: {requests_per_unit: 9, window: 168h}}
  - {key: m, rate_limit: {requests_per_unit: 9, window: 720h}}
  - {key: y, rate_limit: {requests_per_unit: 9, window: 8760h}}
`)
	w := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rules}, Args: []string{"--headers", "none"}})
	connect(t, "weir", w.GRPCAddr).want(t, "w=1, m=1, y=1", "OK: ok 9/WEEK left 8 end, ok 9/MONTH left 8 end, ok 9/YEAR left 8 end")
}
