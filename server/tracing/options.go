package tracing

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Options are what the environment does not say; what it says is stronger:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT   one of them turns traces on
//	OTEL_TRACES_EXPORTER    otlp turns them on too, none off
//	OTEL_SDK_DISABLED       true turns them off
//	OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL   http/protobuf (the default) or grpc
//
// and the rest of OTEL_EXPORTER_OTLP_…, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
// OTEL_TRACES_SAMPLER, OTEL_BSP_… and OTEL_SPAN_… as its specification says. The zero
// value of the options is their default.
type Options struct {
	On         bool     // traces, also where the environment does not ask for them
	Service    string   // service.name; "": weir
	Namespace  string   // service.namespace
	Instance   string   // service.instance.id
	Version    string   // service.version
	Protocol   string   // http/protobuf or grpc; "": the former
	SampleRate *float64 // of traces that begin here, 0 to 1; nil: all
	Logger     *slog.Logger
}

const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// wanted is what the options and the environment ask for.
type wanted struct {
	on         bool
	protocol   string
	endpoint   string // without what may be a secret
	attributes []attribute.KeyValue
	sampler    sdktrace.Sampler // nil: as OTEL_TRACES_SAMPLER says
}

func (o *Options) wanted() (w wanted, err error) {
	text, name := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	w.on = o.isOn(text != "")
	if !w.on {
		return w, nil
	}
	w.protocol = o.protocol()
	if w.endpoint, err = endpoint(text, w.protocol); err != nil {
		return w, fmt.Errorf("environment %s: %w", name, err)
	}
	w.attributes = []attribute.KeyValue{semconv.ServiceName(cmp.Or(o.Service, "weir"))}
	for key, value := range map[attribute.Key]string{
		semconv.ServiceNamespaceKey: o.Namespace, semconv.ServiceInstanceIDKey: o.Instance, semconv.ServiceVersionKey: o.Version,
	} {
		if value != "" {
			w.attributes = append(w.attributes, key.String(value))
		}
	}
	if o.SampleRate != nil && os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		w.sampler = sdktrace.ParentBased(sdktrace.TraceIDRatioBased(*o.SampleRate))
	}
	o.warnOfTheRest()
	return w, nil
}

// isOn tells whether traces are wanted.
func (o *Options) isOn(hasEndpoint bool) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	text := os.Getenv("OTEL_TRACES_EXPORTER")
	exporters := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	switch {
	case len(exporters) == 0:
		return o.On || hasEndpoint
	case slices.Contains(exporters, "otlp"):
		return true
	case !slices.Contains(exporters, "none"):
		o.Logger.Warn("OTEL_TRACES_EXPORTER names no exporter that there is: otlp or none; there are no traces", "value", text)
	}
	return false
}

func (o *Options) protocol() string {
	text, name := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch text {
	case protocolGRPC, protocolHTTP:
		return text
	case "":
	default:
		o.Logger.Warn(name+" is grpc or http/protobuf; it is not heeded", "value", text)
	}
	return cmp.Or(o.Protocol, protocolHTTP)
}

// endpoint is where traces go, to be shown. The library would go elsewhere without a
// word if it cannot be read.
func endpoint(text, protocol string) (string, error) {
	if text == "" {
		return map[string]string{protocolGRPC: "localhost:4317", protocolHTTP: "localhost:4318"}[protocol], nil
	}
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return "", fmt.Errorf("it is http://host:port or https://host:port (port 4317 for grpc, 4318 for http/protobuf), not %q", withoutPassword(text))
	}
	return at.Redacted(), nil
}

// withoutPassword cuts off what stands before an @.
func withoutPassword(text string) string {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return "…" + text[i:]
	}
	return text
}

// warnOfTheRest tells of what the library ignores without a word.
func (o *Options) warnOfTheRest() {
	for _, name := range []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		if text := os.Getenv(name); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 0 {
				o.Logger.Warn(name+" is a whole number; it is not heeded", "value", text)
			}
		}
	}
	if text := os.Getenv("OTEL_PROPAGATORS"); text != "" && !slices.Contains(strings.Split(text, ","), "tracecontext") {
		o.Logger.Warn("OTEL_PROPAGATORS is not heeded: traces go on as tracecontext says (W3C)", "value", text)
	}
}

// first is the first of the variables that is set, and its name.
func first(names ...string) (value, name string) {
	for _, name = range names {
		if value = os.Getenv(name); value != "" {
			return value, name
		}
	}
	return "", name
}
