package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weir/bench/load"
	"weir/bench/proc"
)

// Programs are the executables that run; those of peers may be empty.
type Programs struct {
	Weir, Redis                  string
	Envoyproxy                   string // envoyproxy/ratelimit's service_cmd
	Limitador, Gubernator        string
	leases                       bool   // weir knows accuracy: {lease: …}
	noLeases                     string // why not
	weirRules, envoyproxyRuntime string // folders
	limitadorLimits              string // a file
}

// server is one that runs, with the Redis behind it.
type server struct {
	name      string
	processes []*proc.Process // the server, and its Redis
	usage     load.Processes
	conns     load.Conns
	masters   int    // of a Redis Cluster
	metrics   string // URL of Weir's /metrics; empty: another server
	asker     func(load.Conns, load.Load) load.Asker
}

// fleet starts servers when they are first needed, each with a Redis of its own,
// all on 127.0.0.1.
type fleet struct {
	programs Programs
	dir      string // for logs, rules and Redis
	ports    *proc.Ports
	conns    int
	group    proc.Group
	servers  map[string]*server
}

func newFleet(p Programs, dir string, ports *proc.Ports, conns int) *fleet {
	return &fleet{programs: p, dir: dir, ports: ports, conns: conns, servers: map[string]*server{}}
}

// Close ends all servers.
func (f *fleet) Close() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.conns.Close())
	}
	f.servers = map[string]*server{}
	f.group.Close()
	return errors.Join(errs...)
}

// get returns the server of that name, started if need be.
func (f *fleet) get(ctx context.Context, name string) (*server, error) {
	if s, ok := f.servers[name]; ok {
		return s, nil
	}
	s := &server{name: name, asker: load.NewRLS}
	addr, err := f.start(ctx, s)
	if err != nil {
		return nil, err
	}
	if s.conns, err = load.Dial(addr, f.conns); err != nil {
		return nil, err
	}
	f.servers[name] = s
	return s, s.awaitAnswer(ctx)
}

// awaitAnswer waits until the server decides something: gubernator listens before
// it has found itself among its peers.
func (s *server) awaitAnswer(ctx context.Context) error {
	first := s.asker(s.conns, load.Load{Domain: "bench", Entry: "unlimited", Values: 1, Descriptors: 1})
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		_, err := first.Ask(ctx, 0, 0)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it answers nothing: %w", err)
		case <-time.After(50 * time.Millisecond): // servers have no way to tell
		}
	}
}

func (f *fleet) start(ctx context.Context, s *server) (addr string, err error) {
	switch s.name {
	case "weir-memory":
		return f.weir(ctx, s, "memory")
	case "weir-redis":
		addr, err := f.redis(ctx, s)
		if err != nil {
			return "", err
		}
		return f.weir(ctx, s, "redis://"+addr)
	case "weir-cluster-1", "weir-cluster-2", "weir-cluster-3":
		s.masters = int(s.name[len(s.name)-1] - '0')
		addrs, err := f.cluster(ctx, s)
		if err != nil {
			return "", err
		}
		return f.weir(ctx, s, "redis+cluster://"+strings.Join(addrs, ","))
	case "envoyproxy":
		return f.envoyproxy(ctx, s)
	case "envoyproxy, local cache":
		return f.envoyproxy(ctx, s, "LOCAL_CACHE_SIZE_IN_BYTES=1000000")
	case "limitador-memory":
		return f.limitador(ctx, s, "memory")
	case "limitador-redis":
		return f.limitador(ctx, s, "redis")
	case "limitador-cached":
		return f.limitador(ctx, s, "redis_cached")
	case "gubernator":
		return f.gubernator(ctx, s)
	}
	return "", fmt.Errorf("no server is called %q", s.name)
}

// take returns n free addresses.
func (f *fleet) take(ctx context.Context, n int) (addrs []string, err error) {
	for range n {
		port, err := f.ports.Take(ctx)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", port))
	}
	return addrs, nil
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// run starts a program of the server.
func (f *fleet) run(ctx context.Context, s *server, p proc.Program) (*proc.Process, error) {
	p.Dir = f.dir
	proc, err := f.group.Start(ctx, p)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, proc)
	return proc, nil
}

func (f *fleet) serve(ctx context.Context, s *server, p proc.Program) (string, error) {
	p.Name = strings.NewReplacer(", ", "-", " ", "-").Replace(s.name)
	proc, err := f.run(ctx, s, p)
	if err != nil {
		return "", err
	}
	s.usage.Server = append(s.usage.Server, proc.PID)
	return p.Addr, nil
}

// storeTimeout is longer than Weir's default of 10 ms, which a machine under so
// much load exceeds at times: what Weir then decides by itself costs less than
// asking Redis, and would flatter it. envoyproxy/ratelimit waits for 10 s.
const storeTimeout = "1s"

