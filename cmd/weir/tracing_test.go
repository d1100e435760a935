package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// posted keeps what OTLP's HTTP receiver is sent.
type posted struct {
	mu   sync.Mutex
	body bytes.Buffer
}

func (p *posted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.Copy(&p.body, r.Body)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (p *posted) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.body.String()
}

func TestServeSendsTracesOfWhatItDecides(t *testing.T) {
	receiver := new(posted)
	at := httptest.NewServer(receiver)
	defer at.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", at.URL)
	s := serving(t, "--rules", rulesFile(t, "rules: [{name: all-x, endpoint: /x, limit: 5, window: 1h}]"))
	s.codes(t, 1, "default", "endpoint=/x")
	resp, err := http.Post("http://"+s.httpAddr+"/json", "application/json", strings.NewReader(`{"domain": "default", "descriptors": [{"entries": [{"key": "endpoint", "value": "/x"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if code := s.stop(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	for _, want := range []string{"RateLimitService/ShouldRateLimit", "HTTP /json", "store", "all-x", "service.name"} {
		if !strings.Contains(receiver.String(), want) {
			t.Errorf("%q was not sent when it stopped", want)
		}
	}
}

func TestAnEndpointThatIsNoneEndsTheStart(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
	weir(t, "serve").want(t, exitFailed, "OTEL_EXPORTER_OTLP_ENDPOINT: it is http://host:port")
	weir(t, "worker", "--upstream", "http://127.0.0.1:1", "--store", "redis://127.0.0.1:1").want(t, exitFailed, "OTEL_EXPORTER_OTLP_ENDPOINT")
}

func TestTheirTracesBecomeOurs(t *testing.T) {
	said := func(env ...string) compatSaid {
		t.Helper()
		f := newServe().Flags()
		said, err := applyCompat(f, func(name string) (string, bool) {
			for _, v := range env {
				if n, value, _ := strings.Cut(v, "="); n == name {
					return value, true
				}
			}
			return "", false
		})
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	if got := said("TRACING_SERVICE_NAME=x").tracing; got.On {
		t.Errorf("nobody asked for %+v", got)
	}
	got := said("TRACING_ENABLED=true", "TRACING_SERVICE_NAMESPACE=ns", "TRACING_SERVICE_INSTANCE_ID=i", "TRACING_EXPORTER_PROTOCOL=grpc", "TRACING_SAMPLING_RATE=0.5").tracing
	if !got.On || got.Service != "RateLimit" || got.Namespace != "ns" || got.Instance != "i" || got.Protocol != "grpc" || *got.SampleRate != 0.5 {
		t.Errorf("they become %+v", got)
	}
}
