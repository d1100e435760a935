package manifests

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// crdFiles are the CustomResourceDefinitions that the gateways' own modules
// bring, by module.
var crdFiles = map[string][]string{
	"istio.io/api":                      {"kubernetes/customresourcedefinitions.gen.yaml"},
	"github.com/projectcontour/contour": {"examples/contour/01-crds.yaml"},
	"github.com/envoyproxy/gateway":     {"charts/gateway-helm/charts/crds/crds/generated/*.yaml", "charts/gateway-helm/charts/crds/crds/gatewayapi-crds.yaml"},
}

// gateways are the folders of theirs.
var gateways = []string{"envoy/istio/*.yaml", "envoy/gateway/*.yaml", "envoy/contour/*.yaml", "envoy/emissary/*.yaml", "envoy/kgateway/*.yaml"}

// crd is the schema of one kind in one version.
type crd struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// crds reads them once: they are megabytes of YAML. A schema is prepared when it
// is asked for.
var crds = sync.OnceValues(func() (map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps, error) {
	found := map[schema.GroupVersionKind]*apiextensionsv1.JSONSchemaProps{}
	for module, patterns := range crdFiles {
		out, err := exec.Command("go", "mod", "download", "-json", module).Output()
		if err != nil {
			return nil, err
		}
		var downloaded struct{ Dir string }
		if err := yaml.Unmarshal(out, &downloaded); err != nil {
			return nil, err
		}
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(downloaded.Dir, pattern))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					return nil, err
				}
				for _, part := range strings.Split("\n"+string(text), "\n---") {
					var d apiextensionsv1.CustomResourceDefinition
					if err := yaml.Unmarshal([]byte(part), &d); err != nil {
						return nil, err
					}
					if d.Kind != "CustomResourceDefinition" {
						continue
					}
					for _, v := range d.Spec.Versions {
						if v.Served && v.Schema != nil {
							found[schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}] = v.Schema.OpenAPIV3Schema
						}
					}
				}
			}
		}
	}
	return found, nil
})

func crdOf(t *testing.T, kind schema.GroupVersionKind) *crd {
	t.Helper()
	all, err := crds()
	if err != nil {
		t.Fatal(err)
	}
	external, ok := all[kind]
	if !ok {
		t.Fatalf("no CustomResourceDefinition of %v among %d", kind, len(all))
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return &crd{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// faults does to a resource what the API server does with
// fieldValidation=Strict: unknown fields, defaults, the schema, and its rules.
func (c *crd) faults(object map[string]any) []string {
	var faults []string
	pruned := pruning.PruneWithOptions(object, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range pruned {
		faults = append(faults, "unknown field "+path)
	}
	defaulting.Default(object, c.structural)
	for _, err := range validation.ValidateCustomResource(nil, object, c.validator) {
		faults = append(faults, err.Error())
	}
	if c.rules != nil {
		errs, _ := c.rules.Validate(context.Background(), field.NewPath(""), c.structural, object, nil, celconfig.RuntimeCELCostBudget)
		for _, err := range errs {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

func faultsOf(t *testing.T, d document) []string {
	t.Helper()
	var object map[string]any
	if err := yaml.UnmarshalStrict(d.text, &object); err != nil { // a key twice
		return []string{err.Error()}
	}
	object = nil
	if err := utilyaml.Unmarshal(d.text, &object); err != nil { // whole numbers as such, which the rules want
		return []string{err.Error()}
	}
	return crdOf(t, d.kind()).faults(object)
}

// schemaless are the kinds whose CustomResourceDefinitions could not be had.
func schemaless(d document) bool {
	group := d.kind().Group
	return group == "getambassador.io" || group == "gateway.kgateway.dev" || group == "kustomize.config.k8s.io"
}

func TestGatewaysTakeTheirResources(t *testing.T) {
	t.Parallel()
	n := 0
	for _, d := range read(t, gateways...) {
		if builtin(d) || schemaless(d) {
			continue
		}
		n++
		for _, fault := range faultsOf(t, d) {
			t.Errorf("%s: %s", d.name(), fault)
		}
	}
	if n < 12 {
		t.Errorf("%d resources, want a dozen", n)
	}
}

// Each wrong field is seen: unknown, of the wrong type, outside an enumeration,
// against a rule.
func TestAWrongFieldOfAGatewaysResourceIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, file, kind, name, old, new, fault string }{
		{"unknown, deep", "envoy/istio/gateway.yaml", "EnvoyFilter", "weir", "subFilter:", "subfilter:", "unknown field"},
		{"not one of an enumeration", "envoy/istio/gateway.yaml", "EnvoyFilter", "weir", "INSERT_BEFORE", "INSERT_FIRSTLY", "INSERT_FIRSTLY"},
		{"unknown", "envoy/istio/weir.yaml", "DestinationRule", "weir", "http2MaxRequests", "maxRequests", "unknown field"},
		{"a text for a number", "envoy/contour/weir.yaml", "ExtensionService", "weir", "port: 8081", `port: "8081"`, "integer"},
		{"unknown", "envoy/contour/weir.yaml", "HTTPProxy", "shop", "genericKey:", "generic_key:", "unknown field"},
		{"against a rule in CEL", "envoy/gateway/policy.yaml", "BackendTrafficPolicy", "posts-limits",
			"{group: gateway.networking.k8s.io, kind: HTTPRoute", "{group: example.com, kind: HTTPRoute", "group"},
		{"not one of an enumeration", "envoy/gateway/policy.yaml", "BackendTrafficPolicy", "posts-limits", "unit: Minute", "unit: Fortnight", "Fortnight"},
		{"no such type of match", "envoy/gateway/policy.yaml", "HTTPRoute", "shop", "PathPrefix", "Prefix", "Prefix"},
	} {
		d := only(t, read(t, c.file), c.kind, c.name)
		text := strings.Replace(string(d.text), c.old, c.new, 1)
		if text == string(d.text) {
			t.Fatalf("%s has no %q", c.file, c.old)
		}
		d.text = []byte(text)
		if faults := strings.Join(faultsOf(t, d), "\n"); !strings.Contains(faults, c.fault) {
			t.Errorf("%s in %s: faults %q, want one with %q", c.remark, d.name(), faults, c.fault)
		}
	}
}
