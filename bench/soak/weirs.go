package soak

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"weir/bench/load"
	"weir/bench/proc"
)

// weir is a server that runs.
type weir struct {
	name, store string // store: Redis or memory; instances of one share counters
	addr, http  string
	process     *proc.Process
	conns       load.Conns
	clients     []rls.RateLimitServiceClient
	turn        atomic.Uint64
}

func (w *weir) ask(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return w.clients[w.turn.Add(1)%uint64(len(w.clients))].ShouldRateLimit(ctx, r)
}

// start starts a Redis, two servers on it, and one with counters in memory.
func (s *soak) start(ctx context.Context) error {
	if err := s.startRedis(ctx); err != nil {
		return err
	}
	for _, x := range []struct{ name, store, url string }{
		{"weir-1", "Redis", "redis://" + s.redisAddr}, {"weir-2", "Redis", "redis://" + s.redisAddr}, {"weir-memory", "memory", "memory"},
	} {
		w, err := s.startWeir(ctx, x.name, x.store, x.url)
		if err != nil {
			return err
		}
		s.weirs = append(s.weirs, w)
	}
	return nil
}

func (s *soak) startRedis(ctx context.Context) (err error) {
	if s.redisAddr == "" {
		if s.redisAddr, err = s.take(ctx); err != nil {
			return err
		}
	}
	_, port, _ := net.SplitHostPort(s.redisAddr)
	_, err = s.redis.Start(ctx, proc.Program{
		Name: "redis", Path: s.opts.Redis, Dir: s.dir, Addr: s.redisAddr,
		Args: []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir},
	})
	return err
}

func (s *soak) startWeir(ctx context.Context, name, store, url string) (*weir, error) {
	w := &weir{name: name, store: store}
	for _, addr := range []*string{&w.addr, &w.http} {
		var err error
		if *addr, err = s.take(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	// A busy machine is late by more than the 10 ms that Redis has by default, and what
	// is decided without it is not what is looked at here.
	w.process, err = s.servers.Start(ctx, proc.Program{Name: name, Path: s.opts.Weir, Dir: s.dir, Addr: w.addr, Args: []string{
		"serve", "--rules", s.rules.path, "--store", url, "--store-timeout", "1s", "--grpc-addr", w.addr, "--http-addr", w.http, "--metrics-max-values", "20",
	}})
	if err != nil {
		return nil, err
	}
	if w.conns, err = load.Dial(w.addr, 2); err != nil {
		return nil, err
	}
	for _, c := range w.conns {
		w.clients = append(w.clients, rls.NewRateLimitServiceClient(c))
	}
	return w, nil
}

func (s *soak) take(ctx context.Context) (string, error) {
	port, err := s.opts.Ports.Take(ctx)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", port), nil
}

// restartRedis ends Redis and starts it again, empty.
func (s *soak) restartRedis(ctx context.Context) error {
	from := time.Now()
	s.restarts.Add(1)
	s.redis.Close()
	err := s.startRedis(ctx)
	pause(ctx, redisBack) // in which the servers find it again
	s.windows.except(span{from, time.Now(), true})
	s.restarts.Add(1)
	return err
}

// close ends what runs.
func (s *soak) close() {
	for _, w := range s.weirs {
		_ = w.conns.Close() // they have served their time
	}
	s.servers.Close()
	s.redis.Close()
}

// standby is how many hits servers have decided without their store, so far.
func (s *soak) standby(ctx context.Context, weirs []*weir) (sum float64, err error) {
	for _, w := range weirs {
		text, err := proc.Get(ctx, "http://"+w.http+"/metrics")
		if err != nil {
			return 0, err
		}
		sum += readMetrics(text).standby
	}
	return sum, nil
}

// metrics is what is looked at of /metrics.
type metrics struct {
	values  map[string]float64 // of series without labels
	standby float64            // weir_decisions_total of the outcomes failed_…
	series  float64            // of Weir's own that have labels or not
}

func readMetrics(text string) metrics {
	m := metrics{values: map[string]float64{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, " ")
		if i := strings.LastIndexByte(line, ' '); i >= 0 {
			name, value = line[:i], line[i+1:]
		}
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		m.series++
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		if strings.HasPrefix(name, "weir_decisions_total{") && strings.Contains(name, `outcome="failed_`) {
			m.standby += v
		}
		if !strings.Contains(name, "{") {
			m.values[name] = v
		}
	}
	return m
}

// heapAfterGC has a server collect its garbage, and returns what lives then.
func (w *weir) heapAfterGC(ctx context.Context) (float64, error) {
	text, err := proc.Get(ctx, "http://"+w.http+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(text, "\n# HeapAlloc = ")
	if !ok {
		return 0, fmt.Errorf("%s tells no HeapAlloc in /debug/pprof/heap?debug=1", w.name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseFloat(line, 64)
}

// look samples a server.
func (w *weir) look(ctx context.Context) (p Process, err error) {
	if err := w.process.Alive(); err != nil {
		return p, err
	}
	if p.Heap, err = w.heapAfterGC(ctx); err != nil {
		return p, err
	}
	text, err := proc.Get(ctx, "http://"+w.http+"/metrics")
	if err != nil {
		return p, err
	}
	m := readMetrics(text)
	p.RSS, p.Goroutines, p.Files = m.values["process_resident_memory_bytes"], m.values["go_goroutines"], m.values["process_open_fds"]
	p.Series, p.Counters, p.Standby = m.series, m.values["weir_counters"], m.standby
	return p, nil
}

// profiles writes each server's profiles of heap and goroutines.
func (s *soak) profiles(ctx context.Context, when string) error {
	for _, w := range s.weirs {
		for _, kind := range []string{"heap", "goroutine"} {
			text, err := proc.Get(ctx, "http://"+w.http+"/debug/pprof/"+kind)
			if err != nil {
				return fmt.Errorf("profile of %s: %w", w.name, err)
			}
			if err := writeFile(filepath.Join(s.opts.Out, fmt.Sprintf("%s-%s-%s.pprof", w.name, kind, when)), []byte(text)); err != nil {
				return err
			}
		}
	}
	return nil
}