func (f *fleet) weir(ctx context.Context, s *server, store string) (string, error) {
	addrs, err := f.take(ctx, 2)
	if err != nil {
		return "", err
	}
	s.metrics = "http://" + addrs[1] + "/metrics"
	return f.serve(ctx, s, proc.Program{Path: f.programs.Weir, Addr: addrs[0], Args: []string{
		"serve", "--rules", f.programs.weirRules, "--store", store, "--store-timeout", storeTimeout, "--grpc-addr", addrs[0], "--http-addr", addrs[1], "--log-level", "error",
	}})
}

// redis starts a Redis that writes nothing to disk.
func (f *fleet) redis(ctx context.Context, s *server, args ...string) (string, error) {
	addrs, err := f.take(ctx, 1)
	if err != nil {
		return "", err
	}
	p, err := f.run(ctx, s, proc.Program{
		Name: "redis-" + port(addrs[0]), Path: f.programs.Redis, Addr: addrs[0],
		Args: append([]string{"--bind", "127.0.0.1", "--port", port(addrs[0]), "--save", "", "--appendonly", "no", "--dir", f.dir}, args...),
	})
	if err != nil {
		return "", err
	}
	s.usage.Redis = append(s.usage.Redis, p.PID)
	return addrs[0], nil
}

func (f *fleet) envoyproxy(ctx context.Context, s *server, env ...string) (string, error) {
	if f.programs.Envoyproxy == "" {
		return "", errNoPeer
	}
	redis, err := f.redis(ctx, s)
	if err != nil {
		return "", err
	}
	addrs, err := f.take(ctx, 3)
	if err != nil {
		return "", err
	}
	return f.serve(ctx, s, proc.Program{Path: f.programs.Envoyproxy, Addr: addrs[0], Env: append([]string{
		"USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
		"RUNTIME_ROOT=" + f.programs.envoyproxyRuntime, "RUNTIME_SUBDIRECTORY=rl", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + port(addrs[0]), "PORT=" + port(addrs[1]), "DEBUG_PORT=" + port(addrs[2]),
	}, env...)})
}

var errNoPeer = errors.New("it was left out")

func (f *fleet) limitador(ctx context.Context, s *server, store string) (string, error) {
	args := []string{f.programs.limitadorLimits, store}
	if store != "memory" {
		redis, err := f.redis(ctx, s)
		if err != nil {
			return "", err
		}
		args = append(args, "redis://"+redis)
	}
	addrs, err := f.take(ctx, 2)
	if err != nil {
		return "", err
	}
	return f.serve(ctx, s, proc.Program{Path: f.programs.Limitador, Addr: addrs[0], Args: append([]string{
		"--rls-ip", "127.0.0.1", "--rls-port", port(addrs[0]), "--http-ip", "127.0.0.1", "--http-port", port(addrs[1]),
	}, args...)})
}

// gubernator finds its peers, here none but itself, by gossip.
func (f *fleet) gubernator(ctx context.Context, s *server) (string, error) {
	addrs, err := f.take(ctx, 3)
	if err != nil {
		return "", err
	}
	s.asker = load.NewGubernator
	return f.serve(ctx, s, proc.Program{Path: f.programs.Gubernator, Addr: addrs[0], Env: []string{
		"GUBER_GRPC_ADDRESS=" + addrs[0], "GUBER_ADVERTISE_ADDRESS=" + addrs[0], "GUBER_HTTP_ADDRESS=" + addrs[1], "GUBER_LOG_LEVEL=error",
		"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_ADDRESS=" + addrs[2], "GUBER_MEMBERLIST_BIND_ADDRESS=" + addrs[2], "GUBER_MEMBERLIST_KNOWN_NODES=" + addrs[2],
	}})
}

// write puts the rules where the servers read them, and finds out whether weir
// knows leases.
func (p *Programs) write(ctx context.Context, dir string) error {
	p.weirRules, p.envoyproxyRuntime, p.limitadorLimits = filepath.Join(dir, "weir"), filepath.Join(dir, "envoyproxy"), filepath.Join(dir, "limitador.yaml")
	for path, text := range map[string]string{
		filepath.Join(p.weirRules, "bench.yaml"):                         weirRules,
		filepath.Join(p.envoyproxyRuntime, "rl", "config", "bench.yaml"): envoyproxyRules,
		p.limitadorLimits: limitadorLimits,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	if out, err := p.check(ctx, p.weirRules); err != nil {
		return fmt.Errorf("weir check of the benchmark's rules: %w: %s", err, out)
	}
	leased := filepath.Join(p.weirRules, "leased.yaml")
	if err := os.WriteFile(leased, []byte(leasedRules), 0o600); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	out, err := p.check(ctx, leased)
	if p.leases = err == nil; p.leases {
		return nil
	}
	p.noLeases, _, _ = strings.Cut(strings.ReplaceAll(out, dir+string(filepath.Separator), ""), "\n")
	if err := os.Remove(leased); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}

func (p *Programs) check(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, p.Weir, "check", path).CombinedOutput() //nolint:gosec // the weir that is measured
	return strings.TrimSpace(string(out)), err
}
