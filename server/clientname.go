package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ClientName is a subject alternative name (SAN) that a client's certificate may
// have: a DNS name, whose first label may be *, an IP address or a URI.
type ClientName struct {
	kind nameKind
	text string // in the form that names are compared in
}

type nameKind int

const (
	dnsName nameKind = iota
	ipName
	uriName
)

// ParseClientName reads the text of a name. *.example.com stands for one label
// before .example.com; a URI is taken as it is.
func ParseClientName(text string) (ClientName, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		if ip.Zone() != "" {
			return ClientName{}, errors.New("no certificate has an IP address with a zone")
		}
		return ClientName{ipName, ip.Unmap().String()}, nil
	}
	if strings.Contains(text, "://") {
		uri, err := url.Parse(text)
		if err != nil {
			return ClientName{}, err
		}
		if strings.Contains(text, "*") {
			return ClientName{}, errors.New("a URI is taken as it is, without *")
		}
		return ClientName{uriName, uriText(uri)}, nil
	}
	name := dnsText(text)
	for i, label := range strings.Split(name, ".") {
		star := i == 0 && label == "*" && len(name) > len("*.")
		if !star && (label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "") {
			return ClientName{}, errors.New("it is a DNS name such as envoy.example.com or *.example.com, an IP address, or a URI such as spiffe://example.org/envoy")
		}
	}
	return ClientName{dnsName, name}, nil
}

// allowed tells of a certificate that has none of the names.
func allowed(names []ClientName, cert *x509.Certificate) error {
	if len(names) == 0 || slices.ContainsFunc(names, func(n ClientName) bool { return n.of(cert) }) {
		return nil
	}
	var has []string
	has = append(has, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		has = append(has, ip.String())
	}
	for _, uri := range cert.URIs {
		has = append(has, uri.String())
	}
	return fmt.Errorf("the client's certificate has no name that is allowed; it has %q", has)
}

// of tells whether the certificate has the name.
func (n ClientName) of(cert *x509.Certificate) bool {
	switch n.kind {
	case ipName:
		for _, ip := range cert.IPAddresses {
			if addr, ok := netip.AddrFromSlice(ip); ok && addr.Unmap().String() == n.text {
				return true
			}
		}
	case uriName:
		for _, uri := range cert.URIs {
			if uriText(uri) == n.text {
				return true
			}
		}
	default:
		for _, name := range cert.DNSNames {
			if n.isDNS(dnsText(name)) {
				return true
			}
		}
	}
	return false
}

func (n ClientName) isDNS(name string) bool {
	if parent, ok := strings.CutPrefix(n.text, "*."); ok {
		label, rest, ok := strings.Cut(name, ".")
		return ok && label != "" && rest == parent
	}
	return name == n.text
}

func dnsText(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// uriText has the parts in lower case whose case says nothing.
func uriText(uri *url.URL) string {
	same := *uri
	same.Scheme, same.Host = strings.ToLower(uri.Scheme), strings.ToLower(uri.Host)
	return same.String()
}
