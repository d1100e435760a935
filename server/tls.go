package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// CertificateOptions say what the servers show, and whom they let in. CertFile
// and KeyFile are required; files are PEM.
type CertificateOptions struct {
	CertFile     string        // the certificate, and those between it and its authority
	KeyFile      string        // its key, not encrypted
	ClientCAFile string        // authorities of clients' certificates; "": clients need none
	ClientNames  []ClientName  // what a client's certificate must have one of; none: any that an authority signed
	Interval     time.Duration // how often Run looks for other files; 0: 1 s
	Logger       *slog.Logger  // nil: none
}

// Certificates are what TLS needs, and stay what the files say while Run runs.
type Certificates struct {
	opts    CertificateOptions
	log     *slog.Logger
	current atomic.Pointer[loaded]
}

// loaded is what the files said when they were read.
type loaded struct {
	sum    [sha256.Size]byte // of all files
	config *tls.Config
	leaf   *x509.Certificate
}

// LoadCertificates reads the files. The error says which of them is wrong, and
// how.
func LoadCertificates(opts CertificateOptions) (*Certificates, error) {
	c := &Certificates{opts: opts, log: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))}
	c.opts.Interval = cmp.Or(opts.Interval, time.Second)
	files, err := c.read()
	if err != nil {
		return nil, err
	}
	first, err := c.parse(files)
	if err != nil {
		return nil, err
	}
	c.current.Store(first)
	if err := validNow(first.leaf); err != nil {
		c.log.Warn("clients refuse the certificate", "file", opts.CertFile, "error", err)
	}
	return c, nil
}

// Run takes the files again when they have changed, for the handshakes from then
// on, until ctx is done. They must be the same for an interval, so that what is
// being written is not taken half. What cannot be used is logged once, and what
// was before stays.
func (c *Certificates) Run(ctx context.Context) {
	tick := time.NewTicker(c.opts.Interval)
	defer tick.Stop()
	r := reload{Certificates: c, expired: validNow(c.current.Load().leaf) != nil}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.look()
		}
	}
}

// reload is what Run remembers from one look to the next.
type reload struct {
	*Certificates
	seen    [sha256.Size]byte // the files at the last look
	problem string            // with them, as was logged
	expired bool              // was logged of what is in force
}

func (r *reload) look() {
	files, err := r.read()
	sum := files.sum()
	settled := err == nil && sum == r.seen
	r.seen = sum
	switch {
	case err != nil:
		r.failed(err)
	case sum == r.current.Load().sum:
		r.problem = "" // what is in force has come back
	case settled:
		next, err := r.parse(files)
		if err == nil {
			err = validNow(next.leaf)
		}
		if err != nil {
			r.failed(err)
			break
		}
		r.current.Store(next)
		r.problem, r.expired = "", false
		r.log.Info("certificates loaded", "file", r.opts.CertFile, "serial", next.leaf.SerialNumber.Text(16), "expires", next.leaf.NotAfter)
	}
	if err := validNow(r.current.Load().leaf); err != nil && !r.expired {
		r.expired = true
		r.log.Warn("clients refuse the certificate", "file", r.opts.CertFile, "error", err)
	}
}

func (r *reload) failed(err error) {
	if r.problem != err.Error() {
		r.problem = err.Error()
		r.log.Error("certificates cannot be used, those before stay", "error", err)
	}
}

// certificateFiles are the contents of the files.
type certificateFiles struct{ cert, key, clientCA []byte }

func (f certificateFiles) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, text := range [][]byte{f.cert, f.key, f.clientCA} {
		one := sha256.Sum256(text)
		h.Write(one[:])
	}
	h.Sum(sum[:0])
	return sum
}

func (c *Certificates) read() (f certificateFiles, err error) {
	for _, file := range []struct {
		what, path string
		to         *[]byte
	}{{"certificate", c.opts.CertFile, &f.cert}, {"key", c.opts.KeyFile, &f.key}, {"client CA", c.opts.ClientCAFile, &f.clientCA}} {
		if file.path == "" {
			continue
		}
		if *file.to, err = readRegular(file.path); err != nil {
			return certificateFiles{}, fmt.Errorf("reading the %s: %w", file.what, err)
		}
	}
	return f, nil
}

// maxPEM is more than any bundle of authorities has.
const maxPEM = 16 << 20

