package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weir/limiter/redis"
	"weir/rules"
	"weir/server"
	"weir/server/metrics"
	"weir/server/top"
	"weir/server/tracing"
)

//go:embed sample.yaml
var sample []byte

const sampleName = "sample.yaml (embedded)"

func newServe() *cobra.Command {
	var c serveConfig
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "serve rate limit decisions over gRPC and HTTP",
		Long: `Serve Envoy's RateLimitService and weir.v1 over gRPC; and /healthz, /readyz, /rules,
/metrics, /json, and weir.v1 as JSON under /v1 over HTTP. With no flags: counters in
memory and an embedded sample of rules.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.complete(cmd.Flags()); err != nil {
				return err
			}
			return serve(cmd.Context(), &c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}

// drainLimit bounds how long calls in progress may take on a stop.
const drainLimit = 10 * time.Second

// serve runs until the context ends, then drains. What it opens is closed in
// reverse.
func serve(ctx context.Context, c *serveConfig, stdout, stderr io.Writer) error {
	log := c.logger(stderr)
	traces, closeTraces, err := openTracing(ctx, c.compatSaid.tracing, log)
	if err != nil {
		return err
	}
	defer closeTraces()
	return c.serve(ctx, traces, log, stdout)
}

// serve serves HTTP from the beginning, and gRPC when rules are loaded, since until
// then no answer would be right.
func (c *serveConfig) serve(ctx context.Context, traces *tracing.Tracing, log *slog.Logger, stdout io.Writer) error {
	live := rules.NewLive(rules.LiveOptions{
		Options: c.ruleOptions(),
		Logger:  log,
	})
	sources, closeSources, err := c.openSources(log)
	if err != nil {
		return err
	}
	defer closeSources()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	background, ctx := errgroup.WithContext(ctx)
	defer func() { cancel(); _ = background.Wait() }() // whatever ends serve: nothing goes on after it
	background.Go(func() error { tuneMemory(ctx); return nil })
	front, err := c.openFront(ctx, background, live, sources, traces, log)
	if err != nil {
		return err
	}
	defer front.stop()

	err = startSources(ctx, background, sources, live)
	if errors.Is(err, context.Canceled) { // asked to stop, or HTTP failed
		front.stop()
		cancel()
		return background.Wait()
	}
	if err != nil {
		return err
	}
	store, err := openStore(ctx, background, c, log, front.health, front.counting)
	if err != nil {
		return err
	}
	defer store.close()
	queues, err := openQueues(ctx, background, c, c.tls.forHTTP(front.certs), live, log, front.counting)
	if err != nil {
		return err
	}
	defer queues.close()
	service := newService(ctx, background, c, parts{live, store, queues, front.counting, traces, log})
	grpcServer, grpcListener, err := serveGRPC(ctx, background, c, service, server.GRPCOptions{
		MaxConnectionAge: c.maxConnectionAge, Reflection: c.reflection, Health: front.health,
		Certificates: front.certs, Access: c.admin.access, Stats: traces.GRPC(),
	})
	if err != nil {
		return err
	}
	defer grpcListener.Close()
	front.web.use(service)
	front.ready.state.Store(stateServing)
	grpcAddr := boundAddr(c.grpcAddr, grpcListener)
	if c.register != "" {
		background.Go(func() error { return c.keepRegistered(ctx, grpcAddr, front.addr, log) })
	}
	announce(stdout, c, live, grpcAddr, front.addr, queues.addr)
	c.metricsAt.announce(stdout, front.metricsAddr)
	tellManager(log, daemon.SdNotifyReady+"\nSTATUS=gRPC "+grpcAddr+", HTTP "+front.addr)

	<-ctx.Done()
	c.drain(front.ready, grpcServer, log)
	queues.stop()
	front.stop()
	cancel()
	return background.Wait()
}

// drain lets clients turn elsewhere, and finishes what they have begun.
func (c *serveConfig) drain(ready *readiness, s *server.GRPC, log *slog.Logger) {
	log.Info("stopping", "drain_delay", c.drainDelay)
	tellManager(log, daemon.SdNotifyStopping)
	ready.state.Store(stateStopping)
	if !s.Drain(c.drainDelay, drainLimit) {
		log.Warn("stopped before all calls were answered", "limit", drainLimit)
	}
}

// logger returns the log, in which --compat has its say first.
func (c *serveConfig) logger(w io.Writer) *slog.Logger {
	log := c.logs.logger(w)
	for _, note := range c.compatSaid.notes {
		log.Warn("compat: " + note) // their own default shows no less
	}
	return log
}

// parts are what serve has opened.
type parts struct {
	live     *rules.Live
	store    *openedCounters
	queues   *queueServing
	counting *metrics.Metrics
	traces   *tracing.Tracing
	log      *slog.Logger
}

// shadowPeriod is how long those are remembered that rules in shadow would have refused
// most: a rule is in shadow for days.
const shadowPeriod = 24 * time.Hour

// newService is what decides, by the rules in force and the counters of the store.
func newService(ctx context.Context, background *errgroup.Group, c *serveConfig, p parts) *server.Service {
	reset := &resets{live: p.live, store: p.store.redis, log: p.log}
	reset.start(ctx, background)
	var refused, wouldBe *top.Top
	if p.counting != nil {
		refused, wouldBe = top.New(top.Options{}), top.New(top.Options{Period: shadowPeriod})
	}
	o := c.answering()
	o.Rules, o.Store, o.Queue = p.live, p.store.Store, p.queues.forDecisions()
	o.MaxHeld, o.MaxInFlight, o.OnShed = orNone(c.maxHeld), orNone(c.maxInFlight), p.counting.Shed
	o.Metrics, o.Logger, o.LogRefused, o.LogValues = p.counting, p.log, c.logs.refused, c.logs.values
	o.Tracer, o.CounterName = p.traces.Tracer(), redis.NewNaming(c.keyPrefix, c.keySecret).Counter
	o.Top, o.ShadowTop, o.ResetRules, o.Status = refused, wouldBe, reset.Reset, statusOf(c, p)
	return server.NewService(o)
}

// answering are the options of a service that say what answers are like; weir test
// has the same.
func (c *serveConfig) answering() server.Options {
	return server.Options{
		Shadow: c.shadow, Headers: c.answer.headerOptions(), Denied: c.answer.deniedOptions(),
		Metadata: c.answer.metadataStyle(), UpstreamHeaders: c.answer.upstreamHeaders,
	}
}

// ruleOptions are the defaults for what rules leave open.
func (c *serveConfig) ruleOptions() rules.Options {
	return rules.Options{OnFailure: c.failurePolicy(), CountDenied: c.countDenied}
}

// serveGRPC serves until it is drained.
func serveGRPC(ctx context.Context, background *errgroup.Group, c *serveConfig, service *server.Service, opts server.GRPCOptions) (*server.GRPC, net.Listener, error) {
	listener, err := listen(ctx, c.grpcAddr)
	if err != nil {
		return nil, nil, fmt.Errorf("serving gRPC (--grpc-addr): %w", err)
	}
	s := server.NewGRPC(service, opts)
	background.Go(func() error {
		if err := s.Serve(listener); !errors.Is(err, grpc.ErrServerStopped) { // before it began
			return err
		}
		return nil
	})
	s.SetServing(true)
	return s, listener, nil
}

// orNone turns the flag's 0 into the option's "none".
func orNone(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// listen opens host:port or unix:PATH. A socket that nobody listens on any more
// is replaced.
func listen(ctx context.Context, addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return net.Listen("tcp", addr)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s: another process listens there", addr)
	}
	if info, e := os.Stat(path); errors.Is(err, syscall.ECONNREFUSED) && e == nil && info.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing a stale socket: %w", err)
		}
	}
	return net.Listen("unix", path)
}

// boundAddr is the address as given, or the port that the system chose for 0.
func boundAddr(addr string, l net.Listener) string {
	if _, port, err := net.SplitHostPort(addr); err == nil && port == "0" && l.Addr().Network() == "tcp" {
		return l.Addr().String()
	}
	return addr
}

// announce says what is served and what to try.
func announce(w io.Writer, c *serveConfig, live *rules.Live, grpcAddr, httpAddr, queueAddr string) {
	domains, n := live.Current().Size()
	from := sampleName
	if len(c.rules) > 0 {
		from = strings.Join(c.rules, ", ")
	}
	fmt.Fprintf(w, "weir %s serves %s in %s from %s, counters in %s\n", versionText(), count(n, "rule"), count(domains, "domain"), from, redis.Redact(c.store))
	grpcTLS, httpTLS := c.tls.words()
	fmt.Fprintf(w, "  gRPC %s  (%senvoy.service.ratelimit.v3.RateLimitService, weir.v1, health)\n", grpcAddr, grpcTLS)
	paths := "/healthz /readyz /rules /json /v1"
	if c.metrics.on.value == "on" {
		paths += " /metrics"
	}
	fmt.Fprintf(w, "  HTTP %s  (%s%s; / is a page to look at)\n", httpAddr, httpTLS, paths)
	if c.queue.addr != "" {
		fmt.Fprintf(w, "  queue %s  (%srequests over the limit of rules with over_limit: queue; /queue/ID)\n", queueAddr, httpTLS)
	}
	if c.shadow {
		fmt.Fprintln(w, "  in shadow: nothing is refused")
	}
	if c.charge.value == "each" {
		fmt.Fprintln(w, "  each limit is charged on its own, also for requests that another refuses")
	}
	if len(c.rules) == 0 && c.tls.cert == "" { // with TLS the line would need files that only the user knows
		addr := ""
		if grpcAddr != defaultAddr {
			addr = " --addr " + grpcAddr
		}
		fmt.Fprintf(w, "try: %s decide default endpoint=/api/posts user=alice --times 3%s\n", os.Args[0], addr)
	}
}
