package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
	"weir/queue"
	"weir/rules"
	"weir/server"
	"weir/server/metrics"
)

// queueFlags are the flags of serve that concern queues.
type queueFlags struct {
	addr, secret string
	maxBody      int64
}

func (q *queueFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&q.addr, "queue-addr", "", "where to take requests that are over the limit of a rule with over_limit: queue, by HTTP: host:port or unix:PATH (default: nowhere, and such rules refuse)")
	f.StringVar(&q.secret, "queue-secret", "", "what clients show that post to --queue-addr by themselves, without a decision (default: they may not)")
	f.Int64Var(&q.maxBody, "queue-max-body", queue.DefaultMaxBody, "bytes that the body of a queued request may have")
}

func (q *queueFlags) complete(store string) error {
	switch {
	case q.addr == "" && q.secret != "":
		return usagef("--queue-secret is for --queue-addr, which is not given")
	case q.addr == "":
		return nil
	case store == memoryStore:
		return usagef("--queue-addr: queues are kept in Redis; give one as --store")
	case q.maxBody < 1:
		return usagef("--queue-max-body %d: it is 1 at least", q.maxBody)
	}
	return checkAddr("--queue-addr", q.addr)
}

// overflow is the queues of the rules in force. It is a server.Queue.
type overflow struct {
	queues  *queue.Queues
	live    *rules.Live
	log     *slog.Logger
	maxBody int64
}

// Ready implements server.Queue.
func (o *overflow) Ready() bool { return o.queues.Ready() }

// Ticket implements server.Queue.
func (o *overflow) Ticket(r *rules.Rule, cost uint64) string {
	about := o.queues.AboutRule(r)
	return o.queues.Ticket(&about, cost)
}

// find returns the queue of that name.
func (o *overflow) find(domain, rule string) *queue.About {
	r := o.rule(domain, rule)
	if r == nil {
		return nil
	}
	about := o.queues.AboutRule(r)
	return &about
}

// rule returns the rule in force of that name that has a queue; nil: there is none.
func (o *overflow) rule(domain, rule string) *rules.Rule {
	for _, r := range o.live.Current().Queues() {
		if r.Domain == domain && r.Label() == rule {
			return r
		}
	}
	return nil
}

// Whenever rules change, and so often anyhow, run looks whether Redis knows what it
// must: it may have begun anew.
const (
	queueNews  = 500 * time.Millisecond
	queueCheck = 5 * time.Second
)

// run keeps the secret, and what workers must know of the rules' queues, in Redis.
func (o *overflow) run(ctx context.Context) {
	var told *rules.Set
	var checked time.Time
	failing := false
	for {
		var err error
		if set := o.live.Current(); set != told || time.Since(checked) > queueCheck {
			if err = o.prepare(ctx, set, set != told); err == nil {
				told, checked = set, time.Now()
			}
		}
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			if failing {
				o.log.Warn("queues cannot be used", "err", err)
			} else {
				o.log.Info("queues can be used")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(queueNews):
		}
	}
}

// prepare tells Redis of the set's queues if they are new, or not known there.
func (o *overflow) prepare(ctx context.Context, set *rules.Set, isNew bool) error {
	if err := o.queues.LoadSecret(ctx); err != nil {
		return err
	}
	var abouts []queue.About
	for _, r := range set.Queues() {
		abouts = append(abouts, o.queues.AboutRule(r))
	}
	if !isNew {
		known, err := o.queues.Announced(ctx, abouts)
		if err != nil || known {
			return err
		}
	}
	return o.queues.Announce(ctx, abouts)
}

// Enqueue implements server.Queue.
func (o *overflow) Enqueue(ctx context.Context, r *rules.Rule, req *weirv1.EnqueueRequest) (*weirv1.EnqueueResponse, error) {
	if n := int64(len(req.GetRequest().GetBody())); n > o.maxBody {
		return nil, grpcstatus.Errorf(codes.ResourceExhausted, "the request's body has %d bytes; %d are allowed (--queue-max-body)", n, o.maxBody)
	}
	about := o.queues.AboutRule(r)
	receipt, err := o.queues.Append(ctx, &about, queue.Request{HTTP: req.GetRequest(), Cost: req.Hits, Key: req.IdempotencyKey, Scope: "weir.v1"})
	if err != nil {
		return nil, queueStatus(err)
	}
	return &weirv1.EnqueueResponse{
		Id: receipt.ID, Ahead: receipt.Ahead, Duplicate: receipt.Duplicate, DepartsAfter: durationpb.New(receipt.DepartsAfter),
	}, nil
}

