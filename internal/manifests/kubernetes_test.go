package manifests

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func newReader(text []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(text)) }

// decoder reads Kubernetes' own kinds as strictly as the API server does with
// fieldValidation=Strict.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
}

// builtin says whether a document is of a kind of Kubernetes' own.
func builtin(d document) bool {
	group := d.kind().Group
	return group == "" || group == "apps" || group == "autoscaling" || group == "policy" || group == "networking.k8s.io"
}

func decode[T any](t *testing.T, d document) *T {
	t.Helper()
	object, _, err := decoder(t).Decode(d.text, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", d.name(), err)
	}
	typed, ok := object.(any).(*T)
	if !ok {
		t.Fatalf("%s is a %T", d.name(), object)
	}
	return typed
}

// workload is what a Deployment or StatefulSet of Weir's needs around it.
type workload struct {
	pod      corev1.PodTemplateSpec
	selector map[string]string
}

// checkKubernetes decodes what is Kubernetes' own and holds together what names
// parts of another document: labels, ports, volumes, targets.
func checkKubernetes(t *testing.T, docs []document) {
	t.Helper()
	seen := map[string]bool{}
	workloads := map[string]workload{}
	for _, d := range docs {
		if !builtin(d) {
			continue
		}
		object, _, err := decoder(t).Decode(d.text, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", d.name(), err)
			continue
		}
		key := d.head.Kind + "/" + d.head.Metadata.Namespace + "/" + d.head.Metadata.Name
		if seen[key] {
			t.Errorf("%s: twice", d.name())
		}
		seen[key] = true
		switch o := object.(type) {
		case *appsv1.Deployment:
			workloads["Deployment/"+o.Name] = workload{o.Spec.Template, o.Spec.Selector.MatchLabels}
		case *appsv1.StatefulSet:
			pod := o.Spec.Template
			for _, claim := range o.Spec.VolumeClaimTemplates {
				pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name})
			}
			workloads["StatefulSet/"+o.Name] = workload{pod, o.Spec.Selector.MatchLabels}
		}
	}
	for name, w := range workloads {
		if !matches(w.selector, w.pod.Labels) {
			t.Errorf("%s selects %v, and its pods are %v", name, w.selector, w.pod.Labels)
		}
		checkPod(t, name, w.pod.Spec, docs)
	}
	for _, d := range docs {
		if builtin(d) {
			checkReferences(t, d, workloads)
		}
	}
}

// checkReferences holds a document to the workloads that it selects or names.
func checkReferences(t *testing.T, d document, workloads map[string]workload) {
	t.Helper()
	switch d.head.Kind {
	case "Service":
		s := decode[corev1.Service](t, d)
		selected := 0
		for name, w := range workloads {
			if !matches(s.Spec.Selector, w.pod.Labels) {
				continue
			}
			selected++
			for _, p := range s.Spec.Ports {
				if !hasPort(w.pod.Spec.Containers, p.TargetPort) {
					t.Errorf("%s: %s has no port %s", d.name(), name, p.TargetPort.String())
				}
			}
		}
		if selected != 1 {
			t.Errorf("%s selects %d workloads", d.name(), selected)
		}
	case "HorizontalPodAutoscaler":
		target := decode[autoscalingv2.HorizontalPodAutoscaler](t, d).Spec.ScaleTargetRef
		if _, ok := workloads[target.Kind+"/"+target.Name]; !ok {
			t.Errorf("%s scales %s %s, which is not there", d.name(), target.Kind, target.Name)
		}
	case "PodDisruptionBudget":
		if !selectsOne(workloads, decode[policyv1.PodDisruptionBudget](t, d).Spec.Selector.MatchLabels) {
			t.Errorf("%s selects no workload", d.name())
		}
	case "NetworkPolicy":
		if !selectsOne(workloads, decode[networkingv1.NetworkPolicy](t, d).Spec.PodSelector.MatchLabels) {
			t.Errorf("%s selects no workload", d.name())
		}
	}
}

func matches(selector, of map[string]string) bool {
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(of))
}

func selectsOne(workloads map[string]workload, selector map[string]string) bool {
	n := 0
	for _, w := range workloads {
		if matches(selector, w.pod.Labels) {
			n++
		}
	}
	return n == 1
}

