package main

import (
	"context"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"weir/rules"
	"weir/server"
	"weir/server/metrics"
	"weir/server/tracing"
)

// front is what serve has before there are rules: HTTP, so that /readyz tells what it
// waits for, and metrics.
type front struct {
	ready    *readiness
	health   *server.Health
	certs    *server.Certificates // nil: plain text
	counting *metrics.Metrics     // nil: there are none

	web         *web
	addr        string // of HTTP
	metricsAddr string // "": metrics have no address of their own
	stopMetrics func()
}

// openFront serves until stop.
func (c *serveConfig) openFront(ctx context.Context, background *errgroup.Group, live *rules.Live, sources []source, traces *tracing.Tracing, log *slog.Logger) (*front, error) {
	f := &front{ready: &readiness{live: live, sources: sources}, health: server.NewHealth()}
	var err error
	if f.certs, err = c.tls.load(ctx, background, log); err != nil {
		return nil, err
	}
	f.counting = c.metrics.open(ctx, background, metrics.Options{Rules: live, ChargeEach: c.charge.value == "each", Logger: log}, f.certs)
	listener, err := listen(ctx, c.httpAddr)
	if err != nil {
		return nil, fmt.Errorf("serving HTTP (--http-addr): %w", err)
	}
	f.addr = boundAddr(c.httpAddr, listener)
	f.web = newWeb(server.HTTPOptions{
		Ready: f.ready.report, Rules: func() any { return live.Status() }, Metrics: c.metrics.handler(f.counting), Access: c.admin.access,
	}, c.tls.forHTTP(f.certs), log, traces.HTTP)
	background.Go(func() error { return f.web.serve(listener) }) // which closes the listener
	f.metricsAddr, f.stopMetrics, err = c.metricsAt.serve(ctx, background, f.web, log)
	if err != nil {
		f.web.stop()
		return nil, err
	}
	return f, nil
}

// stop finishes what HTTP has begun; metrics are the last to go. It may be called
// again.
func (f *front) stop() {
	f.web.stop()
	f.stopMetrics()
}
