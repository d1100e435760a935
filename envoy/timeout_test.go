package envoy_test

import (
	"context"
	"net"
	"os"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"weir/internal/testenv"
)

// bareAddr is the environment of the process that serves bareService.
const bareAddr = "WEIR_TEST_BARE_SERVER"

// bareService answers OK to everything: what gRPC itself costs.
type bareService struct {
	rls.UnimplementedRateLimitServiceServer
}

func (bareService) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// TestBareServer is no test, but the process that serves it.
func TestBareServer(t *testing.T) {
	addr := os.Getenv(bareAddr)
	if addr == "" {
		t.Skip("only for another test")
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, bareService{})
	t.Fatal(s.Serve(listener))
}

// twoServices asks Weir about /weir, and the bare server about /bare. It has
// Envoy's defaults: an answer may take 20 ms, else the request passes.
const twoServices = `
static_resources:
  listeners:
    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: http
                use_remote_address: true
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - {match: {path: /weir}, route: {cluster: up_weir, rate_limits: [{stage: 0, actions: [{remote_address: {}}]}]}}
                        - {match: {path: /bare}, route: {cluster: up_bare, rate_limits: [{stage: 1, actions: [{remote_address: {}}]}]}}
                http_filters:
                  - name: weir
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: two-instances
                      stage: 0
                      rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: weir}}}
                  - name: bare
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: two-instances
                      stage: 1
                      rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: bare}}}
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
    - {name: up_weir, type: STATIC, load_assignment: &upstream {cluster_name: up, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9000}}}}]}]}}
    - {name: up_bare, type: STATIC, load_assignment: *upstream}
    - name: weir
      type: STATIC
      typed_extension_protocol_options: &h2
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment: {cluster_name: weir, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: WEIR}}}}]}]}
    - name: bare
      type: STATIC
      typed_extension_protocol_options: *h2
      load_assignment: {cluster_name: bare, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: BARE}}}}]}]}
`

// Weir misses Envoy's default timeout no more often than a server that does
// nothing, but for one in a hundred. (Measured on a quiet machine it is none in a
// thousand; here others run at the same time.)
func TestWeirIsAsRarelyLateUnderLoadAsABareServer(t *testing.T) {
	weir := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{"rules/two-instances.yaml"}})
	bare := testenv.FreeAddr(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Start(t, testenv.Program{Path: self, Args: []string{"-test.run", "^TestBareServer$"}, Env: []string{bareAddr + "=" + bare}, Addr: bare})
	l := startConfig(t, twoServices, "port_value: WEIR}", "port_value: "+port(t, weir.GRPCAddr)+"}", "port_value: BARE}", "port_value: "+port(t, bare)+"}")
	late := func(of string) int { return l.stat(t, "cluster.up_"+of+".ratelimit.error") }
	asked := func(of string) int { return late(of) + l.stat(t, "cluster.up_"+of+".ratelimit.ok") }

	// Connections are there before any answer counts.
	eventually(t, "answers of both", func() bool {
		for _, path := range []string{"/weir", "/bare"} {
			_ = l.get(path)
		}
		return asked("weir")-late("weir") >= 10 && asked("bare")-late("bare") >= 10
	})
	lateBefore := map[string]int{"weir": late("weir"), "bare": late("bare")}
	askedBefore := map[string]int{"weir": asked("weir"), "bare": asked("bare")}
	l.send(t, "/weir", "/bare")
	for answer, n := range l.end(t) {
		if answer != "200" && answer != "200 without a decision" {
			t.Errorf("%d × %s", n, answer)
		}
	}
	share := map[string]float64{}
	for of := range lateBefore {
		late, asked := late(of)-lateBefore[of], asked(of)-askedBefore[of]
		if asked < 500 {
			t.Errorf("%s was asked %d times only", of, asked)
		}
		share[of] = float64(late) / float64(asked)
		t.Logf("%s: %d of %d without an answer, %.3f %%", of, late, asked, 100*share[of])
	}
	if share["weir"] > share["bare"]+0.01 {
		t.Errorf("Weir is late %.2f %% of the time, a bare server %.2f %%", 100*share["weir"], 100*share["bare"])
	}
}
