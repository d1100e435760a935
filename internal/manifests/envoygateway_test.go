package manifests

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachetypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// rateLimitDeployment is what Envoy Gateway deploys for its rate limits: as much
// of it as the patch touches.
func rateLimitDeployment() *appsv1.Deployment {
	probe := func() *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthcheck", Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}}}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "envoy-ratelimit", Namespace: "envoy-gateway-system"},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "envoy-ratelimit", Image: "envoyproxy/ratelimit", Command: []string{"/bin/ratelimit"},
			Env: []corev1.EnvVar{
				{Name: "RUNTIME_ROOT", Value: "/data"},
				{Name: "RUNTIME_SUBDIRECTORY", Value: "ratelimit"},
				{Name: "RUNTIME_IGNOREDOTFILES", Value: "true"},
				{Name: "RUNTIME_WATCH_ROOT", Value: "false"},
				{Name: "LOG_LEVEL", Value: "info"},
				{Name: "USE_STATSD", Value: "false"},
				{Name: "CONFIG_TYPE", Value: "GRPC_XDS_SOTW"},
				{Name: "CONFIG_GRPC_XDS_SERVER_URL", Value: "envoy-gateway:18001"},
				{Name: "CONFIG_GRPC_XDS_NODE_ID", Value: "envoy-ratelimit"},
				{Name: "GRPC_SERVER_USE_TLS", Value: "true"},
				{Name: "GRPC_SERVER_TLS_CERT", Value: "/certs/tls.crt"},
				{Name: "GRPC_SERVER_TLS_KEY", Value: "/certs/tls.key"},
				{Name: "GRPC_SERVER_TLS_CA_CERT", Value: "/certs/ca.crt"},
				{Name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", Value: "true"},
				{Name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Value: "/certs/tls.crt"},
				{Name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Value: "/certs/tls.key"},
				{Name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Value: "/certs/ca.crt"},
				{Name: "FORCE_START_WITHOUT_INITIAL_CONFIG", Value: "true"},
				{Name: "REDIS_SOCKET_TYPE", Value: "tcp"},
				{Name: "REDIS_URL", Value: "redis.weir.svc.cluster.local:6379"},
				{Name: "USE_PROMETHEUS", Value: "true"},
				{Name: "PROMETHEUS_ADDR", Value: ":19001"},
				{Name: "PROMETHEUS_MAPPER_YAML", Value: "/etc/statsd-exporter/conf.yaml"},
			},
			Ports:        []corev1.ContainerPort{{Name: "grpc", ContainerPort: 8081}},
			VolumeMounts: []corev1.VolumeMount{{Name: "certs", MountPath: "/certs", ReadOnly: true}},
			StartupProbe: probe(), ReadinessProbe: probe(), LivenessProbe: probe(),
		}}}}},
	}
}

// patched is that Deployment with our patch, merged as Envoy Gateway merges it.
func patched(t *testing.T) *appsv1.Deployment {
	t.Helper()
	patch := envoyGateway(t).Provider.Kubernetes.RateLimitDeployment.Patch
	if patch == nil || string(*patch.Type) != "StrategicMerge" {
		t.Fatalf("the patch is %+v", patch)
	}
	original, err := json.Marshal(rateLimitDeployment())
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch.Value.Raw, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	// Strictly: Envoy Gateway would drop what it does not know.
	return decode[appsv1.Deployment](t, parse(t, "the patched Deployment", merged)[0])
}

// control is a control plane as Envoy Gateway's: aggregated discovery with mTLS,
// whole sets of resources, for the node envoy-ratelimit.
func control(t *testing.T, c certs, configs ...cachetypes.Resource) (addr string) {
	t.Helper()
	snapshot, err := cachev3.NewSnapshot("1", map[resourcev3.Type][]cachetypes.Resource{resourcev3.RateLimitConfigType: configs})
	if err != nil {
		t.Fatal(err)
	}
	cache := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	if err := cache.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{c.pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool,
	})))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(t.Context(), cache, serverv3.CallbackFuncs{}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// shopRoute is the name that Envoy Gateway makes of policy.yaml's route, as
// `egctl x translate` shows it.
const shopRoute = "httproute/default/shop/rule/0/match/0/shop_example_com"

// shopConfig is what Envoy Gateway makes of policy.yaml: five a minute for each
// address.
func shopConfig() *configv3.RateLimitConfig {
	return &configv3.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http", Descriptors: []*configv3.RateLimitDescriptor{
		{Key: shopRoute, Value: shopRoute, Descriptors: []*configv3.RateLimitDescriptor{
			{Key: "masked_remote_address", Value: "0.0.0.0/0", Descriptors: []*configv3.RateLimitDescriptor{
				{Key: "remote_address", RateLimit: &configv3.RateLimitPolicy{RequestsPerUnit: 5, Unit: configv3.RateLimitUnit_MINUTE}},
			}},
		}},
	}}
}

