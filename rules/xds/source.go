// Package xds reads rules from a control plane, such as Envoy Gateway, by
// state-of-the-world ADS: one stream, on which the server pushes all of its
// ratelimit.config.ratelimit.v3.RateLimitConfig at each change.
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"weir/rules"
)

// DefaultPort is Envoy Gateway's for rate limits.
const DefaultPort = "18001"

// DefaultNodeID is the one that Envoy Gateway keeps rules for.
const DefaultNodeID = "envoy-ratelimit"

// Options are how to ask. The zero value is fine.
type Options struct {
	NodeID string // whose rules these are, to the server; "": DefaultNodeID

	// TLS is on with xds+tls:// too. The files are PEM, and read anew at each
	// connect, so that they can be replaced.
	TLS               bool
	CAFile            string // who may sign the server's certificate; "": the system's authorities
	CertFile, KeyFile string // the client's own, where the server asks for one; "": none
	ServerName        string // that the server's certificate must have; "": the URL's host

	Logger *slog.Logger // nil: none
}

// Source is a control plane's rules. Each resource is a document in the nested
// spelling, and is called URL/RESOURCE in faults.
type Source struct {
	addr, url string
	options   Options
	times     timings
	log       *slog.Logger
}

var _ rules.Source = (*Source)(nil)

// timings are how long to wait for what. All but reask and quiet are shortened
// at random by up to half, so that many instances do not act as one.
type timings struct {
	pause     time.Duration // before a NACK
	reask     time.Duration // on a new stream, before the server is asked as if nothing were known
	quiet     time.Duration // on a new stream, before the server's silence is told of
	backoff   time.Duration // after a stream, doubled with each further one
	backoffTo time.Duration
}

// ParseURL reads xds://host[:port], or xds+tls://host[:port] for TLS. The port is
// DefaultPort by default.
func ParseURL(text string) (addr string, tls bool, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", false, fmt.Errorf("not a URL such as xds://host:%s", DefaultPort) // it may have a password in it
	}
	fault := func(problem string) (string, bool, error) {
		return "", false, fmt.Errorf("%s: %s", u.Redacted(), problem)
	}
	switch {
	case u.Scheme != "xds" && u.Scheme != "xds+tls":
		return fault("the scheme of a control plane's URL is xds:// or, for TLS, xds+tls://")
	case u.User != nil:
		return fault("a control plane takes no user or password; for a client certificate use xds+tls:// with its files")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fault("nothing may follow host and port; which rules there are is up to the server, by the node id")
	case u.Hostname() == "":
		return fault("there is no host; write " + u.Scheme + "://host:" + DefaultPort)
	}
	port := u.Port()
	if port == "" {
		port = DefaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fault("a port is a number from 1 to 65535")
	}
	return net.JoinHostPort(u.Hostname(), port), u.Scheme == "xds+tls", nil
}

// New returns the source of a URL, as ParseURL reads it. It neither connects nor
// reads files yet; it fails with what can never work.
func New(text string, options Options) (*Source, error) {
	addr, tls, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	options.TLS = options.TLS || tls
	switch {
	case (options.CertFile == "") != (options.KeyFile == ""):
		return nil, errors.New("a client certificate for the control plane needs both its file and the file of its key")
	case !options.TLS && (options.CAFile != "" || options.CertFile != "" || options.ServerName != ""):
		return nil, fmt.Errorf("certificates for a control plane without TLS; write xds+tls://%s", addr)
	}
	if options.NodeID == "" {
		options.NodeID = DefaultNodeID
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	scheme := "xds://"
	if options.TLS {
		scheme = "xds+tls://"
	}
	return &Source{
		addr: addr, url: scheme + addr, options: options, log: options.Logger.With("source", scheme+addr),
		times: timings{pause: time.Second, reask: time.Second, quiet: 10 * time.Second, backoff: 500 * time.Millisecond, backoffTo: 10 * time.Second},
	}, nil
}

// Run is the Source's contract, for a source elsewhere: it always returns nil. No
// resources at all is a set like any other, and clears all rules.
func (s *Source) Run(ctx context.Context, apply func(rules.Snapshot) error) error {
	c := &client{Source: s, apply: apply}
	for failures := 0; ctx.Err() == nil; failures++ {
		if lasting := c.follow(ctx); lasting {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-time.After(jitter(min(s.times.backoff<<min(failures, 10), s.times.backoffTo))):
		}
	}
	return nil
}

func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }
