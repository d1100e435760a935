package queue

import (
	"fmt"
	"net/url"
	"strings"

	weirv1 "weir/api/weir/v1"
)

// What a queued request may have, beside its body. Redis keeps all of it.
const (
	maxTarget  = 16 << 10 // bytes of path and query
	maxHeaders = 64 << 10 // bytes of method, authority, and headers; see headerCost
)

// headerCost is what a header counts beside its name and its value, so that many
// empty ones are bounded, too. HTTP/2 counts alike (RFC 9113, 6.5.2).
const headerCost = 32

// targetTooLong and headersTooLarge say what of a request is beyond its bound; "":
// nothing.
func targetTooLong(h *weirv1.HttpRequest) string {
	if len(h.GetPath()) > maxTarget {
		return fmt.Sprintf("a queued request's path and query may have %d bytes; these have %d", maxTarget, len(h.GetPath()))
	}
	return ""
}

func headersTooLarge(h *weirv1.HttpRequest) string {
	n := len(h.GetMethod()) + len(h.GetAuthority())
	for _, line := range h.GetHeaders() {
		n += len(line.GetName()) + len(line.GetValue()) + headerCost
	}
	if n > maxHeaders {
		return fmt.Sprintf("a queued request's headers may have %d bytes, each counted with %d more; these have %d", maxHeaders, headerCost, n)
	}
	return ""
}

// targetURL is a URL at base whose requests have this target, byte for byte: Go
// writes a path in an encoding of its own, but an opaque URL as it is.
func targetURL(base *url.URL, target string) (*url.URL, error) {
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f { // it would end the target, and begin something else
			return nil, fmt.Errorf("the path %.100q has a blank or a control character", target)
		}
	}
	path, query, asked := strings.Cut(target, "?")
	plain, err := url.PathUnescape(path)
	if err != nil {
		return nil, fmt.Errorf("the path %.100q is no URL's: %w", target, err)
	}
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Opaque: target}
	if strings.HasPrefix(target, "//") { // opaque, what follows were the host
		u = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: plain, RawPath: path, RawQuery: query, ForceQuery: asked}
	}
	if u.RequestURI() != target {
		return nil, fmt.Errorf("the path %.100q begins with // and has bytes that are no URL's; it cannot be sent as it is", target)
	}
	return u, nil
}
