package manifests

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Emissary's and kgateway's modules could not be had, nor their schemas. These
// are the fields of theirs that our examples use, as their sources have them:
// Emissary 3 (pkg/api/getambassador.io/v3alpha1) and kgateway 2
// (api/v1alpha1/kgateway). A field that is listed wrongly here is wrong there.
type (
	meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}

	rateLimitService struct {
		meta
		Spec struct {
			Service         string `json:"service"`
			ProtocolVersion string `json:"protocol_version"`
			Domain          string `json:"domain"`
			TimeoutMS       int    `json:"timeout_ms"`
			FailureModeDeny bool   `json:"failure_mode_deny"`
			GRPC            struct {
				UseResourceExhaustedCode bool `json:"use_resource_exhausted_code"`
			} `json:"grpc"`
		} `json:"spec"`
	}
	mapping struct {
		meta
		Spec struct {
			Hostname string                          `json:"hostname"`
			Prefix   string                          `json:"prefix"`
			Service  string                          `json:"service"`
			Labels   map[string][]map[string][]label `json:"labels"`
		} `json:"spec"`
	}
	label struct { // one of these
		GenericKey *struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"generic_key"`
		RemoteAddress *struct {
			Key string `json:"key"`
		} `json:"remote_address"`
		RequestHeaders *struct {
			Key              string `json:"key"`
			HeaderName       string `json:"header_name"`
			OmitIfNotPresent *bool  `json:"omit_if_not_present"`
		} `json:"request_headers"`
	}

	gatewayExtension struct {
		meta
		Spec struct {
			RateLimit struct {
				GRPCService struct {
					BackendRef struct {
						Name string `json:"name"`
						Port int    `json:"port"`
					} `json:"backendRef"`
				} `json:"grpcService"`
				Domain   string `json:"domain"`
				Timeout  string `json:"timeout"`
				FailOpen bool   `json:"failOpen"`
			} `json:"rateLimit"`
		} `json:"spec"`
	}
	trafficPolicy struct {
		meta
		Spec struct {
			TargetRefs []struct {
				Group string `json:"group"`
				Kind  string `json:"kind"`
				Name  string `json:"name"`
			} `json:"targetRefs"`
			RateLimit struct {
				Global struct {
					ExtensionRef struct {
						Name      string `json:"name"`
						Namespace string `json:"namespace"`
					} `json:"extensionRef"`
					Descriptors []struct {
						Entries []entry `json:"entries"`
					} `json:"descriptors"`
				} `json:"global"`
			} `json:"rateLimit"`
		} `json:"spec"`
	}
	entry struct {
		Type    string `json:"type"`
		Generic *struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"generic"`
		Header *string `json:"header"`
	}
)

func strictly(t *testing.T, d document, into any) {
	t.Helper()
	if err := unmarshalStrict(d.text, into); err != nil {
		t.Fatalf("%s: %v", d.name(), err)
	}
}

// unmarshalStrict is as yaml.UnmarshalStrict, but that another case is another
// field.
func unmarshalStrict(text []byte, into any) error {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(converted, into)
	return errors.Join(append(strict, err)...)
}

func TestEmissaryKnowsTheFields(t *testing.T) {
	t.Parallel()
	docs := read(t, "envoy/emissary/weir.yaml")
	var service rateLimitService
	strictly(t, only(t, docs, "RateLimitService", "weir"), &service)
	if service.Spec.ProtocolVersion != "v3" {
		t.Errorf("protocol_version %q: Envoy speaks v3 only", service.Spec.ProtocolVersion)
	}
	name, namespace, _ := strings.Cut(strings.TrimSuffix(service.Spec.Service, ":8081"), ".")
	if namespace != "weir" {
		t.Errorf("service %s", service.Spec.Service)
	}
	only(t, read(t, "deploy/kubernetes/*.yaml"), "Service", name)

	var m mapping
	strictly(t, only(t, docs, "Mapping", "posts"), &m)
	groups := m.Spec.Labels[service.Spec.Domain]
	if len(m.Spec.Labels) != 1 || len(groups) == 0 {
		t.Fatalf("labels of %v, and the service's domain is %s", m.Spec.Labels, service.Spec.Domain)
	}
	for _, group := range groups {
		for name, labels := range group {
			if len(group) != 1 {
				t.Errorf("a group has one name, not %d", len(group))
			}
			for _, l := range labels {
				n := 0
				for _, set := range []bool{l.GenericKey != nil, l.RemoteAddress != nil, l.RequestHeaders != nil} {
					if set {
						n++
					}
				}
				if n != 1 {
					t.Errorf("a label of %s says %d things, want one", name, n)
				}
			}
		}
	}
}

func TestKgatewayKnowsTheFields(t *testing.T) {
	t.Parallel()
	docs := read(t, "envoy/kgateway/weir.yaml")
	var extension gatewayExtension
	strictly(t, only(t, docs, "GatewayExtension", "weir"), &extension)
	backend := extension.Spec.RateLimit.GRPCService.BackendRef
	only(t, read(t, "deploy/kubernetes/*.yaml"), "Service", backend.Name)
	if backend.Port != 8081 {
		t.Errorf("port %d", backend.Port)
	}
	var policy trafficPolicy
	strictly(t, only(t, docs, "TrafficPolicy", "posts-limits"), &policy)
	for _, target := range policy.Spec.TargetRefs {
		only(t, docs, target.Kind, target.Name)
	}
	ref := policy.Spec.RateLimit.Global.ExtensionRef
	if ref.Name != extension.Metadata.Name || ref.Namespace != extension.Metadata.Namespace {
		t.Errorf("the policy refers to %v", ref)
	}
	for _, d := range policy.Spec.RateLimit.Global.Descriptors {
		for _, e := range d.Entries {
			if (e.Generic != nil) != (e.Type == "Generic") || (e.Header != nil) != (e.Type == "Header") ||
				e.Type != "Generic" && e.Type != "Header" && e.Type != "RemoteAddress" && e.Type != "Path" {
				t.Errorf("an entry of type %s: %+v", e.Type, e)
			}
		}
	}
}

// Each page's YAML says in its first lines that it has not been run.
func TestEachFileSaysWhatItWasCheckedWith(t *testing.T) {
	t.Parallel()
	for _, d := range read(t, append(slices.Clone(gateways), "deploy/kubernetes/*.yaml")...) {
		lines := bytes.SplitN(readFile(t, d.file), []byte("\n"), 8)
		if !bytes.Contains(bytes.Join(lines[:min(7, len(lines))], []byte("\n")), []byte("# Not run ")) {
			t.Errorf("%s does not say in its first lines that it has not been run", d.file)
		}
	}
}