func queueStatus(err error) error {
	code := codes.Internal
	switch {
	case errors.Is(err, queue.ErrRequest):
		code = codes.InvalidArgument
	case errors.Is(err, queue.ErrFull):
		code = codes.ResourceExhausted
	case errors.Is(err, queue.ErrOtherByKey):
		code = codes.AlreadyExists
	case errors.Is(err, queue.ErrUnavailable):
		code = codes.Unavailable
	}
	return grpcstatus.Error(code, err.Error())
}

// queueServing is what serve has of queues; nil without --queue-addr.
type queueServing struct {
	*overflow
	server *http.Server
	addr   string
}

// openQueues serves the ingest where the flags say.
func openQueues(ctx context.Context, background *errgroup.Group, c *serveConfig, certs *server.Certificates, live *rules.Live, log *slog.Logger, counting *metrics.Metrics) (*queueServing, error) {
	if c.queue.addr == "" {
		background.Go(func() error { warnWithoutQueues(ctx, live, log); return nil })
		return &queueServing{}, nil
	}
	queues, err := queue.Open(queue.Options{URL: c.store, TLS: c.storeTLS, KeyPrefix: c.keyPrefix})
	if err != nil {
		return nil, fmt.Errorf("opening the queues: %w", err) // the store was opened by the same URL
	}
	listener, err := listen(ctx, c.queue.addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serving queues (--queue-addr): %w", err), queues.Close())
	}
	o := &overflow{queues: queues, live: live, log: log, maxBody: c.queue.maxBody}
	counting.WatchQueues(o.states)
	ingest := queue.NewIngest(queue.IngestOptions{
		Queues: queues, Find: o.find, Direct: c.queue.secret, MaxBody: c.queue.maxBody, Logger: log,
		Answered: func(a *queue.About, status int) { counting.Ingested(o.rule(a.Domain, a.Rule), status) },
	})
	q := &queueServing{overflow: o, server: newIngestServer(ingest, certs, log), addr: boundAddr(c.queue.addr, listener)}
	background.Go(func() error {
		serve := q.server.Serve
		if certs != nil {
			serve = func(l net.Listener) error { return q.server.ServeTLS(l, "", "") }
		}
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving queues: %w", err)
		}
		return nil
	})
	background.Go(func() error { o.run(ctx); return nil })
	return q, nil
}

// forDecisions is the server's; nil: there are no queues.
func (q *queueServing) forDecisions() server.Queue {
	if q.overflow == nil {
		return nil
	}
	return q.overflow
}

// stop finishes what is being taken. It may be called again.
func (q *queueServing) stop() {
	if q.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if q.server.Shutdown(ctx) != nil {
		q.server.Close()
	}
}

func (q *queueServing) close() {
	q.stop()
	if q.overflow != nil {
		_ = q.queues.Close() // all is done
	}
}

// ingestHeaders is what a request to the ingest may have before its body, in bytes:
// more than is stored, for its ticket and what belongs to the connection are not.
const ingestHeaders = 128 << 10

// newIngestServer serves the ingest in HTTP/1 and, as Envoy's clusters may ask,
// HTTP/2 without TLS; with certificates, only TLS.
func newIngestServer(handler http.Handler, certs *server.Certificates, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:                      handler,
		DisableGeneralOptionsHandler: true, // else OPTIONS * were answered 200, and not queued
		Protocols:                    protocols,
		ReadHeaderTimeout:            5 * time.Second,
		ReadTimeout:                  30 * time.Second,
		WriteTimeout:                 time.Minute,
		MaxHeaderBytes:               ingestHeaders,
		IdleTimeout:                  time.Minute,
		ErrorLog:                     server.HTTPErrorLog(log),
	}
	if certs != nil {
		s.TLSConfig = certs.Config("h2", "http/1.1")
		protocols.SetHTTP2(true)
	}
	return s
}

// warnWithoutQueues says of each new rule set that has queues that there are none.
func warnWithoutQueues(ctx context.Context, live *rules.Live, log *slog.Logger) {
	var told *rules.Set
	for ctx.Err() == nil {
		if set := live.Current(); set != told {
			told = set
			if n := len(set.Queues()); n > 0 {
				log.Warn("rules have over_limit: queue, and there is no --queue-addr: what is over their limit is refused", "rules", n)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
