package server

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"weir/limiter"
	"weir/rules"
)

// HeaderStyle is a set of dialects of the header hints that an answer carries to
// the client: XRateLimit|IETF sends both. The zero value is XRateLimit.
type HeaderStyle uint8

// The header styles.
const (
	XRateLimit     HeaderStyle = 1 << iota // X-Ratelimit-Limit, -Remaining; when refused -Retry-After and Retry-After
	IETF                                   // RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-10; when refused Retry-After
	IETFPartitions                         // IETF, with a partition key for each counter
	Draft03                                // X-RateLimit-Limit, -Remaining and -Reset, as Envoy's DRAFT_VERSION_03
	NoHeaders
)

var headerStyles = [...]string{"x-ratelimit", "ietf", "ietf-pk", "draft-03", "none"}

// HeaderStyleNames lists the styles as the flag spells them.
func HeaderStyleNames() []string { return headerStyles[:] }

// ParseHeaderStyle returns the style of that name.
func ParseHeaderStyle(name string) (HeaderStyle, error) {
	for i, n := range headerStyles {
		if n == name {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("unknown header style %q", name)
}

// HeaderNames are the names of the XRateLimit headers. An empty name leaves its
// header out. Reset is one that XRateLimit does not have by itself: the seconds
// until the limit is full again or, when refused, until a retry may pass.
type HeaderNames struct{ Limit, Remaining, RetryAfter, Reset string }

// DefaultHeaderNames are the names where no others are wanted.
func DefaultHeaderNames() HeaderNames {
	return HeaderNames{Limit: "X-Ratelimit-Limit", Remaining: "X-Ratelimit-Remaining", RetryAfter: "X-Ratelimit-Retry-After"}
}

// HeaderOptions says which header hints an answer carries to the client. The
// zero value is XRateLimit by its default names for all domains.
type HeaderOptions struct {
	Style    HeaderStyle
	ByDomain map[string]HeaderStyle // instead of Style, for these domains
	Names    *HeaderNames           // of XRateLimit; nil: DefaultHeaderNames
	// Jitter is the most that is added to Retry-After and X-Ratelimit-Retry-After,
	// in whole seconds drawn anew for each refusal, so that clients who were
	// refused together do not come back together.
	Jitter time.Duration
}

// Validate says what of the options cannot be: names that are no names of
// headers, or two styles that send headers of the same name.
func (o *HeaderOptions) Validate() error {
	if err := o.names().validate(); err != nil {
		return err
	}
	if err := o.validateStyle(o.Style); err != nil {
		return err
	}
	for domain, style := range o.ByDomain {
		if err := o.validateStyle(style); err != nil {
			return fmt.Errorf("domain %q: %w", domain, err)
		}
	}
	return nil
}

func (o *HeaderOptions) validateStyle(s HeaderStyle) error {
	switch {
	case s&NoHeaders != 0 && s != NoHeaders:
		return errors.New("none stands alone")
	case s&IETF != 0 && s&IETFPartitions != 0:
		return errors.New("ietf and ietf-pk exclude each other: ietf-pk is ietf with partition keys")
	case s&XRateLimit == 0 || s&Draft03 == 0:
		return nil
	}
	n := o.names()
	for _, name := range []string{n.Limit, n.Remaining, n.RetryAfter, n.Reset} {
		if strings.EqualFold(name, draft03Limit) || strings.EqualFold(name, draft03Remaining) || strings.EqualFold(name, draft03Reset) {
			return fmt.Errorf("x-ratelimit and draft-03 exclude each other: both send %s, for the names of headers have no case; other names for x-ratelimit make room", name)
		}
	}
	return nil
}

func (o *HeaderOptions) names() HeaderNames {
	if o.Names == nil {
		return DefaultHeaderNames()
	}
	return *o.Names
}

// style is the domain's.
func (o *HeaderOptions) style(domain string) HeaderStyle {
	if o.ByDomain != nil {
		if s, ok := o.ByDomain[domain]; ok {
			return cmp.Or(s, XRateLimit)
		}
	}
	return cmp.Or(o.Style, XRateLimit)
}

// reservedHeaders are those that say how a message is framed or typed.
var reservedHeaders = [...]string{
	"connection", "content-encoding", "content-length", "content-type", "date", "host", "keep-alive", "proxy-connection",
	"retry-after", "server", "te", "trailer", "transfer-encoding", "upgrade",
	"ratelimit", "ratelimit-policy",
}

func (n HeaderNames) validate() error {
	names := []string{n.Limit, n.Remaining, n.RetryAfter, n.Reset}
	for i, name := range names {
		if name == "" {
			continue
		}
		if strings.IndexFunc(name, notInToken) >= 0 {
			return fmt.Errorf("%q is no name of a header: letters, digits and !#$%%&'*+-.^_`|~ are", name)
		}
		for _, r := range reservedHeaders {
			if strings.EqualFold(name, r) {
				return fmt.Errorf("%q has a meaning of its own (Retry-After is sent anyway)", name)
			}
		}
		for _, other := range names[:i] {
			if strings.EqualFold(name, other) {
				return fmt.Errorf("%q stands for two headers", name)
			}
		}
	}
	return nil
}

func notInToken(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// addHeaders adds what the client's response is to carry. The told-th hit is the
// one that headers of one limit describe. Retry-After is in whole seconds,
// rounded up, at least 1, and left out when waiting cannot help.
func (s *Service) addHeaders(c *call, decisions []limiter.Decision, told int) {
	a, style := &c.answer, s.opts.Headers.style(c.request.Domain)
	if style == NoHeaders {
		return
	}
	h, d := &c.plan.Hits[told], &decisions[told]
	wait := ""
	if a.over && d.RetryAfter > 0 {
		wait = strconv.FormatUint(seconds(d.RetryAfter)+s.jitter(), 10)
	}
	if style&XRateLimit != 0 {
		a.headers = s.names.append(a.headers, h, d, wait)
	}
	if style&Draft03 != 0 {
		s.addDraft03(c, decisions, told)
	}
	if style&(IETF|IETFPartitions) != 0 {
		s.addIETF(c, decisions, told, style&IETFPartitions != 0)
	}
	if wait != "" && style != Draft03 {
		a.headers = append(a.headers, textHeader("Retry-After", wait))
	}
}

// append adds the XRateLimit headers but for Retry-After.
func (n *HeaderNames) append(to []header, h *limiter.Hit, d *limiter.Decision, wait string) []header {
	if n.Limit != "" {
		to = append(to, numberHeader(n.Limit, h.Limit.Requests))
	}
	if n.Remaining != "" {
		to = append(to, numberHeader(n.Remaining, d.Remaining))
	}
	if wait != "" && n.RetryAfter != "" {
		to = append(to, textHeader(n.RetryAfter, wait))
	}
	if n.Reset != "" {
		reset := d.ResetAfter
		if !d.Allowed {
			reset = d.RetryAfter
		}
		to = append(to, numberHeader(n.Reset, seconds(reset)))
	}
	return to
}

// jitter is a number of seconds from 0 to the most, each as likely.
func (s *Service) jitter() uint64 {
	if most := uint64(s.opts.Headers.Jitter / time.Second); most > 0 {
		return rand.Uint64N(most + 1)
	}
	return 0
}

// The headers of UpstreamHeaders.
const (
	upstreamRule      = "x-weir-rule"
	upstreamLimit     = "x-weir-limit"
	upstreamRemaining = "x-weir-remaining"
)

// maxUpstreamRule is where a longer x-weir-rule or x-weir-overflow is cut, in bytes of the rule's
// label: upstreams refuse requests with long headers.
const maxUpstreamRule = 1000

// addUpstream adds what the upstream is to know of a request that passes.
func (a *answer) addUpstream(r *rules.Rule, h *limiter.Hit, d *limiter.Decision) {
	a.upstream = append(a.upstream,
		textHeader(upstreamRule, briefLabel(r)),
		numberHeader(upstreamLimit, h.Limit.Requests),
		numberHeader(upstreamRemaining, d.Remaining))
}

// briefLabel is the label of a hit's rule as a header's value.
func briefLabel(r *rules.Rule) string {
	label := labelOf(r)
	return plainASCII(label[:min(len(label), maxUpstreamRule)])
}

// labelOf is what to call the rule of a hit to its operator; a limit that came
// with the request has none.
func labelOf(r *rules.Rule) string {
	if r == nil {
		return "override"
	}
	return r.Label()
}

// plainASCII makes text of rules fit for any header, faithfully: what is not
// printable ASCII, a % and a space at either end become %XX, byte by byte. So
// different texts stay different, and none has a CR, an LF or a NUL.
func plainASCII(s string) string {
	unfit := func(i int) bool {
		return s[i] < ' ' || s[i] >= 0x7f || s[i] == '%' || s[i] == ' ' && (i == 0 || i == len(s)-1)
	}
	i := 0
	for i < len(s) && !unfit(i) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:i]...)
	for ; i < len(s); i++ {
		if !unfit(i) {
			b = append(b, s[i])
			continue
		}
		const digits = "0123456789ABCDEF"
		b = append(b, '%', digits[s[i]>>4], digits[s[i]&15])
	}
	return string(b)
}

// toValid makes text of rules or requests fit for a protobuf string.
func toValid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
