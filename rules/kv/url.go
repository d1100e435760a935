package kv

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DefaultPrefix is where rules are, if a URL does not say.
const DefaultPrefix = "weir/rules"

// Location is where a URL says that rules are.
type Location struct {
	Hosts  []string // host:port each; none: the URL names no host
	TLS    bool
	Prefix string // of the keys, without a slash at either end
}

var errUser = errors.New("no user, password or token may stand in it, since URLs are shown: give them by flag, file or environment")

// ParseURL reads a URL of rules in a store whose scheme and port are given:
//
//	SCHEME://[host[:port][,host[:port]…]][/prefix]
//	SCHEME+https://…                                   with TLS
//
// The prefix may be percent-encoded. Errors do not have the URL in them, in which
// there may be a secret.
func ParseURL(text, scheme, port string) (Location, error) {
	var l Location
	got, rest, ok := strings.Cut(text, "://")
	switch {
	case ok && got == scheme:
	case ok && got == scheme+"+https":
		l.TLS = true
	default:
		return l, fmt.Errorf("a URL such as %s://host:%s/%s is wanted, or %s+https://… with TLS", scheme, port, DefaultPrefix, scheme)
	}
	authority, path, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(authority, "@"):
		return l, errUser
	case strings.ContainsAny(rest, "?#"):
		return l, errors.New("nothing may follow a ? or a #; in a prefix they are %3F and %23")
	}
	var err error
	l.Hosts, err = parseHosts(authority, port)
	if err != nil && strings.Contains(path, "@") {
		return l, errUser // a slash in a password
	}
	if err != nil {
		return l, err
	}
	l.Prefix, err = parsePrefix(path)
	return l, err
}

func parseHosts(authority, port string) ([]string, error) {
	if authority == "" {
		return nil, nil
	}
	var hosts []string
	for host := range strings.SplitSeq(authority, ",") {
		host, err := parseHost(host, port)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// parseHost returns host:port for a host with a port or without.
func parseHost(text, port string) (string, error) {
	host, rest := text, ""
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, rest, ok = strings.Cut(inner, "]")
		ip, err := netip.ParseAddr(host)
		if !ok || err != nil || !ip.Is6() || ip.Zone() != "" {
			return "", fmt.Errorf("host %q: an IPv6 address is wanted in brackets, such as [2001:db8::1]:%s", text, port)
		}
	} else {
		if strings.Count(text, ":") > 1 {
			return "", fmt.Errorf("host %q: an IPv6 address stands in brackets, such as [2001:db8::1]:%s", text, port)
		}
		if i := strings.IndexByte(text, ':'); i >= 0 {
			host, rest = text[:i], text[i:]
		}
		if host == "" || strings.ContainsFunc(host, notOfHost) {
			return "", fmt.Errorf("host %q: a name or an address is wanted, and a port, such as localhost:%s", text, port)
		}
	}
	if rest != "" {
		number, err := strconv.ParseUint(strings.TrimPrefix(rest, ":"), 10, 16)
		if rest[0] != ':' || err != nil || number == 0 {
			return "", fmt.Errorf("host %q: a port is a number from 1 to 65535", text)
		}
		port = strconv.FormatUint(number, 10)
	}
	return net.JoinHostPort(host, port), nil
}

func notOfHost(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	return !letter && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
}

// parsePrefix reads what follows the first slash after the hosts.
func parsePrefix(path string) (string, error) {
	if path == "" {
		return DefaultPrefix, nil
	}
	prefix, err := url.PathUnescape(path)
	if err != nil {
		return "", fmt.Errorf("prefix %q: a %% is to be written as %%25", path)
	}
	if !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("prefix %q: it may have no control characters, and is UTF-8", prefix)
	}
	for part := range strings.SplitSeq(prefix, "/") {
		switch {
		case part == "":
			return "", fmt.Errorf("prefix %q: it must not begin or end with a slash, nor have two in a row; such as %s", prefix, DefaultPrefix)
		case part[0] == '.':
			return "", fmt.Errorf("prefix %q: no part of it may begin with a dot, since such keys are not rules", prefix)
		}
	}
	return prefix, nil
}
