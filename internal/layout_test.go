// Package internal_test holds what is promised of the repository as a whole.
package internal_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	rlsProtos = "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit"
	grpcLib   = "google.golang.org/grpc"
	protobuf  = "google.golang.org/protobuf"
	goRedis   = "github.com/redis/go-redis"
	consulAPI = "github.com/hashicorp/consul"
	etcdAPI   = "go.etcd.io/etcd"
	promAPI   = "github.com/prometheus"
)

// pkg is a package of this module, from `go list`. Imports in tests do not
// count: a test may use whatever it wants.
type pkg struct {
	path    string
	imports []string // direct
	deps    []string // direct and indirect
}

func TestDependenciesPointOneWay(t *testing.T) {
	t.Parallel()
	pkgs := listPackages(t)

	// What a package must not reach, not even through others, but for what it may.
	for _, c := range []struct {
		pkg    string // and the packages below it, if it ends in /...
		never  []string
		except []string
		why    string
	}{
		{"weir/limiter", []string{"weir", grpcLib, protobuf, goRedis}, nil,
			"limiter knows no rules, no protos and no store but its own"},
		{"weir/limiter/limitertest", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter"},
			"the contract suite knows only the contract"},
		{"weir/limiter/redis", []string{"weir", grpcLib, protobuf}, []string{"weir/limiter"},
			"a store knows limits, and neither rules nor protos"},
		{"weir/rules", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter"},
			"rules know limits, but no store and no protos"},
		{"weir/rules/file", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter", "weir/rules"},
			"a source knows rules, but no store and no protos"},
		{"weir/rules/kv", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter", "weir/rules"},
			"what Consul and etcd have in common knows neither of them"},
		{"weir/rules/consul", []string{"weir", goRedis, etcdAPI}, []string{"weir/limiter", "weir/rules", "weir/rules/kv"},
			"a source knows rules, but no store of counters"},
		{"weir/rules/etcd", []string{"weir", goRedis, consulAPI}, []string{"weir/limiter", "weir/rules", "weir/rules/kv"},
			"a source knows rules, but no store of counters"},
		{"weir/rules/xds", []string{"weir", goRedis, rlsProtos}, []string{"weir/limiter", "weir/rules"},
			"a source knows rules and its own protos, but no store and no RLS"},
		{"weir/queue", []string{"weir", rlsProtos, consulAPI, etcdAPI}, []string{"weir/limiter", "weir/limiter/redis", "weir/rules", "weir/api/weir/v1"},
			"queues know rules and their Redis, and nothing of who decides"},
		{"weir/server/...", []string{"weir/cmd", "weir/queue", "weir/limiter/redis", "weir/rules/file", "weir/rules/kv", "weir/rules/consul", "weir/rules/etcd", "weir/rules/xds"}, nil,
			"the server is given a store and rules; which ones, is wired in cmd/weir"},
		{"weir/internal/accesslog", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter", "weir/rules"},
			"logs become requests, and who decides them is another's matter"},
		{"weir/internal/simulate", []string{"weir", grpcLib, protobuf, goRedis}, []string{"weir/limiter", "weir/rules"},
			"what is rehearsed are rules and limits, without logs, servers and protos"},
		{"weir/client", []string{"weir", rlsProtos, goRedis, consulAPI, etcdAPI}, []string{"weir/api/weir/v1"},
			"services that ask know the API, and nothing of who answers"},
	} {
		for _, p := range pkgs {
			if !within(p.path, c.pkg) {
				continue
			}
			for _, never := range c.never {
				for _, dep := range p.deps {
					if under(dep, never) && !slices.Contains(c.except, dep) && dep != p.path {
						t.Errorf("%s depends on %s: %s", p.path, dep, c.why)
						break // what that one drags in is no news
					}
				}
			}
		}
	}

	// Who alone may import something.
	for _, c := range []struct {
		what string
		by   []string
		why  string
	}{
		{rlsProtos, []string{"weir/server/...", "weir/cmd/..."}, "the RLS protos stay at the edge"},
		{goRedis, []string{"weir/limiter/redis", "weir/queue/...", "weir/cmd/..."}, "the Redis client stays in its store"},
		{consulAPI, []string{"weir/rules/consul", "weir/cmd/..."}, "the Consul client stays in its source"},
		{etcdAPI, []string{"weir/rules/etcd", "weir/cmd/..."}, "the etcd client stays in its source"},
		{"go.opentelemetry.io", []string{"weir/server/tracing"}, "traces stay in their package"},
		{promAPI, []string{"weir/server/metrics"}, "the client of Prometheus stays out of the code that decides"},
		{"weir/internal/testenv", []string{"weir/internal/testenv/..."}, "it is for tests"},
		{"weir/internal/chaos", nil, "it is for tests"},
		{"weir/internal/golden", nil, "it is for tests"},
		{"weir/limiter/limitertest", nil, "it is for tests"},
		{"weir/rules/kv/kvtest", nil, "it is for tests"},
		{"testing", []string{"weir/internal/golden", "weir/internal/testenv", "weir/limiter/limitertest", "weir/rules/kv/kvtest"}, "it is for tests"},
	} {
		for _, p := range pkgs {
			for _, imp := range p.imports {
				if under(imp, c.what) && !withinAny(p.path, c.by) {
					t.Errorf("%s imports %s: %s", p.path, imp, c.why)
				}
			}
		}
	}
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	const format = `{{.ImportPath}};{{join .Imports " "}};{{join .Deps " "}}`
	cmd := exec.Command("go", "list", "-f", format, "./...")
	cmd.Dir = ".."
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errs.String())
	}
	var pkgs []pkg
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), ";")
		if len(f) != 3 {
			t.Fatalf("go list printed %q", line)
		}
		pkgs = append(pkgs, pkg{path: f[0], imports: strings.Fields(f[1]), deps: strings.Fields(f[2])})
	}
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages", len(pkgs))
	}
	return pkgs
}

// under says whether an import path is another one or below it.
func under(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// within says whether a package is the one named, or, where /... ends the name,
// one below it.
func within(path, pattern string) bool {
	if root, ok := strings.CutSuffix(pattern, "/..."); ok {
		return under(path, root)
	}
	return path == pattern
}

func withinAny(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return within(path, p) })
}
