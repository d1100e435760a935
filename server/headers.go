package server

import (
	"fmt"
	"strconv"
	"strings"

	"weir/limiter"
)

// HeaderStyle says which header hints an answer carries to the client. The zero
// value is XRateLimit.
type HeaderStyle uint8

// The header styles.
const (
	XRateLimit HeaderStyle = iota // X-Ratelimit-Limit, -Remaining; when refused -Retry-After and Retry-After
	NoHeaders
)

var headerStyles = [...]string{"x-ratelimit", "none"}

// HeaderStyleNames lists the styles as the flag spells them.
func HeaderStyleNames() []string { return headerStyles[:] }

// ParseHeaderStyle returns the style of that name.
func ParseHeaderStyle(name string) (HeaderStyle, error) {
	for i, n := range headerStyles {
		if n == name {
			return HeaderStyle(i), nil
		}
	}
	return 0, fmt.Errorf("unknown header style %q", name)
}

// append adds the headers that describe the hit and its decision. Retry-After is
// in whole seconds, rounded up, at least 1, and left out when waiting cannot help.
func (s HeaderStyle) append(to []header, h *limiter.Hit, d *limiter.Decision, over bool) []header {
	if s == NoHeaders {
		return to
	}
	to = append(to,
		header{"X-Ratelimit-Limit", strconv.FormatUint(h.Limit.Requests, 10)},
		header{"X-Ratelimit-Remaining", strconv.FormatUint(d.Remaining, 10)})
	if over && d.RetryAfter > 0 {
		wait := strconv.FormatUint(seconds(d.RetryAfter), 10)
		to = append(to, header{"X-Ratelimit-Retry-After", wait}, header{"Retry-After", wait})
	}
	return to
}

// toValid makes text of rules or requests fit for a protobuf string.
func toValid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
