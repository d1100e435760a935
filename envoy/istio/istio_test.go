// Package istio_test runs the patches of the EnvoyFilters against the real Envoy
// and the real Weir: merged, as Istio merges them, into a listener with one route.
package istio_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/rate_limit_descriptors/expr/v3" // what is inside of an Any
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"weir/internal/testenv"
)

// cluster is Istio's name for the port 8081 of the Service weir.
const cluster = "outbound|8081||weir.weir.svc.cluster.local"

// patch is one of an EnvoyFilter's; the rest of it the schema of Istio's CRD
// checks elsewhere.
type patch struct {
	ApplyTo string `yaml:"applyTo"`
	Patch   struct {
		Operation string         `yaml:"operation"`
		Value     map[string]any `yaml:"value"`
	} `yaml:"patch"`
}

// documents decodes those of a file that are of a kind.
func documents(t *testing.T, file, kind string, into func(*yaml.Node)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for decoder := yaml.NewDecoder(f); ; {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return
		}
		var head struct {
			Kind string `yaml:"kind"`
		}
		if err := errors.Join(err, node.Decode(&head)); err != nil {
			t.Fatal(err)
		}
		if head.Kind == kind {
			into(&node)
		}
	}
}

// patches are those of the one EnvoyFilter of a file: the filter, and the rate
// limits of a virtual host.
func patches(t *testing.T, file string) (filter *hcmv3.HttpFilter, host *routev3.VirtualHost) {
	t.Helper()
	n := 0
	documents(t, file, "EnvoyFilter", func(node *yaml.Node) {
		n++
		var f struct {
			Spec struct {
				ConfigPatches []patch `yaml:"configPatches"`
			} `yaml:"spec"`
		}
		if err := node.Decode(&f); err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Spec.ConfigPatches {
			switch p.ApplyTo + " " + p.Patch.Operation {
			case "HTTP_FILTER INSERT_BEFORE":
				filter = &hcmv3.HttpFilter{}
				strictly(t, p.Patch.Value, filter)
			case "VIRTUAL_HOST MERGE":
				host = &routev3.VirtualHost{}
				strictly(t, p.Patch.Value, host)
			default:
				t.Fatalf("%s: this test does not know how to %s a %s", file, p.Patch.Operation, p.ApplyTo)
			}
		}
	})
	if n != 1 || filter == nil || host == nil {
		t.Fatalf("%s: %d EnvoyFilters, a filter: %t, a virtual host: %t", file, n, filter != nil, host != nil)
	}
	return filter, host
}

