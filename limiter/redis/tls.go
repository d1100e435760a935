package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// TLSFiles say whom to trust as Redis, and what to show it; the zero value: whom
// the system trusts, and nothing. The files are PEM. They are read again for each
// connection, so that the next one has what was renewed; files that cannot be used
// leave those before in use.
type TLSFiles struct {
	CAFile     string // authorities of the server's certificate, instead of the system's
	CertFile   string // this client's certificate, and those between it and its authority
	KeyFile    string // its key, not encrypted
	ServerName string // what the server's certificate is for; "": the host; AnyName: whatever it says
}

// AnyName is the TLSFiles.ServerName that takes a certificate of any name, as long
// as an authority signed it.
const AnyName = "*"

// errTLSFiles is a file for TLS that cannot be used.
var errTLSFiles = errors.New("TLS to Redis")

// config is the base with what the files say.
func (f *TLSFiles) config(base *tls.Config) (*tls.Config, error) {
	c := base.Clone()
	if f.CAFile != "" {
		text, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: reading the authorities: %w", errTLSFiles, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: %s has no certificate in PEM", errTLSFiles, f.CAFile)
		}
	}
	if f.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: reading the client's certificate %s and its key %s: %w", errTLSFiles, f.CertFile, f.KeyFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch f.ServerName {
	case "":
	case AnyName:
		anyName(c)
	default:
		c.ServerName = f.ServerName
	}
	return c, nil
}

// anyName has the certificate's authorities verified, and not its name.
func anyName(c *tls.Config) {
	if c.InsecureSkipVerify {
		return // not even those
	}
	roots := c.RootCAs
	c.InsecureSkipVerify = true // crypto/tls verifies all or nothing; this is what VerifyConnection is for
	c.VerifyConnection = func(s tls.ConnectionState) error {
		between := x509.NewCertPool()
		for _, cert := range s.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
		return err
	}
}

// dialer opens connections with what the files say then; nil: there are none, and
// go-redis's own will do.
func (f TLSFiles) dialer(o *redis.Options) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	switch {
	case f == TLSFiles{}:
		return nil, nil
	case o.TLSConfig == nil:
		return nil, errors.New("there are certificates for TLS, and the URL says none: rediss://host, or ?tls=true for several hosts")
	case o.TLSConfig.InsecureSkipVerify && f.CAFile != "":
		return nil, errors.New("skip_verify=true takes any certificate, and an authority is given that it should have; leave one of them out")
	case (f.CertFile == "") != (f.KeyFile == ""):
		return nil, errors.New("the client's certificate and its key go together: give --store-cert-file and --store-key-file, or neither")
	}
	base, timeout := o.TLSConfig, o.DialTimeout
	first, err := f.config(base)
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Config] // that could be used
	last.Store(first)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		config, unread := f.config(base)
		if unread == nil {
			last.Store(config)
		}
		conn, err := redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: last.Load()})(ctx, network, addr)
		if err != nil {
			return nil, errors.Join(err, unread)
		}
		return conn, nil
	}, nil
}