func hasPort(containers []corev1.Container, port intstr.IntOrString) bool {
	for _, c := range containers {
		for _, p := range c.Ports {
			if p.Name == port.StrVal && port.Type == intstr.String || port.Type == intstr.Int && p.ContainerPort == port.IntVal {
				return true
			}
		}
	}
	return false
}

// checkPod holds a pod to what every one of ours promises: no rights, nothing
// written but where a volume is, probes that ask a port that is there, volumes
// that exist.
func checkPod(t *testing.T, name string, pod corev1.PodSpec, docs []document) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			only(t, docs, "ConfigMap", v.ConfigMap.Name)
		}
	}
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: its pods may run as root, or without seccomp: %v", name, s)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("%s: its pods get a token of the API server", name)
	}
	for _, c := range pod.Containers {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s: container %s has more rights than it needs: %v", name, c.Name, s)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: container %s mounts %s, which is no volume", name, c.Name, m.Name)
			}
			if m.SubPath != "" {
				t.Errorf("%s: container %s mounts %s by a subPath, which is never renewed", name, c.Name, m.Name)
			}
		}
		for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.HTTPGet != nil && !hasPort(pod.Containers, p.HTTPGet.Port) {
				t.Errorf("%s: container %s is probed at port %s, which it has not", name, c.Name, p.HTTPGet.Port.String())
			}
		}
		if c.ReadinessProbe == nil {
			t.Errorf("%s: container %s has no readiness probe", name, c.Name)
		}
		if _, ok := c.Resources.Requests[corev1.ResourceCPU]; !ok {
			t.Errorf("%s: container %s requests no CPU, of which an autoscaler needs a percentage", name, c.Name)
		}
		if len(c.Args) > 0 && c.Args[0] == "serve" {
			checkGrace(t, name, pod, c)
		}
	}
}

// checkGrace: Kubernetes must not end Weir before it has drained, which takes
// --drain-delay and at most ten seconds for the calls in progress.
func checkGrace(t *testing.T, name string, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	const calls = 10 * time.Second
	delay := 500 * time.Millisecond
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, "--drain-delay="); ok {
			var err error
			if delay, err = time.ParseDuration(value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	grace := 30 * time.Second
	if s := pod.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if grace <= delay+calls {
		t.Errorf("%s: pods are ended after %v, and Weir may need %v", name, grace, delay+calls)
	}
}

func TestKubernetesManifestsAreWhatTheAPIServerTakes(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"deploy/kubernetes/*.yaml", "envoy/istio/*.yaml"} {
		docs := read(t, folder)
		checkKubernetes(t, docs)
	}
	for _, folder := range []string{"envoy/gateway", "envoy/contour", "envoy/emissary", "envoy/kgateway"} {
		for _, d := range read(t, folder+"/*.yaml") {
			if builtin(d) {
				if _, _, err := decoder(t).Decode(d.text, nil, nil); err != nil {
					t.Errorf("%s: %v", d.name(), err)
				}
			}
		}
	}
}

// A wrong field must be seen, and not only those of the top.
func TestAWrongFieldIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ remark, old, new string }{
		{"a field that is not there", "periodSeconds: 2", "periodSecs: 2"},
		{"another case", "readOnlyRootFilesystem:", "readonlyRootFilesystem:"},
		{"a text for a number", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: long"},
		{"a key twice", "      serviceAccountName: weir\n", "      serviceAccountName: weir\n      serviceAccountName: weir\n"},
	} {
		d := only(t, read(t, "deploy/kubernetes/weir.yaml"), "Deployment", "weir")
		text := strings.Replace(string(d.text), c.old, c.new, 1)
		if text == string(d.text) {
			t.Fatalf("%s: weir.yaml has no %q", c.remark, c.old)
		}
		if _, _, err := decoder(t).Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%s: no error", c.remark)
		}
	}
}

// `kubectl apply -k` must not leave a file out.
func TestTheKustomizationHasEveryFile(t *testing.T) {
	t.Parallel()
	d := read(t, "deploy/kubernetes/kustomization.yaml")[0]
	var k struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(d.text, &k); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"kustomization.yaml": true}
	for _, r := range k.Resources {
		listed[r] = true
	}
	for _, d := range read(t, "deploy/kubernetes/*.yaml") {
		if file := strings.TrimPrefix(d.file, "deploy/kubernetes/"); !listed[file] {
			t.Errorf("%s is not in kustomization.yaml", file)
		}
	}
}