// strictly decodes what is in a patch into Envoy's own message. What it has no
// field for, Istio would drop without a word.
func strictly(t *testing.T, value any, into proto.Message) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = protojson.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The messages are complete, and they name the Service of weir.yaml.
func TestThePatchesAreEnvoysMessages(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	documents(t, "weir.yaml", "Service", func(node *yaml.Node) {
		var s struct {
			Metadata struct{ Name, Namespace string }
			Spec     struct{ Ports []struct{ Port int } }
		}
		if err := node.Decode(&s); err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Spec.Ports {
			names[fmt.Sprintf("outbound|%d||%s.%s.svc.cluster.local", p.Port, s.Metadata.Name, s.Metadata.Namespace)] = true
		}
	})
	for _, file := range []string{"gateway.yaml", "sidecar.yaml"} {
		filter, host := patches(t, file)
		var limit ratelimitv3.RateLimit
		if err := filter.GetTypedConfig().UnmarshalTo(&limit); err != nil {
			t.Fatal(err)
		}
		if err := limit.ValidateAll(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if c := limit.RateLimitService.GrpcService.GetEnvoyGrpc().ClusterName; !names[c] {
			t.Errorf("%s asks cluster %s, and the Services are %v", file, c, names)
		}
		if limit.RateLimitService.TransportApiVersion != corev3.ApiVersion_V3 {
			t.Errorf("%s speaks %v", file, limit.RateLimitService.TransportApiVersion)
		}
		for _, r := range host.RateLimits {
			if err := r.ValidateAll(); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// rules are those of weir.yaml, as files.
func rules(t *testing.T) []string {
	t.Helper()
	var files []string
	documents(t, "weir.yaml", "ConfigMap", func(node *yaml.Node) {
		var c struct{ Data map[string]string }
		if err := node.Decode(&c); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.Data {
			files = append(files, testenv.WriteFile(t, name, text))
		}
	})
	return files
}

// serve runs Envoy with the patches of a file, and returns its address. A
// transport socket is the listener's; "" is plain text.
func serve(t *testing.T, file, transportSocket string) string {
	t.Helper()
	weir := testenv.StartWeir(t, testenv.WeirOptions{Rules: rules(t)})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	filter, host := patches(t, file)
	var limit ratelimitv3.RateLimit
	if err := filter.GetTypedConfig().UnmarshalTo(&limit); err != nil {
		t.Fatal(err)
	}
	limit.Timeout.Seconds = 10 // a busy machine is no reason to let a request pass
	if err := filter.GetTypedConfig().MarshalFrom(&limit); err != nil {
		t.Fatal(err)
	}
	if host.Name != "" || host.Domains != nil || host.Routes != nil {
		t.Fatalf("the patch of %s has more than rate limits", file)
	}
	host.Name, host.Domains = "all", []string{"*"}
	host.Routes = []*routev3.Route{{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "upstream"}}},
	}}
	addr := testenv.FreeAddr(t)
	config := fmt.Sprintf(bootstrap, port(t, addr), jsonOf(t, host), jsonOf(t, filter), transportSocket,
		port(t, upstream.Listener.Addr().String()), cluster, cluster, port(t, weir.GRPCAddr))
	testenv.StartEnvoy(t, testenv.EnvoyOptions{Config: config, Addr: addr})
	return addr
}

const bootstrap = `
static_resources:
  listeners:
    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: %s}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: http
                use_remote_address: true
                route_config: {virtual_hosts: [%s]}
                http_filters:
                  - %s
                  - name: envoy.filters.http.router
                    typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          %s
  clusters:
    - name: upstream
      load_assignment:
        cluster_name: upstream
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}]}]
    - name: %s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: %s
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}}]}]
`

func jsonOf(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// get sends a request as a client at an address of the loopback range.
func get(t *testing.T, client *http.Client, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func clientAt(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// refusedAfter sends requests until one is refused, each with a query of its own.
// A window's end between them may let five more pass.
func refusedAfter(t *testing.T, client *http.Client, url string, most int) (passed int, refused bool) {
	t.Helper()
	for i := range most {
		switch code := get(t, client, fmt.Sprintf("%s?page=%d", url, i)); code {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			return i, true
		default:
			t.Fatalf("status %d", code)
		}
	}
	return most, false
}

func TestTheGatewayLimitsByAddressAndPathWithoutItsQuery(t *testing.T) {
	t.Parallel()
	url := "http://" + serve(t, "gateway.yaml", "")
	alice, bob := clientAt(t, "127.0.0.1"), clientAt(t, "127.0.0.2")
	if n, refused := refusedAfter(t, alice, url+"/posts", 11); !refused || n < 5 {
		t.Errorf("alice: %d passed, refused after: %t; want five a minute", n, refused)
	}
	if code := get(t, bob, url+"/posts"); code != http.StatusOK {
		t.Errorf("bob, another address: %d", code)
	}
	if code := get(t, alice, url+"/about"); code != http.StatusOK {
		t.Errorf("a path without a rule: %d", code)
	}
}

// By the certificate of the caller, of which a mesh makes one for each workload.
func TestTheSidecarLimitsByCaller(t *testing.T) {
	t.Parallel()
	authority := testenv.NewAuthority(t)
	server := authority.MustIssue(t, t.TempDir(), testenv.Leaf{})
	url := "https://" + serve(t, "sidecar.yaml", fmt.Sprintf(`transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              require_client_certificate: true
              common_tls_context:
                tls_certificates: [{certificate_chain: {filename: %s}, private_key: {filename: %s}}]
                validation_context: {trusted_ca: {filename: %s}}`, server.Cert, server.Key, server.CA))
	shop := caller(t, authority, "spiffe://cluster.local/ns/web/sa/shop")
	other := caller(t, authority, "spiffe://cluster.local/ns/web/sa/other")
	if _, refused := refusedAfter(t, shop, url+"/posts", 1000); !refused {
		t.Error("shop: 1000 requests passed, want 100 a second")
	}
	if code := get(t, other, url+"/posts"); code != http.StatusOK {
		t.Errorf("another caller: %d", code)
	}
}

// caller is a client with a workload's certificate.
func caller(t *testing.T, authority *testenv.Authority, id string) *http.Client {
	t.Helper()
	files := authority.MustIssue(t, t.TempDir(), testenv.Leaf{SANs: []string{id}})
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{cert}}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Without a certificate there is no caller, and so no descriptor: such requests
// are not limited.
func TestWithoutACertificateTheSidecarAsksNothing(t *testing.T) {
	t.Parallel()
	url := "http://" + serve(t, "sidecar.yaml", "")
	if n, refused := refusedAfter(t, clientAt(t, "127.0.0.1"), url+"/posts", 300); refused {
		t.Errorf("refused after %d", n)
	}
}