// readRegular reads no pipe, whose writer it would wait for, in vain for a stop
// too.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxPEM:
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxPEM>>20)
	}
	return io.ReadAll(f)
}

func (c *Certificates) parse(f certificateFiles) (*loaded, error) {
	chain, err := parseCertificates(f.cert)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", c.opts.CertFile, err)
	}
	if bytes.Contains(f.key, []byte("ENCRYPTED")) {
		return nil, fmt.Errorf("key %s: it is encrypted, and there is nobody to ask for the password; decrypt it (openssl pkey)", c.opts.KeyFile)
	}
	pair, err := tls.X509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("key %s, for the certificate %s: %s", c.opts.KeyFile, c.opts.CertFile, strings.TrimPrefix(err.Error(), "tls: "))
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS12,
		// A resumed session would be one of the certificates before. Connections
		// are few and long, and do without.
		SessionTicketsDisabled: true,
	}
	if c.opts.ClientCAFile != "" {
		authorities, err := parseCertificates(f.clientCA)
		if err != nil {
			return nil, fmt.Errorf("client CA %s: %w", c.opts.ClientCAFile, err)
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		for _, authority := range authorities {
			config.ClientCAs.AddCert(authority)
		}
		config.VerifyConnection = func(s tls.ConnectionState) error { return allowed(c.opts.ClientNames, s.PeerCertificates[0]) }
	}
	return &loaded{f.sum(), config, chain[0]}, nil
}

// parseCertificates returns all certificates of a file. A file of which a part is
// no certificate, or is missing, is refused as a whole.
func parseCertificates(text []byte) (certs []*x509.Certificate, err error) {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for blocks := 1; ; blocks++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			if blocks <= begun {
				return nil, fmt.Errorf("block %d of %d is cut off or is not PEM", blocks, begun)
			}
			break
		}
		if block.Type != "CERTIFICATE" { // the key may be in the same file
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("block %d: %s", blocks, strings.TrimPrefix(err.Error(), "x509: "))
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it; it is a PEM file that has -----BEGIN CERTIFICATE-----")
	}
	return certs, nil
}

func validNow(cert *x509.Certificate) error {
	now := time.Now()
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("the certificate has expired at %s", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", cert.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Config returns a configuration for servers that always has the current
// certificates. The protocols are those of ALPN, the preferred one first.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.current.Load().config.Clone()
			config.NextProtos = protocols
			return config, nil
		},
	}
}

// NotAfter is when the certificate that is shown now ends.
func (c *Certificates) NotAfter() time.Time { return c.current.Load().leaf.NotAfter }

// Mutual tells whether clients need a certificate.
func (c *Certificates) Mutual() bool { return c.opts.ClientCAFile != "" }

// credentials are those of the gRPC server.
func (c *Certificates) credentials() credentials.TransportCredentials {
	return &loggedHandshakes{credentials.NewTLS(c.Config("h2")), c.log}
}

// loggedHandshakes tells of handshakes that failed, which grpc does not. For
// debugging only: strangers may cause any number of them.
type loggedHandshakes struct {
	credentials.TransportCredentials
	log *slog.Logger
}

func (l *loggedHandshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		plain := new(tls.RecordHeaderError)
		if errors.As(err, plain) {
			err = fmt.Errorf("%w; the client may speak plain text", err)
		}
		l.log.Debug("TLS handshake failed", "server", "gRPC", "client", raw.RemoteAddr(), "error", err)
	}
	return conn, info, err
}

func (l *loggedHandshakes) Clone() credentials.TransportCredentials {
	return &loggedHandshakes{l.TransportCredentials.Clone(), l.log}
}

// HTTPErrorLog is for http.Server: warnings, but for failed handshakes, which
// strangers may cause any number of.
func HTTPErrorLog(logger *slog.Logger) *log.Logger {
	return log.New(httpErrors{logger}, "", 0)
}

type httpErrors struct{ log *slog.Logger }

func (h httpErrors) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if from, ok := strings.CutPrefix(text, "http: TLS handshake error from "); ok {
		client, err, _ := strings.Cut(from, ": ")
		h.log.Debug("TLS handshake failed", "server", "HTTP", "client", client, "error", err)
	} else {
		h.log.Warn(text)
	}
	return len(line), nil
}
