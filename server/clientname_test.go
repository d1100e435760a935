package server

import (
	"crypto/x509"
	"net"
	"net/url"
	"testing"
)

func TestClientNamesAreThoseOfTheCertificate(t *testing.T) {
	uri, err := url.Parse("spiffe://Mesh.test/ns/Edge")
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		DNSNames:    []string{"Envoy.Example.com", "*.wild.test", "xn--mller-kva.test"},
		IPAddresses: []net.IP{net.ParseIP("192.0.2.7"), net.ParseIP("2001:db8::1")},
		URIs:        []*url.URL{uri},
	}
	for name, want := range map[string]bool{
		"envoy.example.com":          true,
		"ENVOY.example.COM.":         true,
		"*.example.com":              true,
		"*.com":                      false, // one label
		"example.com":                false,
		"envoy.example.com.evil.org": false,
		"a.wild.test":                false, // a certificate's * is no client's name
		"*.wild.test":                true,
		"xn--mller-kva.test":         true,
		"192.0.2.7":                  true,
		"::ffff:192.0.2.7":           true,
		"192.0.2.8":                  false,
		"2001:DB8:0::1":              true,
		"spiffe://mesh.test/ns/Edge": true,
		"SPIFFE://MESH.test/ns/Edge": true,
		"spiffe://mesh.test/ns/edge": false, // the case of a path matters
		"spiffe://mesh.test/ns":      false,
		"spiffe://mesh.test":         false,
	} {
		n, err := ParseClientName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := allowed([]ClientName{n}, cert) == nil; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if allowed(nil, &x509.Certificate{}) != nil {
		t.Error("without names, one without names is refused")
	}
}

func TestWhatIsNoClientName(t *testing.T) {
	for _, text := range []string{"", "*", "*.", ".", "a..b", "a.*.b", "e*.example.com", "a b", "müller.test", "a@b.c", "10.0.0.0/8", "spiffe://a/*", "://", "a:80", "[::1]", "fe80::1%eth0"} {
		if n, err := ParseClientName(text); err == nil {
			t.Errorf("%q is taken as %+v", text, n)
		}
	}
}