// shopQuestion is what Envoy asks for a request to that route.
func shopQuestion() string {
	return fmt.Sprintf(`{"domain":"default/eg/http","descriptors":[{"entries":[{"key":%q,"value":%q},`+
		`{"key":"masked_remote_address","value":"0.0.0.0/0"},{"key":"remote_address","value":"192.0.2.7"}]}]}`, shopRoute, shopRoute)
}

func TestWeirServesInThePlaceOfEnvoyGatewaysRateLimit(t *testing.T) {
	t.Parallel()
	deployment := patched(t)
	if n := len(deployment.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers: the patch has another name than envoy-ratelimit", n)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{"/weir"}) {
		t.Errorf("the command is %q", container.Command)
	}
	checkGrace(t, "envoy-ratelimit", deployment.Spec.Template.Spec, container)
	for i, arg := range container.Args { // the kubelet's doing
		container.Args[i] = strings.ReplaceAll(arg, "$(REDIS_URL)", "redis.weir.svc.cluster.local:6379")
	}
	c := makeCerts(t)
	addr := control(t, c, shopConfig())
	weir := serve(t, container, map[string]string{
		"/certs/": c.dir + "/", "//envoy-gateway:18001": "//" + addr, "redis.weir.svc.cluster.local:6379": "127.0.0.1:1",
	})
	weir.probe(t, container)
	weir.refuses(t, shopQuestion())

	// Envoy Gateway's proxies speak TLS, and show a certificate.
	for _, k := range []struct {
		remark string
		config *tls.Config
		ok     bool
	}{
		{"a proxy's certificate", &tls.Config{RootCAs: c.pool, Certificates: []tls.Certificate{c.pair}}, true},
		{"no certificate", &tls.Config{RootCAs: c.pool}, false},
	} {
		conn, err := grpc.NewClient(weir.grpc, grpc.WithTransportCredentials(credentials.NewTLS(k.config)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
		conn.Close()
		if (err == nil) != k.ok {
			t.Errorf("%s: %v", k.remark, err)
		}
	}
}

// Without the patch: Weir's image alone, by the name and with the environment that
// Envoy Gateway has for envoyproxy/ratelimit, but for its ports.
func TestTheImageAloneServesAsEnvoyGatewayStartsIt(t *testing.T) {
	t.Parallel()
	path, err := weirBinary()
	if err != nil {
		t.Fatal(err)
	}
	container := rateLimitDeployment().Spec.Template.Spec.Containers[0]
	link := filepath.Join(t.TempDir(), filepath.Base(container.Command[0]))
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	c := makeCerts(t)
	replace := strings.NewReplacer("/certs/", c.dir+"/", "envoy-gateway:18001", control(t, c, shopConfig()), "redis.weir.svc.cluster.local:6379", "127.0.0.1:1")
	weir := &running{grpc: freeAddr(t), http: freeAddr(t)}
	env := []string{}
	for _, e := range container.Env {
		env = append(env, e.Name+"="+replace.Replace(e.Value))
	}
	env = append(env, "PROMETHEUS_ADDR=127.0.0.1:0") // the last one holds
	for name, addr := range map[string]string{"GRPC_PORT": weir.grpc, "PORT": weir.http} {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+port)
	}
	weir.start(t, link, nil, env)
	weir.probe(t, container)
	weir.refuses(t, shopQuestion())
}

// A Gateway without any rate limit is an empty set of rules, and no reason not to
// be ready.
func TestWeirIsReadyWithoutAnyRules(t *testing.T) {
	t.Parallel()
	container := patched(t).Spec.Template.Spec.Containers[0]
	c := makeCerts(t)
	addr := control(t, c)
	for i, arg := range container.Args {
		container.Args[i] = strings.ReplaceAll(arg, "$(REDIS_URL)", "127.0.0.1:1")
	}
	serve(t, container, map[string]string{"/certs/": c.dir + "/", "//envoy-gateway:18001": "//" + addr})
}
