package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// EnvoyOptions is how Envoy is started.
type EnvoyOptions struct {
	Config string   // the whole configuration, as YAML
	Addr   string   // of a listener in it; Envoy is up when it accepts connections
	Args   []string // more arguments, such as "--log-level", "debug"
}

// StartEnvoy runs Envoy with a configuration.
func StartEnvoy(t testing.TB, o EnvoyOptions) *Process {
	t.Helper()
	path, err := FindEnvoy()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(config, []byte(o.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	// Hot restart would have every Envoy of the machine share a memory segment.
	args := append([]string{"-c", config, "--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"}, o.Args...)
	return Start(t, Program{Path: path, Args: args, Addr: o.Addr})
}

// Chromium returns the path of a browser that can be driven headless.
func Chromium(t testing.TB) string {
	t.Helper()
	path, err := FindChromium()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// WeirOptions is how `weir serve` is started.
type WeirOptions struct {
	Rules    []string // files or folders; none: Weir's own sample
	GRPCAddr string   // empty: a free port
	HTTPAddr string   // empty: a free port
	Args     []string // more flags
	Env      []string // NAME=value, beside the test's own environment
}

// Weir is a `weir serve` that runs.
type Weir struct {
	*Process
	GRPCAddr, HTTPAddr string
}

// StartWeir runs `weir serve`, as built from this tree.
func StartWeir(t testing.TB, o WeirOptions) *Weir {
	t.Helper()
	if o.GRPCAddr == "" {
		o.GRPCAddr = FreeAddr(t)
	}
	if o.HTTPAddr == "" {
		o.HTTPAddr = FreeAddr(t)
	}
	args := []string{"serve", "--grpc-addr", o.GRPCAddr, "--http-addr", o.HTTPAddr}
	for _, path := range o.Rules {
		args = append(args, "--rules", path)
	}
	return &Weir{
		Process:  Start(t, Program{Path: WeirBinary(t), Args: append(args, o.Args...), Env: o.Env, Addr: o.GRPCAddr, And: []string{o.HTTPAddr}}),
		GRPCAddr: o.GRPCAddr,
		HTTPAddr: o.HTTPAddr,
	}
}

// WriteFile writes a file into a folder that goes with the test, and returns its
// path.
func WriteFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(fmt.Errorf("testenv: %w", err))
	}
	return path
}

// RatelimitOptions is how envoyproxy/ratelimit is started.
type RatelimitOptions struct {
	Runtime string   // its RUNTIME_ROOT; the rules are *.yaml in the folder config below
	Redis   string   // host:port
	Env     []string // NAME=value, more of its settings
}

// Ratelimit is an envoyproxy/ratelimit that runs.
type Ratelimit struct {
	*Process
	GRPCAddr, HTTPAddr, DebugAddr string
}

// StartRatelimit runs envoyproxy/ratelimit on 127.0.0.1, without statsd, and
// returns when it serves.
func StartRatelimit(t testing.TB, o RatelimitOptions) *Ratelimit {
	t.Helper()
	path, err := FindRatelimit()
	if err != nil {
		t.Fatal(err)
	}
	ports := FreePorts(t, 3)
	addr := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	env := []string{
		"GRPC_HOST=127.0.0.1", fmt.Sprintf("GRPC_PORT=%d", ports[0]),
		"HOST=127.0.0.1", fmt.Sprintf("PORT=%d", ports[1]),
		"DEBUG_HOST=127.0.0.1", fmt.Sprintf("DEBUG_PORT=%d", ports[2]),
		"USE_STATSD=false", "DISABLE_STATS=true",
		"RUNTIME_ROOT=" + o.Runtime, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + o.Redis,
	}
	return &Ratelimit{
		// It opens the three in any order, when the first rules are loaded.
		Process:  Start(t, Program{Path: path, Env: append(env, o.Env...), Addr: addr(0), And: []string{addr(1), addr(2)}}),
		GRPCAddr: addr(0), HTTPAddr: addr(1), DebugAddr: addr(2),
	}
}
