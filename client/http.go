package client

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
)

// HTTPOptions says what Weir is asked about HTTP requests. The zero value is its
// default.
type HTTPOptions struct {
	// Empty: DefaultDomain.
	Domain string
	// What a request is limited by; for none, it passes unasked. nil: two
	// descriptors, those of envoy/envoy.yaml, so that the same rules serve both:
	// endpoint=PATH, and endpoint=PATH, remote_address=ADDRESS. The path is
	// cleaned by nobody: put the handler behind an http.ServeMux that redirects to
	// the clean one, or take the pattern that matched, Request.Pattern.
	Descriptors func(*http.Request) []*weirv1.Descriptor
	// The proxies whose X-Forwarded-For is believed, for the address of the default
	// descriptors; others ask RemoteAddress. nil: none, and a client is the peer of
	// the connection.
	TrustedProxies []netip.Prefix
	// Answers a refused request, after the headers that Weir sends were set; it
	// writes the status. nil: 429 with the body that Weir sends, if any.
	Refused func(http.ResponseWriter, *http.Request, Decision)
	// Put a request that is over the limit of a rule with over_limit: queue into
	// the rule's queue and answer 202, as Weir's ingest does for Envoy. It needs
	// Options.Token, or a client certificate. `weir worker` must reach next past
	// this handler, or what it replays is limited anew. false: such requests are
	// refused, and their turn passes unused.
	Enqueue bool
	// The longest body that is queued, in bytes; longer ones get 413. 0: 1 MiB.
	MaxBody int64
}

// Handler asks Weir about each request, and gives those that may pass to next, with
// the headers that Weir has for the response and for the request; of the latter
// the client's own are removed. The rest are answered here:
//
//	429  over the limit, with the headers and the body that Weir sends; or
//	     not decided, with OnFailure Deny
//	400  INVALID_ARGUMENT: see Check
//	503  not decided, with OnFailure Error; or the client left
func (c *Client) Handler(next http.Handler, o HTTPOptions) http.Handler {
	o.Domain = cmp.Or(o.Domain, DefaultDomain)
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	if o.Descriptors == nil {
		trusted := o.TrustedProxies
		o.Descriptors = func(r *http.Request) []*weirv1.Descriptor { return httpDescriptors(r, trusted) }
	}
	if o.Refused == nil {
		o.Refused = refuse
	}
	return &handler{c, next, o}
}

type handler struct {
	client *Client
	next   http.Handler
	opts   HTTPOptions
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	descriptors := h.opts.Descriptors(r)
	if len(descriptors) == 0 {
		h.next.ServeHTTP(w, withHeaders(r, nil))
		return
	}
	d, err := h.client.Check(r.Context(), h.opts.Domain, descriptors...)
	if err != nil {
		h.fail(w, err)
		return
	}
	if d.Queued() && h.opts.Enqueue {
		h.enqueue(w, r, descriptors, d.Response)
		return
	}
	header := w.Header()
	for _, line := range d.Response.GetHeaders() {
		if name := http.CanonicalHeaderKey(line.GetName()); name == "Content-Type" {
			header.Set(name, string(line.GetValue()))
		} else {
			header.Add(name, string(line.GetValue()))
		}
	}
	if !d.Allowed || d.Queued() {
		h.opts.Refused(w, r, d)
		return
	}
	h.next.ServeHTTP(w, withHeaders(r, d.Response.GetUpstreamHeaders()))
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	if grpcstatus.Code(err) == codes.InvalidArgument {
		http.Error(w, "this request has something that its rate limit cannot be told by", http.StatusBadRequest)
		return
	}
	http.Error(w, "it is not known now whether this request may pass", http.StatusServiceUnavailable)
}

// refuse answers as Envoy does.
func refuse(w http.ResponseWriter, _ *http.Request, d Decision) {
	body := d.Response.GetBody()
	if len(body) > 0 && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(http.StatusTooManyRequests)
	w.Write(body)
}

// claims are the request headers that are Weir's word. Not those of `weir worker`,
// whose upstream this may be.
var claims = [...]string{"X-Weir-Rule", "X-Weir-Limit", "X-Weir-Remaining", "X-Weir-Overflow", "X-Weir-Overflow-Ticket"}

// withHeaders is the request as the upstream gets it. What a client claims in
// Weir's name is removed.
func withHeaders(r *http.Request, add []*weirv1.HttpHeader) *http.Request {
	changes := len(add) > 0
	for _, name := range claims {
		changes = changes || r.Header[name] != nil
	}
	if !changes {
		return r
	}
	r = r.WithContext(r.Context()) // handlers do not change the request that they are given
	r.Header = r.Header.Clone()
	for _, name := range claims {
		delete(r.Header, name)
	}
	for _, line := range add {
		r.Header.Add(line.GetName(), string(line.GetValue()))
	}
	return r
}

func httpDescriptors(r *http.Request, trusted []netip.Prefix) []*weirv1.Descriptor {
	endpoint := r.URL.Path
	return []*weirv1.Descriptor{
		Describe("endpoint", endpoint),
		Describe("endpoint", endpoint, "remote_address", RemoteAddress(r, trusted...)),
	}
}

// RemoteAddress is the address of the client: the peer of the connection, or,
// where that is a trusted proxy, the last address of X-Forwarded-For that is none.
// Proxies append to that header, and clients may send one: only what trusted
// proxies appended is believed.
func RemoteAddress(r *http.Request, trusted ...netip.Prefix) string {
	peer, err := parsePeer(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr // a unix socket: all its clients are one
	}
	if len(trusted) == 0 || !within(peer, trusted) {
		return peer.String()
	}
	last := peer
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		rest := lines[i]
		for more := true; more; {
			var word string
			at := strings.LastIndexByte(rest, ',')
			word, rest, more = rest[at+1:], rest[:max(at, 0)], at >= 0
			addr, err := parsePeer(strings.TrimSpace(word))
			if err != nil {
				return last.String() // no trusted proxy wrote this: it came from the last that is known
			}
			if last = addr; !within(addr, trusted) {
				return addr.String()
			}
		}
	}
	return last.String()
}

// parsePeer reads an address with or without a port. IPv4 in IPv6 is IPv4; a zone
// belongs to this machine.
func parsePeer(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, errors.New("no address")
	}
	return addr.Unmap().WithZone(""), nil
}

func within(addr netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
