package main

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	weirv1 "weir/api/weir/v1"
)

// operatorFlags are those of commands that call a server's methods for operators.
type operatorFlags struct {
	addr, token, tokenFile string
	insecureToken          bool
	timeout                time.Duration
	tls                    clientTLSFlags
}

func (o *operatorFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.addr, "addr", defaultAddr, "the server's gRPC address: host:port or unix:PATH")
	f.StringVar(&o.token, "token", "", "the server's admin token; the environment or a file is safer (default WEIR_ADMIN_TOKEN)")
	f.StringVar(&o.tokenFile, "token-file", "", "a file with the token")
	f.BoolVar(&o.insecureToken, "insecure-token", false, "show the token also in plain text to another machine, where whoever is on the way reads it")
	f.DurationVar(&o.timeout, "timeout", 5*time.Second, "how long to wait for an answer")
	o.tls.addGRPCFlags(f)
}

// with calls do with a connection, and a context that shows the token.
func (o *operatorFlags) with(ctx context.Context, do func(context.Context, weirv1.WeirServiceClient) error) error {
	if o.timeout <= 0 {
		return usagef("--timeout %v: it is over 0", o.timeout)
	}
	var options []grpc.DialOption
	token, err := o.readToken()
	if err != nil {
		return err
	}
	if token != "" {
		if !o.tls.given() && !o.insecureToken && !onThisMachine(o.addr) {
			return usagef("the token would go to %s in plain text: speak TLS (--tls), or say --insecure-token", o.addr)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := connect(o.addr, &o.tls, options...)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := do(ctx, weirv1.NewWeirServiceClient(conn)); err != nil {
		return askFailed(conn, o.addr, &o.tls, err)
	}
	return nil
}

func (o *operatorFlags) readToken() (string, error) {
	switch {
	case o.token != "" && o.tokenFile != "":
		return "", usagef("--token and --token-file exclude each other")
	case o.tokenFile != "":
		token, err := readToken(o.tokenFile)
		if err != nil {
			return "", usagef("--token-file: %w", err)
		}
		return token, nil
	case o.token != "":
		return o.token, nil
	}
	return strings.TrimSpace(os.Getenv("WEIR_ADMIN_TOKEN")), nil
}

// onThisMachine tells whether what goes to the address stays on this machine.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return strings.HasPrefix(addr, "unix:")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost"
}

// bearer is a token that each call shows. Where it may go was looked at before.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }
