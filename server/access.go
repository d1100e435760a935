package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// AccessOptions say who may call what is an operator's. The zero value is the
// default: callers of this machine, and those whose certificate the server checked.
type AccessOptions struct {
	Token string // of MinToken bytes at least: who shows it may, and being on this machine is not enough; "": there is none
}

// MinToken is the shortest token, in bytes: a shorter one can be guessed.
const MinToken = 16

// Access tells operators from other callers. An operator is who shows the token,
// or has a client certificate that the server checked; where there is no token,
// also who calls from this machine, unless it speaks for somebody else: a page in a
// browser, or a proxy. It is safe for concurrent use.
type Access struct {
	token *[sha256.Size]byte // its digest; nil: there is none
}

// NewAccess returns the access of these options. It fails if the token is one that
// no caller could show, or anybody could guess.
func NewAccess(opts AccessOptions) (*Access, error) {
	if opts.Token == "" {
		return &Access{}, nil
	}
	if len(opts.Token) < MinToken {
		return nil, fmt.Errorf("the admin token has %d bytes; it needs %d at least, such as those of `openssl rand -hex 24`", len(opts.Token), MinToken)
	}
	for _, c := range []byte(opts.Token) {
		if c <= ' ' || c >= 0x7f {
			return nil, fmt.Errorf("the admin token has a blank, or a character that is not ASCII, which no header carries; make one by `openssl rand -hex 24`")
		}
	}
	sum := sha256.Sum256([]byte(opts.Token))
	return &Access{token: &sum}, nil
}

// forOperators tells whether a gRPC method is theirs: of weir.v1, all that are not
// named here, also those that are yet to come.
func forOperators(method string) bool {
	switch method {
	case weirv1.WeirService_Check_FullMethodName, weirv1.WeirService_CheckBatch_FullMethodName,
		weirv1.WeirService_Peek_FullMethodName, weirv1.WeirService_Explain_FullMethodName:
		return false
	}
	return strings.HasPrefix(method, "/"+weirv1.WeirService_ServiceDesc.ServiceName+"/")
}

// caller is what is known of who calls.
type caller struct {
	what    string // they call, for the error
	tokens  []string
	tls     *tls.ConnectionState // nil: plain text
	foreign string               // why they may speak for somebody who is not on this machine; "": they do not
}

// check returns nil for an operator, else a gRPC status that says what to do.
func (a *Access) check(c *caller) error {
	if c.tls != nil && len(c.tls.VerifiedChains) > 0 {
		return nil
	}
	if a == nil || a.token == nil {
		if c.foreign == "" {
			return nil
		}
		return grpcstatus.Errorf(codes.PermissionDenied, "%s is for operators, and without an admin token the server lets them in from its own machine only; "+
			"%s: start it with --admin-token or --admin-token-file, and show the token", c.what, c.foreign)
	}
	if len(c.tokens) == 0 {
		return grpcstatus.Errorf(codes.Unauthenticated, "%s is for operators: show the server's admin token, as `authorization: Bearer TOKEN` (the command line: --token or WEIR_ADMIN_TOKEN)", c.what)
	}
	if len(c.tokens) == 1 {
		if scheme, token, ok := strings.Cut(c.tokens[0], " "); ok && strings.EqualFold(scheme, "bearer") {
			sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
			if subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 {
				return nil
			}
		}
	}
	return grpcstatus.Errorf(codes.Unauthenticated, "%s is for operators, and what was shown is not the server's admin token (--admin-token): it is shown as `authorization: Bearer TOKEN`", c.what)
}

// unary keeps others than operators from the unary methods that are theirs.
func (a *Access) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if forOperators(info.FullMethod) {
		if err := a.check(grpcCaller(ctx, info.FullMethod)); err != nil {
			return nil, err
		}
	}
	return handler(ctx, req)
}

// stream does so for those that stream.
func (a *Access) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if forOperators(info.FullMethod) {
		if err := a.check(grpcCaller(stream.Context(), info.FullMethod)); err != nil {
			return err
		}
	}
	return handler(srv, stream)
}

func grpcCaller(ctx context.Context, method string) *caller {
	c := &caller{what: method[strings.LastIndexByte(method, '/')+1:]}
	headers, _ := metadata.FromIncomingContext(ctx)
	c.tokens = headers.Get("authorization")
	p, ok := peer.FromContext(ctx)
	if !ok {
		c.foreign = "where the call comes from is not known"
		return c
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		c.tls = &info.State
	}
	c.foreign = fromElsewhere(p.Addr)
	for name := range headers {
		switch {
		case c.foreign != "":
		case ofProxies(name):
			c.foreign = fmt.Sprintf("the call came by a proxy (%s)", name)
		case name == "origin":
			c.foreign = "the call is of a page in a browser"
		}
	}
	return c
}

// lets is check for a request over HTTP.
func (a *Access) lets(r *http.Request, what string) error {
	c := &caller{what: what, tokens: r.Header.Values("Authorization"), tls: r.TLS, foreign: fromElsewhere(httpPeer(r))}
	if c.foreign == "" {
		c.foreign = ofAnotherSite(r)
	}
	return a.check(c)
}

// Operators serves the handler to operators only; what is its name in errors.
func (a *Access) Operators(what string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.lets(r, what); err != nil {
			st := grpcstatus.Convert(err)
			challenge(w, st.Code())
			http.Error(w, st.Message(), httpStatus(st.Code()))
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// challenge adds the header that a 401 must have.
func challenge(w http.ResponseWriter, code codes.Code) {
	if code == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
}

// httpPeer is the address that a request came from: of a unix socket it has none.
func httpPeer(r *http.Request) net.Addr {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return local
	}
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(addr)
}

// fromElsewhere says why an address is not one of this machine; "": it is.
func fromElsewhere(addr net.Addr) string {
	if addr == nil {
		return "where the call comes from is not known"
	}
	switch addr.Network() {
	case "unix", "bufconn": // the second is a connection within the process
		return ""
	}
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case !ok || !tcp.IP.IsLoopback():
		return fmt.Sprintf("the call comes from %s", addr)
	case tcp.IP.Equal(net.IPv4(127, 0, 0, 6)):
		return "the call comes from 127.0.0.6, as whatever Istio's sidecar lets in does"
	}
	return ""
}

// ofProxies tells whether proxies add such a header (in lower case): then the call
// may be anybody's.
func ofProxies(name string) bool {
	switch name {
	case "forwarded", "via", "x-real-ip":
		return true
	}
	return strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "x-envoy-")
}

// ofAnotherSite says why a request of this machine may be somebody else's: of a
// page in a browser here that comes from another site, also one whose name was
// made to mean this machine (DNS rebinding), or of who is behind a proxy; "": it
// is not.
func ofAnotherSite(r *http.Request) string {
	for name := range r.Header {
		if ofProxies(strings.ToLower(name)) {
			return fmt.Sprintf("the call came by a proxy (%s)", name)
		}
	}
	if !loopbackName(hostOf(r.Host)) {
		return fmt.Sprintf("the call is for the host %q, not for localhost", r.Host)
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return "the call is of a page of another site"
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host || u.Scheme != schemeOf(r) {
			return fmt.Sprintf("the call is of a page of another site (%q)", origin)
		}
	}
	return ""
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func loopbackName(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}
