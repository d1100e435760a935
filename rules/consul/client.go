package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	consulapi "github.com/hashicorp/consul/api"

	"weir/rules/kv"
)

// Options say which Consul to talk to, and how. What is left out is as Consul's
// own environment variables have it (CONSUL_HTTP_ADDR and so on).
type Options struct {
	Addr          string // host:port of an agent; "": CONSUL_HTTP_ADDR, else DefaultAddr
	TLS           bool   // HTTPS, also where CONSUL_HTTP_SSL does not say so
	Token         string // of the ACL system
	TokenFile     string // a file with the token, read anew for each request; it goes before Token
	CAFile        string // whom to trust, beside CAPath; neither: whom the system trusts
	CAPath        string
	ClientCert    string // shown to Consul, with ClientKey
	ClientKey     string
	TLSServerName string // that the certificate must have; "": the host of the address
	Datacenter    string // "": the agent's
	Namespace     string // Consul Enterprise
	Partition     string // Consul Enterprise

	Logger *slog.Logger // nil: none
}

// Defaults of an address.
const (
	DefaultAddr = "127.0.0.1:" + defaultPort
	defaultPort = "8500"
)

// ParseURL reads a URL of rules in Consul: consul://host:port/prefix, or
// consul+https:// for TLS, each with the port 8500 by default. Without a host it
// is the Consul that the environment says; without a prefix, kv.DefaultPrefix.
func ParseURL(url string) (options Options, prefix string, err error) {
	l, err := kv.ParseURL(url, "consul", defaultPort)
	if err != nil {
		return options, "", err
	}
	if len(l.Hosts) > 1 {
		return options, "", errors.New("only one address is wanted, that of an agent of Consul, which knows the servers")
	}
	if len(l.Hosts) == 1 {
		options.Addr = l.Hosts[0]
	}
	options.TLS = l.TLS
	return options, l.Prefix, nil
}

// client is a client of Consul's API that can be closed.
type client struct {
	*consulapi.Client
	http  *http.Client
	token *token
	addr  string // for errors
}

// newClient returns a client that connects to nothing yet. It fails if the options or
// the environment make no sense, or name files that cannot be read.
func newClient(o Options) (*client, error) {
	for _, name := range []string{consulapi.HTTPSSLEnvName, consulapi.HTTPSSLVerifyEnvName} {
		// Consul's client would print a warning, and go on without.
		if text := os.Getenv(name); text != "" {
			if _, err := strconv.ParseBool(text); err != nil {
				return nil, fmt.Errorf("%s is %q: true or false is wanted", name, text)
			}
		}
	}
	config := consulapi.DefaultConfig()
	// On a connection that was used before, a lost request is sent once more,
	// unseen: a blocking query would wait for an index that a Consul which began
	// anew is far from. New connections, of which there are few, fail instead.
	config.Transport.DisableKeepAlives = true
	config.Address = cmp.Or(o.Addr, os.Getenv(consulapi.HTTPAddrEnvName), DefaultAddr)
	if o.TLS {
		config.Scheme = "https"
	}
	if strings.Contains(config.Address, "@") {
		return nil, errors.New("the address of Consul has an @: user and password are given by CONSUL_HTTP_AUTH")
	}
	token, err := newToken(o)
	if err != nil {
		return nil, err
	}
	config.TokenFile, config.Token = token.path, token.get()
	config.Datacenter = o.Datacenter
	config.Namespace = cmp.Or(o.Namespace, config.Namespace)
	config.Partition = cmp.Or(o.Partition, config.Partition)
	tls := &config.TLSConfig
	tls.CAFile, tls.CAPath = cmp.Or(o.CAFile, tls.CAFile), cmp.Or(o.CAPath, tls.CAPath)
	tls.CertFile, tls.KeyFile = cmp.Or(o.ClientCert, tls.CertFile), cmp.Or(o.ClientKey, tls.KeyFile)
	tls.Address = cmp.Or(o.TLSServerName, tls.Address)

	c := &client{token: token, addr: config.Address}
	if !strings.Contains(c.addr, "://") {
		c.addr = config.Scheme + "://" + c.addr
	}
	if path, ok := strings.CutPrefix(config.Address, "unix://"); ok {
		// Consul's client would bring an http.Client of its own, without the token.
		config.Address = "localhost"
		config.Transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	if config.Transport.TLSClientConfig, err = consulapi.SetupTLSConfig(tls); err != nil {
		return nil, fmt.Errorf("TLS to Consul at %s: %w", c.addr, err)
	}
	// With HTTP/2 all requests would share a connection, and go on with one that is
	// dead; with HTTP/1 it ends with the request that had no answer.
	config.Transport.ForceAttemptHTTP2 = false
	c.http = &http.Client{
		Transport: &authorized{config.Transport, token},
		// A token must not go wherever an answer says; and a PUT that was redirected
		// would become a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	config.HttpClient = c.http
	if c.Client, err = consulapi.NewClient(config); err != nil {
		return nil, fmt.Errorf("the client of Consul at %s: %w", c.addr, err)
	}
	return c, nil
}

// close ends connections that nothing uses.
func (c *client) close() { c.http.CloseIdleConnections() }

// askFirst is the size of a request from which on Consul is asked whether it takes
// it. It answers one that is too large without reading it, and if that takes long,
// all that the sender learns is that the connection was reset.
const askFirst = 128 << 10

// authorized adds the token to each request.
type authorized struct {
	*http.Transport
	token *token
}

func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if token := a.token.get(); token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if r.ContentLength >= askFirst {
		r.Header.Set("Expect", "100-continue")
	}
	return a.Transport.RoundTrip(r)
}

// token is a secret, or a file that has it.
type token struct {
	path string // "": it does not change
	mu   sync.Mutex
	last string
}

// newToken looks for a token where Consul's own tools do, in their order.
func newToken(o Options) (*token, error) {
	t := &token{}
	switch {
	case o.TokenFile != "":
		t.path = o.TokenFile
	case o.Token != "":
		t.last = o.Token
	default:
		t.path, t.last = os.Getenv(consulapi.HTTPTokenFileEnvName), os.Getenv(consulapi.HTTPTokenEnvName)
	}
	if t.path == "" {
		return t, nil
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		return nil, fmt.Errorf("reading Consul's token: %w", err)
	}
	if t.last = strings.TrimSpace(string(text)); t.last == "" {
		return nil, fmt.Errorf("reading Consul's token: %s is empty", t.path)
	}
	return t, nil
}

// get returns the token that the file has now: secrets are rotated. A file that
// is being replaced may be away, or empty; then it is the last one.
func (t *token) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.path != "" {
		if text, err := os.ReadFile(t.path); err == nil {
			t.last = cmp.Or(strings.TrimSpace(string(text)), t.last)
		}
	}
	return t.last
}
