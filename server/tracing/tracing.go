// Package tracing exports what a server does as OpenTelemetry traces.
package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/stats"

	"weir/server"
)

// Tracing makes spans and exports them. A nil *Tracing does nothing, and all its
// methods may be called. It is safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	context  propagation.TextMapPropagator
}

// scope is what spans of Weir's own say they were made by.
const scope = "weir"

// New returns what the standard variables of OpenTelemetry ask for, see Options;
// nil: they ask for no traces. Traces are sent in the background, of a bounded queue:
// a receiver that is away costs traces, and no decision. New does not connect yet.
//
// The library has one log and one handler of errors for all of the process: with
// traces they are the options' logger from then on.
func New(ctx context.Context, opts Options) (*Tracing, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	w, err := opts.wanted()
	if err != nil || !w.on {
		return nil, err
	}
	otel.SetLogger(logr.FromSlogHandler(opts.Logger.Handler()))
	otel.SetErrorHandler(&faults{log: opts.Logger})

	var client otlptrace.Client
	if w.protocol == protocolGRPC {
		client = otlptracegrpc.NewClient()
	} else {
		client = otlptracehttp.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, errors.Join(errors.New("exporting traces (OTEL_EXPORTER_OTLP_…)"), err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(w.attributes...), resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, errors.Join(err, exporter.Shutdown(ctx))
	}
	with := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if w.sampler != nil {
		with = append(with, sdktrace.WithSampler(w.sampler))
	}
	t := &Tracing{provider: sdktrace.NewTracerProvider(with...), context: propagation.TraceContext{}}
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(opts.Version))
	opts.Logger.Info("traces are exported", "protocol", w.protocol, "endpoint", w.endpoint)
	return t, nil
}

// Shutdown sends what is left, until the context ends.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// GRPC is for server.GRPCOptions.Stats: a span for each call but health checks, in
// the trace that the caller names (W3C Trace Context).
func (t *Tracing) GRPC() stats.Handler {
	if t == nil {
		return nil
	}
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithPropagators(t.context), otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
	)
}

// Tracer is for server.Options.
func (t *Tracing) Tracer() server.Tracer {
	if t == nil {
		return nil
	}
	return tracer{t.tracer}
}

// tracer is a server.Tracer.
type tracer struct{ trace.Tracer }

func (tracer) Traced(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

func (t tracer) Step(ctx context.Context, name string) (context.Context, func(error)) {
	ctx, span := t.Start(ctx, name)
	return ctx, func(err error) { end(span, err) }
}

func (tracer) Decided(ctx context.Context, v server.Verdict) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("weir.domain", valid(v.Domain)), attribute.String("weir.outcome", v.Outcome), attribute.Bool("weir.refused", v.Refused))
	if v.Rule != "" {
		span.SetAttributes(attribute.String("weir.rule", valid(v.Rule)))
	}
}

// valid is the text as protobuf takes it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// end ends a span. The error's text is left out: it may have what clients sent.
func end(span trace.Span, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		span.SetStatus(codes.Error, "the caller left")
	case errors.Is(err, context.DeadlineExceeded):
		span.SetStatus(codes.Error, "the deadline passed")
	case err != nil:
		span.SetStatus(codes.Error, "failed")
	}
	span.End()
}

// faults logs what the library cannot do, once in a while.
type faults struct {
	log   *slog.Logger
	times atomic.Uint64
	next  atomic.Int64 // Unix ns
}

const faultsEvery = time.Minute

// Handle implements otel.ErrorHandler.
func (f *faults) Handle(err error) {
	f.times.Add(1)
	now, next := time.Now().UnixNano(), f.next.Load()
	if now >= next && f.next.CompareAndSwap(next, now+int64(faultsEvery)) {
		f.log.Warn("traces are lost; decisions go on", "err", err, "times", f.times.Swap(0))
	}
}

// HTTP has the handler's calls of decisions (/json and /v1/) in traces.
func (t *Tracing) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/json" && !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		ctx := t.context.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, "HTTP "+route(r.URL.Path), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", method(r.Method)), attribute.String("http.route", route(r.URL.Path))))
		defer span.End()
		answer := &answered{ResponseWriter: w, code: http.StatusOK}
		next.ServeHTTP(answer, r.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", answer.code))
		if answer.code >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(answer.code))
		}
	})
}

// route is the path without what clients put into it.
func route(path string) string {
	if rest, ok := strings.CutPrefix(path, "/v1/"); ok && rest != "" {
		return "/v1/…"
	}
	return path
}

// method is one of HTTP's own, as its clients may make up others.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "_OTHER"
}

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	code int
}

func (a *answered) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Flush is for streams of answers.
func (a *answered) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Deliveries has requests that go out through the transport in spans, each in the
// trace that its traceparent names, which the receiver is told to go on with.
func (t *Tracing) Deliveries(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return deliveries{t, next}
}

type deliveries struct {
	*Tracing
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d deliveries) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := d.context.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := d.tracer.Start(ctx, "deliver", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("http.request.method", method(r.Method)), attribute.String("server.address", r.URL.Hostname())))
	if span.IsRecording() { // else the receiver goes on with what the client said
		r = r.Clone(ctx)
		d.context.Inject(ctx, propagation.HeaderCarrier(r.Header))
	}
	resp, err := d.next.RoundTrip(r)
	if resp != nil {
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
		if resp.StatusCode >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(resp.StatusCode))
		}
	}
	end(span, err)
	return resp, err
}
