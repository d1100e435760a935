package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"weir/server"
)

// tlsFlags are the flags of serve's TLS.
type tlsFlags struct {
	cert, key, clientCA string
	clientSANs          []string
	http                choice

	clientNames []server.ClientName // of clientSANs
}

func (t *tlsFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.cert, "tls-cert", "", "serve gRPC and HTTP with TLS: a PEM file with the certificate, and those between it and its authority; read again when it changes")
	f.StringVar(&t.key, "tls-key", "", "its key, as PEM")
	f.StringVar(&t.clientCA, "tls-client-ca", "", "let in clients only that have a certificate of these authorities (PEM)")
	f.StringArrayVar(&t.clientSANs, "tls-client-san", nil, "and of those only who has this name in it: a DNS name, *.example.com for one label, an IP address, or a URI such as spiffe://example.org/envoy (repeatable)")
	t.http = choice{[]string{"on", "off"}, "on"}
	f.Var(&t.http, "http-tls", "off: HTTP stays plain beside --tls-cert, for probes and scrapers; then give it an address that only they reach. So does --queue-addr")
}

// complete checks that the flags go together.
func (t *tlsFlags) complete(f *pflag.FlagSet) error {
	for _, name := range []string{"tls-cert", "tls-key", "tls-client-ca"} {
		// An empty variable of a script must not let in who has no certificate.
		if flag := f.Lookup(name); flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty; name a file, or leave the flag out", name)
		}
	}
	switch {
	case (t.cert == "") != (t.key == ""):
		return usagef("--tls-cert and --tls-key go together; give both, or neither for plain text")
	case t.cert == "" && t.clientCA != "":
		return usagef("--tls-client-ca: there is no TLS without --tls-cert and --tls-key")
	case t.cert == "" && f.Changed("http-tls"):
		return usagef("--http-tls %s: there is no TLS without --tls-cert and --tls-key", t.http.value)
	case t.clientCA == "" && len(t.clientSANs) > 0:
		return usagef("--tls-client-san: clients need no certificate without --tls-client-ca")
	}
	for _, san := range t.clientSANs {
		name, err := server.ParseClientName(san)
		if err != nil {
			return usagef("--tls-client-san %q: %w", san, err)
		}
		t.clientNames = append(t.clientNames, name)
	}
	return nil
}

// load returns the certificates, which follow their files until ctx is done, or
// nil for plain text.
func (t *tlsFlags) load(ctx context.Context, background *errgroup.Group, log *slog.Logger) (*server.Certificates, error) {
	if t.cert == "" {
		return nil, nil
	}
	certs, err := server.LoadCertificates(server.CertificateOptions{
		CertFile: t.cert, KeyFile: t.key, ClientCAFile: t.clientCA, ClientNames: t.clientNames, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("TLS (--tls-cert, --tls-key, --tls-client-ca): %w", err)
	}
	background.Go(func() error { certs.Run(ctx); return nil })
	return certs, nil
}

// forHTTP are the certificates that HTTP is served with.
func (t *tlsFlags) forHTTP(certs *server.Certificates) *server.Certificates {
	if t.http.value == "off" {
		return nil
	}
	return certs
}

// words tell in the announcement how gRPC and HTTP are served.
func (t *tlsFlags) words() (grpc, http string) {
	switch {
	case t.cert == "":
		return "", ""
	case t.clientCA == "":
		grpc = "TLS; "
	default:
		grpc = "TLS, clients need a certificate; "
	}
	if t.http.value == "off" {
		return grpc, "plain; "
	}
	return grpc, grpc
}

// clientTLSFlags are the flags of commands that ask a server with TLS.
type clientTLSFlags struct {
	on                        bool
	ca, cert, key, serverName string
	prefix                    string // of the flags' names
}

// addFlags adds --PREFIX-ca, --PREFIX-cert, --PREFIX-key and --PREFIX-server-name.
func (t *clientTLSFlags) addFlags(f *pflag.FlagSet, prefix string) {
	t.prefix = prefix
	f.StringVar(&t.ca, prefix+"-ca", "", "with TLS: certificates that sign the server's, as PEM (default: the system's)")
	f.StringVar(&t.cert, prefix+"-cert", "", "with TLS: this client's certificate, as PEM")
	f.StringVar(&t.key, prefix+"-key", "", "with TLS: its key")
	f.StringVar(&t.serverName, prefix+"-server-name", "", "with TLS: the name in the server's certificate (default: the host)")
}

// addGRPCFlags adds --tls and the flags that say more.
func (t *clientTLSFlags) addGRPCFlags(f *pflag.FlagSet) {
	f.BoolVar(&t.on, "tls", false, "speak TLS; the other --tls- flags do so too")
	t.addFlags(f, "tls")
}

// addHTTPFlags adds those of commands that ask instances over HTTP.
func (t *clientTLSFlags) addHTTPFlags(f *pflag.FlagSet) {
	f.BoolVar(&t.on, "instance-tls", false, "ask instances over HTTPS; the other --instance- flags do so too")
	t.addFlags(f, "instance")
}

// httpClient is one for addresses with https and without.
func (t *clientTLSFlags) httpClient() (*http.Client, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true}}, nil
}

// given tells whether one of the flags asks for TLS.
func (t *clientTLSFlags) given() bool {
	return t.on || t.ca != "" || t.cert != "" || t.key != "" || t.serverName != ""
}

// config reads the files.
func (t *clientTLSFlags) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.serverName}
	if (t.cert == "") != (t.key == "") {
		return nil, usagef("--%s-cert and --%s-key go together", t.prefix, t.prefix)
	}
	if t.ca != "" {
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("--%s-ca: %w", t.prefix, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--%s-ca %s: there is no certificate in it", t.prefix, t.ca)
		}
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert %s, --%s-key %s: %w", t.prefix, t.cert, t.prefix, t.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// credentials are those of a gRPC client.
func (t *clientTLSFlags) credentials() (credentials.TransportCredentials, error) {
	if !t.given() {
		return insecure.NewCredentials(), nil
	}
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// hint tells what to do about a connection that failed with the message.
func (t *clientTLSFlags) hint(message string) string {
	has := func(text string) bool { return strings.Contains(message, text) }
	broke := has("error reading server preface") || has("connection reset") || has("broken pipe")
	switch {
	case has("first record does not look like a TLS handshake"):
		return "the server speaks plain text: leave --tls and its like out"
	case t.given() && (has("certificate required") || has("remote error: tls:") || broke): // with TLS 1.3 the reason may not arrive
		return "the server may let in only clients whose certificate it knows: give --tls-cert and --tls-key; its log says more with --log-level debug"
	case has("unknown authority"):
		return "name the authority of the server's certificate by --tls-ca"
	case has("certificate is valid for"), has("doesn't contain any IP SANs"), has("certificate is not valid for any names"):
		return "say by --tls-server-name which name the server's certificate has"
	case broke:
		return "a server that speaks TLS answers so: try --tls"
	}
	return ""
}
