package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"weir/internal/testenv"
)

// world is what a schedule runs on: instances of Weir, each with a proxy before
// Redis and before the source of rules.
type world struct {
	history
	*plan
	t     *testing.T
	dir   string
	begin time.Time
	ctx   context.Context
	rand  *rand.Rand // of faults; under mu

	redisBusy sync.Mutex   // held by what is done to Redis
	starting  sync.RWMutex // read while an instance begins
	master    *redis
	replica   *redis // of a pair

	instances []*instance
	rules     rulesAt
	version   atomic.Int64 // of the rules that were written last
	counts    counts
	client    *http.Client
}

// instance is a Weir, which is killed and started again.
type instance struct {
	*testenv.Process
	n          int
	life       atomic.Int64
	grpc, http string
	args       []string
	store      *Proxy
	rules      *Proxy // nil: files have none
	conn       *grpc.ClientConn
	outputs    []*testenv.Process // of all lives
	goroutines int                // in calm, before
	resident   int64              // bytes, likewise
}

func (w *world) since() time.Duration { return time.Since(w.begin) }

func (w *world) chance() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.Float64()
}

// newWorld starts all. It is taken down with the test.
func newWorld(t *testing.T, p *plan) *world {
	t.Helper()
	w := &world{plan: p, t: t, dir: folder(t), ctx: t.Context(), rand: rand.New(rand.NewPCG(p.seed, 1)), client: &http.Client{
		Timeout: patience,
		// A connection on which nothing has come for five seconds is ended by Weir, and a
		// request may be on its way just then.
		Transport: &http.Transport{IdleConnTimeout: 2 * time.Second},
	}}
	t.Cleanup(w.client.CloseIdleConnections)
	w.startRedis()
	w.startRules()
	w.begin = time.Now()
	for n := range p.setting.instances {
		w.instances = append(w.instances, w.newInstance(n))
	}
	return w
}

// folder is one in memory, where that is possible: there appendfsync always costs
// nothing, and what is looked at is not how slow a disk is.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weir-chaos-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := NewProxy("", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func (w *world) newInstance(n int) *instance {
	in := &instance{n: n, grpc: testenv.FreeAddr(w.t), http: testenv.FreeAddr(w.t), store: newProxy(w.t, w.master.Addr)}
	in.args = []string{"serve", "--grpc-addr", in.grpc, "--http-addr", in.http, "--store", "redis://" + in.store.Addr(), "--store-timeout", w.timeout.String(),
		"--drain-delay", "0", "--rules", w.rules.where, "--log-refused", "0", "--reload-interval", "2s"}
	if w.rules.addr != "" {
		in.rules = newProxy(w.t, w.rules.addr)
		in.args[len(in.args)-5] = strings.Replace(w.rules.where, w.rules.addr, in.rules.Addr(), 1)
		in.args = append(in.args, "--rules-cache", filepath.Join(w.dir, fmt.Sprint("cache", n)))
	}
	in.start(w)
	conn, err := grpc.NewClient(in.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: time.Second}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	in.conn = conn
	return in
}

// start starts an instance, and waits until it serves.
func (in *instance) start(w *world) {
	binary := os.Getenv("WEIR_BINARY")
	if binary == "" {
		binary = testenv.WeirBinary(w.t)
	}
	w.starting.RLock()
	defer w.starting.RUnlock()
	in.life.Add(1)
	in.Process = testenv.Start(w.t, testenv.Program{Path: binary, Args: in.args, Dir: w.dir, Addr: in.grpc, Env: cleanEnv()})
	in.outputs = append(in.outputs, in.Process)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		text, err := w.get("http://" + in.http + "/readyz")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.found(fmt.Sprintf("instance %d is not ready: %v %s", in.n, err, text))
			return
		}
	}
}

// cleanEnv keeps the settings of whoever runs this out of the instances.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "WEIR_") || strings.HasPrefix(name, "OTEL_") {
			env = append(env, name+"=")
		}
	}
	return env
}

// get returns the body of an answer; an error if the status is not 200.
func (w *world) get(url string) (string, error) {
	resp, err := w.client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(body), err
}

// metric is a value of /metrics, of a name without labels.
func (w *world) metric(in *instance, name string) (float64, error) {
	text, err := w.get("http://" + in.http + "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// resident is the memory of an instance, in bytes.
func (in *instance) residentNow() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", in.Pid()))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// counts is how often each thing was done, and what came of abuse.
type counts struct {
	mu  sync.Mutex
	n   map[string]int
	now map[string]int // faults under way, by lane
}

func (c *counts) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[what] += n
}
