package manifests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// weirBinary is the command, built from this tree.
var weirBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weir-manifests-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "weir")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/weir")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building weir: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := weirBinary(); err == nil { // built by a test, or it is now, for nothing
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// mountConfigMap lays files out as the kubelet mounts a ConfigMap: in a folder of
// their own, to which ..data is a link, and a link for each through ..data.
func mountConfigMap(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	generation, err := os.MkdirTemp(dir, "..")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(generation, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, name)
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(generation), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil { // at once, over the old one
		t.Fatal(err)
	}
}

// running is a `weir serve` with the arguments of a manifest.
type running struct {
	grpc, http string // addresses
	out        lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// serve starts Weir with a container's arguments and environment, but for what
// the replacements change: addresses and paths, each of which must be there.
func serve(t *testing.T, c corev1.Container, replace map[string]string) *running {
	t.Helper()
	path, err := weirBinary()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{grpc: freeAddr(t), http: freeAddr(t)}
	args := strings.Join(c.Args, "\x00")
	for old, by := range replace {
		if !strings.Contains(args, old) {
			t.Fatalf("no argument has %s: %q", old, c.Args)
		}
		args = strings.ReplaceAll(args, old, by)
	}
	for old, by := range map[string]string{"0.0.0.0:8081": r.grpc, "0.0.0.0:8080": r.http} {
		if strings.Count(args, old) != 1 {
			t.Fatalf("not one argument has %s: %q", old, c.Args)
		}
		args = strings.ReplaceAll(args, old, by)
	}
	args = strings.ReplaceAll(args, "0.0.0.0:19001", "127.0.0.1:0") // metrics, where there are any
	env := []string{}
	for _, e := range c.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	r.start(t, path, strings.Split(args, "\x00"), env)
	return r
}

// start runs a program, and returns when it is ready.
func (r *running) start(t *testing.T, path string, args, env []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; t.Failed() {
			t.Logf("%s %q: %v\n%s", path, args, err, r.out.String())
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("weir ended: %v", err)
		default:
		}
		code, body := r.get(t, "/readyz")
		if code == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready after 30 s: %d %s", code, body)
		}
	}
}

// get asks by HTTP; 0 is no answer.
func (r *running) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + r.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// probe asks what the container's probes ask.
func (r *running) probe(t *testing.T, c corev1.Container) {
	t.Helper()
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p == nil {
			continue
		}
		if code, body := r.get(t, p.HTTPGet.Path); code != http.StatusOK {
			t.Errorf("a probe of %s: %d %s", p.HTTPGet.Path, code, body)
		}
	}
}

// freeAddr is a port that was free a moment ago, for all addresses of this machine:
// none of those that the system gives to connections, which come and go.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := fmt.Sprint(18000 + rand.IntN(3000))
		if l, err := net.Listen("tcp", "0.0.0.0:"+port); err == nil {
			l.Close()
			return "127.0.0.1:" + port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// ruleStatus is some of what /rules tells.
type ruleStatus struct {
	Version string
	Sources map[string]struct{ Documents int }
}

func (s ruleStatus) Documents() int {
	n := 0
	for _, source := range s.Sources {
		n += source.Documents
	}
	return n
}

func (r *running) rules(t *testing.T) ruleStatus {
	t.Helper()
	code, body := r.get(t, "/rules")
	var s ruleStatus
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		t.Fatalf("/rules: %d %s: %v", code, body, err)
	}
	return s
}

// refusesPosts asks as a proxy would about /posts, of which a client has five a
// minute: eleven at once are too many even if a minute ends between them.
func (r *running) refusesPosts(t *testing.T, domain string) {
	t.Helper()
	question := fmt.Sprintf(`{"domain":%q,"descriptors":[{"entries":[{"key":"endpoint","value":"/posts"},{"key":"remote_address","value":"192.0.2.7"}]}]}`, domain)
	r.refuses(t, question)
}

// refuses asks a question by HTTP, with a limit of five.
func (r *running) refuses(t *testing.T, question string) {
	t.Helper()
	var codes []int
	for range 11 {
		resp, err := http.Post("http://"+r.http+"/json", "application/json", strings.NewReader(question))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	if codes[0] != http.StatusOK || !slices.Contains(codes, http.StatusTooManyRequests) {
		t.Errorf("eleven requests: %v, want 200 and, after five, 429", codes)
	}
}
