package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = root + "/deploy/helm/weir"

// redisHere is what every install needs that has several instances.
const redisHere = "store: {url: \"redis://redis:6379\"}\n"

// render is `helm template`: the values are checked against values.schema.json
// and merged with the chart's own.
func render(t *testing.T, release, values string) ([]document, error) {
	t.Helper()
	chart, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	// As a cluster of the oldest version that the chart is for.
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.27.0", Major: "1", Minor: "27"}
	all, err := chartutil.ToRenderValues(chart, v, chartutil.ReleaseOptions{Name: release, Namespace: "limits", IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var docs []document
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			if strings.Contains(text, "<no value>") || !strings.Contains(text, ".limits.svc:8081") {
				t.Errorf("%s: %s", name, text)
			}
			continue
		}
		docs = append(docs, parse(t, name, []byte(text))...)
	}
	slices.SortFunc(docs, func(a, b document) int { return strings.Compare(a.name(), b.name()) })
	return docs, nil
}

func TestHelmFindsNoFaultInTheChart(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(redisHere), &values); err != nil {
		t.Fatal(err)
	}
	linted := lint.AllWithKubeVersion(chartDir, values, "limits", &chartutil.KubeVersion{Version: "v1.27.0", Major: "1", Minor: "27"})
	for _, m := range linted.Messages {
		if m.Severity >= support.WarningSev {
			t.Errorf("%v", m)
		}
	}
}

// Each choice of the values, rendered, is what the API server takes, fits
// together, and its arguments are understood by Weir.
func TestTheChartRendersWhatServes(t *testing.T) {
	t.Parallel()
	certs := makeCerts(t)
	for _, c := range []struct {
		remark, release, values string
		kinds                   string // that are rendered
		replace                 map[string]string
	}{
		{"a shared store", "weir", redisHere,
			"ConfigMap Deployment HorizontalPodAutoscaler PodDisruptionBudget Service Service ServiceAccount", nil},
		{"another release", "shop", redisHere,
			"ConfigMap Deployment HorizontalPodAutoscaler PodDisruptionBudget Service Service ServiceAccount", nil},
		{"the least", "weir", `
replicas: 1
autoscaling: {enabled: false}
podDisruptionBudget: {enabled: false}
service: {headless: false, appProtocol: ""}
serviceAccount: {create: false}
resources: {requests: {cpu: 100m}}
`, "ConfigMap Deployment Service", nil},
		{"everything", "weir", `
image: {repository: registry.example.com/weir, tag: 1.2.3, pullPolicy: Always, pullSecrets: [registry]}
rules:
  api.yaml: |
    domain: api
    rules:
      - {endpoint: /posts, limit: 1, window: 1s}
store: {secret: {name: redis, key: url}}
tls: {secret: weir-tls, requireClientCertificates: true}
args: ["--headers=ietf", "--denied-body=text:too many, \"really\""]
env: [{name: GOMEMLIMIT, value: 450MiB}]
log: {level: warn, format: text}
drainDelay: 15
networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {weir-clients: "true"}}}]}
podAnnotations: {prometheus.io/scrape: "true"}
podLabels: {team: edge}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
`, "ConfigMap Deployment HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget Service Service ServiceAccount",
			map[string]string{"/etc/weir/tls": certs.dir}},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			docs, err := render(t, c.release, c.values)
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, d := range docs {
				kinds = append(kinds, d.head.Kind)
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != c.kinds {
				t.Errorf("rendered %s, want %s", got, c.kinds)
			}
			checkKubernetes(t, docs)

			name := c.release
			if name != "weir" {
				name += "-weir"
			}
			deployment := decode[appsv1.Deployment](t, only(t, docs, "Deployment", name))
			container := deployment.Spec.Template.Spec.Containers[0]
			dir := t.TempDir()
			mountConfigMap(t, dir, decode[corev1.ConfigMap](t, only(t, docs, "ConfigMap", name+"-rules")).Data)
			replace := map[string]string{"/etc/weir/rules": dir}
			if slices.Contains(container.Args, "--store=redis://redis:6379") {
				replace["redis://redis:6379"] = "redis://127.0.0.1:1"
			}
			for old, by := range c.replace {
				replace[old] = by
			}
			for i, e := range container.Env {
				if e.ValueFrom != nil { // a Secret's
					container.Env[i].Value = "redis://127.0.0.1:1"
				}
			}
			serve(t, container, replace).probe(t, container)
		})
	}
}

// Values that would not do what they say are refused before anything is changed.
func TestTheChartRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, values, fault string }{
		{"several instances that count for themselves", "", "set store.url=redis://"},
		{"several instances, said so", "autoscaling: {enabled: false}\nreplicas: 3\nstore: {url: memory}", "set store.url=redis://"},
		{"a value that is not there", redisHere + "replica: 3", "replica"},
		{"a value that is not there, deep", redisHere + "autoscaling: {max: 3}", "max"},
		{"a text for a number", redisHere + "drainDelay: 10s", "drainDelay"},
		{"no such level", redisHere + "log: {level: loud}", "level"},
		{"a store that Weir has not", "store: {url: \"memcached://m\"}", "url"},
		{"a source that Weir has not", redisHere + "sources: [\"zookeeper://z\"]", "sources"},
		{"no rules at all, for which Weir would serve its sample", redisHere + "rules: {default.yaml: null}", "set rules or sources"},
		{"a file that Weir would not read", redisHere + "rules: {readme.txt: x}", "readme.txt"},
	} {
		if _, err := render(t, "weir", c.values); err == nil || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: error %v, want one that names %q", c.remark, err, c.fault)
		}
	}
}

// Sources come with a cache, in a volume that is written to.
func TestSourcesHaveACache(t *testing.T) {
	t.Parallel()
	docs, err := render(t, "weir", redisHere+"rules: {default.yaml: null}\nsources: [\"consul://consul:8500/weir/rules\"]")
	if err != nil {
		t.Fatal(err)
	}
	checkKubernetes(t, docs)
	container := decode[appsv1.Deployment](t, only(t, docs, "Deployment", "weir")).Spec.Template.Spec.Containers[0]
	if !slices.Contains(container.Args, "--rules=consul://consul:8500/weir/rules") || !slices.Contains(container.Args, "--rules-cache=/var/cache/weir") {
		t.Errorf("arguments %q", container.Args)
	}
	if slices.Contains(container.Args, "--rules=/etc/weir/rules") {
		t.Errorf("arguments %q: there are no files", container.Args)
	}
	for _, m := range container.VolumeMounts {
		if m.MountPath == "/var/cache/weir" && m.ReadOnly {
			t.Error("the cache is read-only")
		}
	}
}

// The page of the values is the chart's default, which a schema describes fully.
func TestTheSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.UnmarshalStrict(readFile(t, "deploy/helm/weir/values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	var schema struct{ Properties map[string]any }
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for name := range schema.Properties {
		if _, ok := values[name]; !ok && name != "global" {
			t.Errorf("values.yaml has no %s", name)
		}
	}
}
