package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"weir/server/tracing"
)

// tracesLimit bounds how long a stop waits for the last traces to be sent.
const tracesLimit = 3 * time.Second

// openTracing returns the traces that the environment asks for (nil: none), and
// what closes them.
func openTracing(ctx context.Context, opts tracing.Options, log *slog.Logger) (*tracing.Tracing, func(), error) {
	opts.Version, opts.Logger = versionText(), log
	traces, err := tracing.New(ctx, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	return traces, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesLimit)
		defer cancel()
		if err := traces.Shutdown(ctx); err != nil {
			log.Warn("the last traces are lost", "err", err)
		}
	}, nil
}

// traces are what OpenTelemetry's own variables do not say, which are stronger.
func (e *compatEnv) traces() {
	if !e.isTrue("TRACING_ENABLED") {
		return
	}
	e.tracing = tracing.Options{
		On: true, Service: e.get("TRACING_SERVICE_NAME"), Namespace: e.get("TRACING_SERVICE_NAMESPACE"), Instance: e.get("TRACING_SERVICE_INSTANCE_ID"),
	}
	switch protocol := e.get("TRACING_EXPORTER_PROTOCOL"); protocol {
	case "http":
	case "grpc":
		e.tracing.Protocol = protocol
	default:
		e.fail("environment TRACING_EXPORTER_PROTOCOL is http or grpc, not %q", protocol)
	}
	rate, err := strconv.ParseFloat(e.get("TRACING_SAMPLING_RATE"), 64)
	if err != nil || !(rate >= 0 && rate <= 1) {
		e.fail("environment TRACING_SAMPLING_RATE is a number from 0 to 1, not %q", e.get("TRACING_SAMPLING_RATE"))
	}
	e.tracing.SampleRate = &rate
}
