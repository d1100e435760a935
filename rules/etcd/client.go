package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"weir/rules/kv"
)

// Options say which etcd to talk to, and how. What is left out is as etcdctl's
// own environment variables have it (ETCDCTL_ENDPOINTS and so on).
type Options struct {
	Endpoints  []string // host:port each, of one cluster; none: ETCDCTL_ENDPOINTS, else DefaultEndpoint
	TLS        bool     // also if there is none of the files that follow
	User       string   // NAME, or NAME:PASSWORD; "": ETCDCTL_USER
	Password   string   // "": ETCDCTL_PASSWORD
	CAFile     string   // whom to trust; "": ETCDCTL_CACERT, else whom the system trusts
	CertFile   string   // shown to etcd, with KeyFile; "": ETCDCTL_CERT and ETCDCTL_KEY
	KeyFile    string
	ServerName string // that the certificate must have; "": the host of the endpoint
}

// Defaults of an endpoint.
const (
	DefaultEndpoint = "127.0.0.1:" + defaultPort
	defaultPort     = "2379"
)

// ParseURL reads a URL of rules in etcd: etcd://host:port,host:port…/prefix, or
// etcd+https:// for TLS, each with the port 2379 by default. Without a host it is
// the etcd that the environment says; without a prefix, kv.DefaultPrefix.
func ParseURL(url string) (options Options, prefix string, err error) {
	l, err := kv.ParseURL(url, "etcd", defaultPort)
	if err != nil {
		return options, "", err
	}
	return Options{Endpoints: l.Hosts, TLS: l.TLS}, l.Prefix, nil
}

// Times to notice that etcd is away. By default its client waits for a server
// without an end, and up to two minutes before it tries one again.
const (
	patience     = 5 * time.Second  // for an answer
	pingAfter    = 10 * time.Second // without a word on a connection; servers refuse more than one ping in 5 s
	pongWithin   = 3 * time.Second
	reconnectMax = 2 * time.Second
)

// config is the options in the client's terms.
func (o Options) config() (clientv3.Config, error) {
	config := clientv3.Config{
		DialKeepAliveTime:    pingAfter,
		DialKeepAliveTimeout: pongWithin,
		Logger:               zap.NewNop(), // errors are returned
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax},
				MinConnectTimeout: patience,
			}),
			grpc.WithChainUnaryInterceptor(failFast),
		},
	}
	o.User, o.Password = o.credentials()
	if o.User != "" && o.Password == "" {
		return config, fmt.Errorf("user %s of etcd has no password: it is given as NAME:PASSWORD, or by ETCDCTL_PASSWORD", o.User)
	}
	config.Username, config.Password = o.User, o.Password
	var secure bool
	var err error
	if config.Endpoints, secure, err = o.endpoints(); err != nil {
		return config, err
	}
	o.CAFile = cmp.Or(o.CAFile, os.Getenv("ETCDCTL_CACERT"))
	if o.CertFile == "" && o.KeyFile == "" {
		o.CertFile, o.KeyFile = os.Getenv("ETCDCTL_CERT"), os.Getenv("ETCDCTL_KEY")
	}
	if o.TLS || secure || o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" {
		config.TLS, err = o.tls()
		if o.ServerName != "" { // gRPC does not look at the one of a tls.Config
			config.DialOptions = append(config.DialOptions, grpc.WithAuthority(o.ServerName))
		}
	}
	return config, err
}

func (o Options) credentials() (user, password string) {
	user, password = cmp.Or(o.User, os.Getenv("ETCDCTL_USER")), o.Password
	if name, secret, ok := strings.Cut(user, ":"); ok && password == "" {
		return name, secret
	}
	if user == "" {
		return "", ""
	}
	return user, cmp.Or(password, os.Getenv("ETCDCTL_PASSWORD"))
}

// endpoints returns them as host:port, and whether they want TLS.
func (o Options) endpoints() (hosts []string, secure bool, err error) {
	if len(o.Endpoints) > 0 {
		return o.Endpoints, false, nil
	}
	text := os.Getenv("ETCDCTL_ENDPOINTS")
	if text == "" {
		return []string{DefaultEndpoint}, false, nil
	}
	plain := false
	for endpoint := range strings.SplitSeq(text, ",") {
		host := strings.TrimSpace(endpoint)
		if inner, ok := strings.CutPrefix(host, "https://"); ok {
			host, secure = inner, true
		} else {
			host, plain = strings.TrimPrefix(host, "http://"), true
		}
		l, err := kv.ParseURL("etcd://"+strings.TrimSuffix(host, "/"), "etcd", defaultPort)
		if err != nil || len(l.Hosts) == 0 {
			return nil, false, fmt.Errorf("ETCDCTL_ENDPOINTS: host:port, http://host:port or https://host:port are wanted, with commas between them")
		}
		hosts = append(hosts, l.Hosts...)
	}
	if secure && plain {
		return nil, false, errors.New("ETCDCTL_ENDPOINTS: all are https://, or none")
	}
	return hosts, secure, nil
}

func (o Options) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading whom to trust as etcd: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("reading whom to trust as etcd: %s has no certificate in PEM", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		cert, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate to show to etcd (%q) and its key (%q): %w", o.CertFile, o.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config, nil
}

// failFast has a call fail when no server is connected. The client's default is
// to wait for one, and to say then only that a deadline has passed.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.WaitForReady(false))...)
}

// connect returns the client, which it makes at the first use: with a user it
// logs in, for which etcd must be there.
func (s *Store) connect(ctx context.Context) (*clientv3.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.closed {
		return nil, errors.New("the store is closed")
	}
	if s.client != nil {
		return s.client, nil
	}
	// The caller's context is for the login only, and the client keeps the one that
	// it is given.
	lifetime, end := context.WithCancel(context.Background())
	config := s.config
	config.Context = lifetime
	letGo := context.AfterFunc(ctx, end)
	client, err := clientv3.New(config)
	if !letGo() {
		if err == nil {
			_ = client.Close()
		}
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	s.client = client
	return client, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	s.connecting <- struct{}{}
	defer func() { <-s.connecting }()
	s.closed = true
	if s.client == nil {
		return nil
	}
	client := s.client
	s.client = nil
	return client.Close()
}
