package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"weir/rules"
	"weir/server"
)

// web is the HTTP server, which is there before the service is.
type web struct {
	options server.HTTPOptions
	around  func(http.Handler) http.Handler // the handler, for traces
	handler atomic.Pointer[http.Handler]
	server  *http.Server
}

// httpHeaders is what a request's line and headers may have, in bytes: what those of
// gRPC may. (net/http takes 4 KiB more.)
const httpHeaders = 64 << 10

// newWeb speaks plain text without certificates.
func newWeb(options server.HTTPOptions, certs *server.Certificates, log *slog.Logger, around func(http.Handler) http.Handler) *web {
	w := &web{options: options, around: around}
	w.use(nil)
	w.server = &http.Server{
		Handler:           w,
		ReadHeaderTimeout: 5 * time.Second,  // of the TLS handshake too
		ReadTimeout:       10 * time.Second, // an answer may take longer: leaky buckets hold it
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    httpHeaders, // a slow answer is cut off by the handler
		ErrorLog:          server.HTTPErrorLog(log),
	}
	if certs != nil {
		w.server.TLSConfig = certs.Config("h2", "http/1.1")
	}
	return w
}

// ServeHTTP answers as far as it can by now.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	(*w.handler.Load()).ServeHTTP(rw, r)
}

// use has the service answer from now on.
func (w *web) use(s *server.Service) {
	handler := w.around(server.NewHTTP(s, w.options))
	w.handler.Store(&handler)
}

func (w *web) serve(l net.Listener) error {
	serve := w.server.Serve
	if w.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return w.server.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stop may be called again.
func (w *web) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		w.server.Close()
	}
}

// What serve is doing.
const (
	stateStarting int32 = iota
	stateServing
	stateStopping
)

// readiness tells whether traffic should come here, and how old the rules are.
type readiness struct {
	live    *rules.Live
	sources []source
	state   atomic.Int32
}

// report has a line for each source. The error says why no traffic should come.
func (r *readiness) report() (report string, err error) {
	status := r.live.Status()
	var lines strings.Builder
	missing := 0
	for _, src := range r.sources {
		s := status.Sources[src.name]
		if s.LoadedAt.IsZero() {
			missing++
		}
		fmt.Fprintf(&lines, "%s: %s\n", src.name, sourceLine(s, src.local))
	}
	switch {
	case r.state.Load() == stateStopping:
		err = errors.New("stopping")
	case missing > 0:
		err = errors.New("not all rules are loaded yet")
	case r.state.Load() == stateStarting:
		err = errors.New("starting")
	}
	return string(cleaned([]byte(lines.String()))), err
}

// sourceLine says in a line what is in force from a source.
func sourceLine(s rules.SourceStatus, local bool) string {
	ago := func(at time.Time) string {
		return fmt.Sprintf("%s (%v ago)", at.UTC().Format(time.RFC3339), time.Since(at).Round(time.Second))
	}
	var parts []string
	if s.LoadedAt.IsZero() {
		parts = append(parts, "nothing is loaded")
	} else {
		if s.Version != "" {
			parts = append(parts, "version "+s.Version)
		}
		parts = append(parts, count(s.Documents, "document"), "loaded "+ago(s.LoadedAt))
		switch {
		case s.Cached:
			parts = append(parts, "from the rules cache, as of "+ago(s.AsOf))
		case !local:
			parts = append(parts, "confirmed "+ago(s.AsOf))
		}
	}
	if s.LastError != "" {
		first, _, _ := strings.Cut(s.LastError, "\n")
		parts = append(parts, fmt.Sprintf("failing since %s: %s", ago(s.FailedAt), first))
	}
	return strings.Join(parts, ", ")
}
