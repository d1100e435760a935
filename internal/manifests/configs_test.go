package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	egvalidation "github.com/envoyproxy/gateway/api/v1alpha1/validation"
	contourconfig "github.com/projectcontour/contour/pkg/config"
	corev1 "k8s.io/api/core/v1"
)

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// contourFile is Contour's config file, decoded and validated by Contour.
func contourFile(t *testing.T) *contourconfig.Parameters {
	t.Helper()
	cm := decode[corev1.ConfigMap](t, only(t, read(t, "envoy/contour/contour-config.yaml"), "ConfigMap", "contour"))
	p, err := contourconfig.Parse(strings.NewReader(cm.Data["contour.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestContourTakesItsConfigFile(t *testing.T) {
	t.Parallel()
	service := contourFile(t).RateLimitService
	extension := only(t, read(t, "envoy/contour/weir.yaml"), "ExtensionService", "weir").head.Metadata
	if want := extension.Namespace + "/" + extension.Name; service.ExtensionService != want {
		t.Errorf("extensionService %s, want %s", service.ExtensionService, want)
	}
	if service.Domain != "contour" || !service.FailOpen || service.EnableXRateLimitHeaders || !service.EnableResourceExhaustedCode {
		t.Errorf("%+v", service)
	}
}

// envoyGateway is Envoy Gateway's config file, decoded strictly, with its
// defaults, validated by Envoy Gateway.
func envoyGateway(t *testing.T) *egv1a1.EnvoyGateway {
	t.Helper()
	cm := decode[corev1.ConfigMap](t, only(t, read(t, "envoy/gateway/envoy-gateway.yaml"), "ConfigMap", "envoy-gateway-config"))
	var eg egv1a1.EnvoyGateway
	if err := unmarshalStrict([]byte(cm.Data["envoy-gateway.yaml"]), &eg); err != nil {
		t.Fatal(err)
	}
	eg.SetEnvoyGatewayDefaults()
	if err := egvalidation.ValidateEnvoyGateway(&eg); err != nil {
		t.Fatal(err)
	}
	return &eg
}

func TestEnvoyGatewayTakesItsConfigFile(t *testing.T) {
	t.Parallel()
	eg := envoyGateway(t)
	if image := *eg.Provider.Kubernetes.RateLimitDeployment.Container.Image; !strings.HasPrefix(image, "weir:") {
		t.Errorf("the image is %s", image)
	}
	if eg.RateLimit.FailClosed || eg.RateLimit.Timeout == nil || *eg.RateLimit.Timeout != "100ms" {
		t.Errorf("%+v", eg.RateLimit)
	}
	text := bytes.Replace(readFile(t, "envoy/gateway/envoy-gateway.yaml"), []byte("failClosed:"), []byte("failclosed:"), 1)
	cm := decode[corev1.ConfigMap](t, parse(t, "a wrong field", text)[0])
	if err := unmarshalStrict([]byte(cm.Data["envoy-gateway.yaml"]), &egv1a1.EnvoyGateway{}); err == nil {
		t.Error("a wrong field is no error")
	}
}
