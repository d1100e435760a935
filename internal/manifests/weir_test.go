package manifests

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// The Deployments, as they stand: their arguments are understood, their rules
// load from a mounted ConfigMap, their probes are answered.
func TestTheDeploymentsServe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		folder  string
		replace map[string]string
	}{
		// No Redis: Weir starts without, and a decision would be the instance's own.
		{"deploy/kubernetes/*.yaml", map[string]string{"redis://redis:6379": "redis://127.0.0.1:1"}},
		{"envoy/istio/*.yaml", nil},
	} {
		t.Run(strings.Split(c.folder, "/")[1], func(t *testing.T) {
			t.Parallel()
			docs := read(t, c.folder)
			container := decode[appsv1.Deployment](t, only(t, docs, "Deployment", "weir")).Spec.Template.Spec.Containers[0]
			rules := decode[corev1.ConfigMap](t, only(t, docs, "ConfigMap", "weir-rules")).Data
			dir := t.TempDir()
			mountConfigMap(t, dir, rules)
			replace := map[string]string{"/etc/weir/rules": dir}
			for old, by := range c.replace {
				replace[old] = by
			}
			weir := serve(t, container, replace)
			weir.probe(t, container)
			if status := weir.rules(t); status.Documents() != len(rules) {
				t.Errorf("%d documents, want %d: %+v", status.Documents(), len(rules), status)
			}
			weir.refusesPosts(t, "default")
		})
	}
}

// What `kubectl apply -f rules.yaml` brings is served without a restart.
func TestAChangedConfigMapIsLive(t *testing.T) {
	t.Parallel()
	docs := read(t, "deploy/kubernetes/*.yaml")
	container := decode[appsv1.Deployment](t, only(t, docs, "Deployment", "weir")).Spec.Template.Spec.Containers[0]
	rules := decode[corev1.ConfigMap](t, only(t, docs, "ConfigMap", "weir-rules")).Data
	dir := t.TempDir()
	mountConfigMap(t, dir, rules)
	weir := serve(t, container, map[string]string{"/etc/weir/rules": dir, "redis://redis:6379": "redis://127.0.0.1:1"})

	old := rules["default.yaml"]
	changed := strings.Replace(old, "name: posts-by-address", "name: posts-by-anybody", 1)
	if changed == old {
		t.Fatalf("no rule of that name: %s", old)
	}
	before := weir.rules(t)
	mountConfigMap(t, dir, map[string]string{"default.yaml": changed})
	for deadline := time.Now().Add(20 * time.Second); weir.rules(t).Version == before.Version; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after 20 s: other rules than %+v", before)
		}
	}
}

// Rules that stand in manifests have no faults.
func TestTheRulesOfTheGatewaysLoad(t *testing.T) {
	t.Parallel()
	container := decode[appsv1.Deployment](t, only(t, read(t, "envoy/istio/weir.yaml"), "Deployment", "weir")).Spec.Template.Spec.Containers[0]
	for _, file := range []string{"envoy/contour/weir.yaml", "envoy/emissary/weir.yaml", "envoy/kgateway/weir.yaml"} {
		dir := t.TempDir()
		mountConfigMap(t, dir, decode[corev1.ConfigMap](t, only(t, read(t, file), "ConfigMap", "weir-rules")).Data)
		weir := serve(t, container, map[string]string{"/etc/weir/rules": dir})
		weir.refusesPosts(t, strings.Split(file, "/")[1])
	}
}
