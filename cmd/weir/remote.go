package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"weir/rules"
	"weir/rules/consul"
	"weir/rules/etcd"
	"weir/rules/kv"
	"weir/rules/xds"
)

// remoteFlags say how to reach Consul, etcd and xDS, beside the address.
type remoteFlags struct {
	consul consul.Options
	etcd   etcd.Options
	xds    xds.Options
}

func (r *remoteFlags) addFlags(f *pflag.FlagSet) {
	r.addStoreFlags(f)
	f.StringVar(&r.xds.NodeID, "xds-node-id", "", "xDS: this node's id (default envoy-ratelimit)")
	f.StringVar(&r.xds.CAFile, "xds-ca-file", "", "xDS: certificates that sign the server's, with xds+tls:// (default: the system's)")
	f.StringVar(&r.xds.CertFile, "xds-cert-file", "", "xDS: this client's certificate")
	f.StringVar(&r.xds.KeyFile, "xds-key-file", "", "xDS: its key")
	f.StringVar(&r.xds.ServerName, "xds-tls-server-name", "", "xDS: the name in the server's certificate (default: the host)")
}

// addStoreFlags adds those of what can be pushed to.
func (r *remoteFlags) addStoreFlags(f *pflag.FlagSet) {
	f.StringVar(&r.consul.Token, "consul-token", "", "Consul: an ACL token; a file is safer (default CONSUL_HTTP_TOKEN)")
	f.StringVar(&r.consul.TokenFile, "consul-token-file", "", "Consul: a file with an ACL token (default CONSUL_HTTP_TOKEN_FILE)")
	f.StringVar(&r.consul.CAFile, "consul-ca-file", "", "Consul: certificates that sign the agent's, with consul+https:// (default CONSUL_CACERT)")
	f.StringVar(&r.consul.CAPath, "consul-ca-path", "", "Consul: a folder of such certificates (default CONSUL_CAPATH)")
	f.StringVar(&r.consul.ClientCert, "consul-client-cert", "", "Consul: this client's certificate (default CONSUL_CLIENT_CERT)")
	f.StringVar(&r.consul.ClientKey, "consul-client-key", "", "Consul: its key (default CONSUL_CLIENT_KEY)")
	f.StringVar(&r.consul.TLSServerName, "consul-tls-server-name", "", "Consul: the name in the agent's certificate (default CONSUL_TLS_SERVER_NAME)")
	f.StringVar(&r.consul.Datacenter, "consul-datacenter", "", "Consul: the datacentre (default: the agent's)")
	f.StringVar(&r.consul.Namespace, "consul-namespace", "", "Consul Enterprise: the namespace (default CONSUL_NAMESPACE)")
	f.StringVar(&r.consul.Partition, "consul-partition", "", "Consul Enterprise: the admin partition (default CONSUL_PARTITION)")
	f.StringVar(&r.etcd.User, "etcd-user", "", "etcd: NAME, or NAME:PASSWORD (default ETCDCTL_USER, ETCDCTL_PASSWORD)")
	f.StringVar(&r.etcd.CAFile, "etcd-ca-file", "", "etcd: certificates that sign the server's, with etcd+https:// (default ETCDCTL_CACERT)")
	f.StringVar(&r.etcd.CertFile, "etcd-cert-file", "", "etcd: this client's certificate (default ETCDCTL_CERT)")
	f.StringVar(&r.etcd.KeyFile, "etcd-key-file", "", "etcd: its key (default ETCDCTL_KEY)")
	f.StringVar(&r.etcd.ServerName, "etcd-tls-server-name", "", "etcd: the name in the server's certificate (default: the host)")
}

// checkRemote says what is wrong with the URL of a source.
func checkRemote(url string) (err error) {
	switch kindOf(url) {
	case "consul":
		_, _, err = consul.ParseURL(url)
	case "etcd":
		_, _, err = etcd.ParseURL(url)
	case "xds":
		_, _, err = xds.ParseURL(url)
	default:
		err = fmt.Errorf("unknown kind of source; it is a file or a folder, consul://host:port/PREFIX, etcd://host:port/PREFIX and xds://host:port")
	}
	return err
}

// kindOf is consul of consul://… and consul+https://….
func kindOf(url string) string {
	scheme, _, _ := strings.Cut(url, "://")
	kind, _, _ := strings.Cut(scheme, "+")
	return kind
}

// open returns the source of a URL that checkRemote found nothing wrong with, and
// what closes it.
func (r *remoteFlags) open(url string, log *slog.Logger) (rules.Source, func(), error) {
	if kindOf(url) == "xds" {
		o := r.xds
		o.Logger = log
		src, err := xds.New(url, o)
		return src, func() {}, err
	}
	s, err := r.openStore(url)
	if err != nil {
		return nil, nil, err
	}
	return kv.NewSource(kv.SourceOptions{Store: s.Store, Prefix: s.prefix, URL: s.url, Logger: log}), s.close, nil
}

// openedStore is a key-value store that holds rules.
type openedStore struct {
	kv.Store
	url, prefix string        // the URL has the prefix in it, also where it was left to its default
	consul      *consul.Store // nil: it is etcd
	close       func()
}

// openStore returns the store of a URL, to which it connects at the first use.
func (r *remoteFlags) openStore(url string) (*openedStore, error) {
	if kindOf(url) == "etcd" {
		return r.openEtcd(url)
	}
	at, prefix, err := consul.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o := r.consul
	o.Addr, o.TLS = at.Addr, at.TLS
	store, err := consul.New(o)
	if err != nil {
		return nil, err
	}
	if o.Addr == "" { // as the environment says: shown, for there may be several
		_, host, ok := strings.Cut(store.Addr(), "://")
		if !ok {
			host = store.Addr()
		}
		url = "consul://" + host
	}
	return &openedStore{Store: store, url: withPrefix(url, prefix), prefix: prefix, consul: store, close: func() { store.Close() }}, nil
}

func (r *remoteFlags) openEtcd(url string) (*openedStore, error) {
	at, prefix, err := etcd.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o := r.etcd
	o.Endpoints, o.TLS = at.Endpoints, at.TLS
	if name, password, ok := strings.Cut(o.User, ":"); ok {
		o.User, o.Password = name, password
	}
	store, err := etcd.New(o)
	if err != nil {
		return nil, err
	}
	return &openedStore{Store: store, url: withPrefix(url, prefix), prefix: prefix, close: func() { store.Close() }}, nil
}

// withPrefix is the URL with the prefix, which it may have left to its default.
func withPrefix(url, prefix string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + "/" + prefix
}

// keepRegistered has this instance in Consul's catalog until ctx is done, which
// is when a stop begins.
func (c *serveConfig) keepRegistered(ctx context.Context, grpcAddr, httpAddr string, log *slog.Logger) error {
	at, _, err := consul.ParseURL(c.register)
	if err != nil {
		return err
	}
	o := c.remote.consul
	o.Addr, o.TLS, o.Logger = at.Addr, at.TLS, log
	if strings.HasPrefix(httpAddr, "unix:") {
		httpAddr = ""
	}
	return consul.Register(ctx, o, consul.Registration{
		Service: c.registerService, GRPCAddr: cmp.Or(c.registerAddr, grpcAddr), HTTPAddr: httpAddr, Version: versionText(), TLS: c.tls.cert != "",
	})
}
