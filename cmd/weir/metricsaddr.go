package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"weir/server"
)

// metricsPath is where metrics are at --http-addr.
const metricsPath = "/metrics"

// metricsAddrFlags are the flags of serve for metrics at an address of their own,
// so that who scrapes them need not reach anything else.
type metricsAddrFlags struct {
	addr, path string
}

func (m *metricsAddrFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&m.addr, "metrics-addr", "", "where to serve metrics, and nothing else, in plain text: host:port or unix:PATH (default: nowhere; they are at /metrics of --http-addr anyway)")
	f.StringVar(&m.path, "metrics-path", metricsPath, "the path of metrics at --metrics-addr")
}

func (m *metricsAddrFlags) complete(f *pflag.FlagSet) error {
	switch on := f.Lookup("metrics"); {
	case m.addr == "" && f.Changed("metrics-path"):
		return usagef("--metrics-path is for --metrics-addr, which is not given; at --http-addr it is %s", metricsPath)
	case m.addr == "":
		return nil
	case on != nil && on.Value.String() == "off":
		return usagef("--metrics-addr %s: there are no metrics with --metrics off", m.addr)
	case !strings.HasPrefix(m.path, "/"):
		return usagef("--metrics-path %q: it begins with a slash, such as %s", m.path, metricsPath)
	}
	return checkAddr("--metrics-addr", m.addr)
}

// serve serves them there until stop, as --http-addr has them. The address is
// that listened on; empty: nowhere.
func (m *metricsAddrFlags) serve(ctx context.Context, background *errgroup.Group, web http.Handler, log *slog.Logger) (addr string, stop func(), err error) {
	if m.addr == "" {
		return "", func() {}, nil
	}
	listener, err := listen(ctx, m.addr)
	if err != nil {
		return "", nil, fmt.Errorf("serving metrics (--metrics-addr): %w", err)
	}
	s := &http.Server{
		Handler:           m.only(web),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    httpHeaders,
		ErrorLog:          server.HTTPErrorLog(log),
	}
	background.Go(func() error {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics (--metrics-addr): %w", err)
		}
		return nil
	})
	return boundAddr(m.addr, listener), func() { _ = s.Close() }, nil
}

// only lets nothing but the metrics through.
func (m *metricsAddrFlags) only(web http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != m.path {
			http.Error(w, "metrics are at "+m.path, http.StatusNotFound)
			return
		}
		u := *r.URL
		u.Path, u.RawPath = metricsPath, ""
		inner := *r
		inner.URL = &u
		web.ServeHTTP(w, &inner)
	})
}

// announce says where they are.
func (m *metricsAddrFlags) announce(w io.Writer, addr string) {
	if addr != "" {
		fmt.Fprintf(w, "  metrics %s  (%s)\n", addr, m.path)
	}
}
