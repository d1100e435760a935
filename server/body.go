package server

import (
	"strconv"

	"weir/limiter"
)

// DeniedBody is the body of the response to a refused request. The zero value is
// none: the response is empty.
type DeniedBody struct {
	text        []byte
	contentType string // "": what Envoy sets by itself, text/plain
	problem     bool
}

// MaxDeniedBody is the longest fixed body, in bytes: each refusal carries it.
const MaxDeniedBody = 64 << 10

// FixedBody is the same for all refusals. Without a content type Envoy sends it
// as text/plain. gRPC callers get it as the status's message, and gRPC's content
// type whatever this one is.
func FixedBody(text []byte, contentType string) DeniedBody {
	return DeniedBody{text: text, contentType: contentType}
}

// ProblemBody is application/problem+json (RFC 9457) of the type quota-exceeded,
// as draft-ietf-httpapi-ratelimit-headers registers it, with the names of the
// policies that refuse. It is not for gRPC callers.
func ProblemBody() DeniedBody {
	return DeniedBody{contentType: "application/problem+json", problem: true}
}

// DeniedOptions says which body a refused request gets. The zero value is none.
type DeniedOptions struct {
	Body     DeniedBody
	ByDomain map[string]DeniedBody // instead of Body, for these domains
}

func (o *DeniedOptions) body(domain string) *DeniedBody {
	if b, ok := o.ByDomain[domain]; ok {
		return &b
	}
	return &o.Body
}

// addBody adds the body of a refusal, and the header that says what it is.
func (s *Service) addBody(c *call, decisions []limiter.Decision, told int) {
	b := s.opts.Denied.body(c.request.Domain)
	c.answer.body = b.text
	if b.problem {
		c.answer.body = s.problem(c, decisions, told)
	}
	if b.contentType != "" && len(c.answer.body) > 0 {
		c.answer.headers = append(c.answer.headers, textHeader("Content-Type", b.contentType))
	}
}

const problemStart = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
	`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":[`

// problem names the policies that refuse as RateLimit-Policy does.
func (s *Service) problem(c *call, decisions []limiter.Decision, told int) []byte {
	b := append(make([]byte, 0, 320), problemStart...)
	n := 0
	for _, l := range s.list(c, decisions, told, false) {
		if decisions[l.hit].Allowed {
			continue
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = strconv.AppendQuoteToASCII(b, l.policy.name) // of printable ASCII: JSON's escapes
	}
	return append(b, "]}\n"...)
}
