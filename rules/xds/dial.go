package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// maxMessage bounds a response, in bytes: gRPC's own 4 MiB are some 40,000 rules.
const maxMessage = 64 << 20

// dial prepares a connection, which is for one stream only: each stream resolves
// the host and reads the certificates anew.
//
// A server that is gone without a word is found by the system, within half a
// minute, by TCP's keepalive. gRPC's own would find one that hangs too, but a
// grpc-go server with the default settings, as Envoy Gateway's, hangs up on who
// pings more than once in five minutes: so it comes second.
func (s *Source) dial() (*grpc.ClientConn, error) {
	creds, err := s.credentials()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return grpc.NewClient("dns:///"+s.addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithDisableServiceConfig(),
		// Of several addresses not all instances shall take the first.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}`),
	)
}

func (s *Source) credentials() (credentials.TransportCredentials, error) {
	if !s.options.TLS {
		return insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.options.ServerName}
	if s.options.CAFile != "" {
		pem, err := os.ReadFile(s.options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the authority of the control plane's certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the authority of the control plane's certificate: no certificate in %s; it is to be PEM", s.options.CAFile)
		}
	}
	if s.options.CertFile != "" {
		own, err := tls.LoadX509KeyPair(s.options.CertFile, s.options.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate for the control plane from %s and %s: %w", s.options.CertFile, s.options.KeyFile, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return credentials.NewTLS(config), nil
}

// reason says why there is no stream, with how to mend it where that is known, and
// what kind of failure it is: its words may change with each try.
func (s *Source) reason(err error) (kind, text string) {
	if errors.Is(err, io.EOF) {
		return "ended", "the server ended the stream before it sent rules"
	}
	st, ok := status.FromError(err)
	if !ok {
		return "unprepared", err.Error() // of the certificates' files, with what was being done
	}
	text = "no stream of rules: " + st.Message()
	switch {
	case st.Code() == codes.Unimplemented:
		text += "; the server has no aggregated discovery service: is it the control plane's xDS port?"
	case st.Code() == codes.ResourceExhausted:
		text += fmt.Sprintf("; a set of rules may have %d MiB", maxMessage>>20)
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		text += "; a server without TLS is xds://"
	case brokenOff(text) && !s.options.TLS:
		text += "; if the server has TLS, write xds+tls://"
	case brokenOff(text) && s.options.CertFile == "":
		text += "; does the server want a client certificate?"
	}
	return st.Code().String(), text
}

// brokenOff tells whether a server took the connection, and then not what was
// said on it.
func brokenOff(text string) bool {
	for _, sign := range []string{"error reading server preface", "broken pipe", "connection reset", "certificate required"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
