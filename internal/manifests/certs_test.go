package manifests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certs are files as a Secret of Kubernetes has them: ca.crt, tls.crt, tls.key.
type certs struct {
	dir  string
	pair tls.Certificate
	pool *x509.CertPool
}

// makeCerts makes an authority and one certificate, for servers and clients, of
// the names that Envoy Gateway gives its own and of the loopback range.
func makeCerts(t *testing.T) certs {
	t.Helper()
	c := certs{dir: t.TempDir(), pool: x509.NewCertPool()}
	sign := func(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		template.SerialNumber = big.NewInt(time.Now().UnixNano())
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	newKey := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(c.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authorityKey, key := newKey(), newKey()
	authority := &x509.Certificate{Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authorityDER := sign(authority, authority, authorityKey, authorityKey)
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "envoy-ratelimit"}, DNSNames: []string{"envoy-gateway", "envoy-ratelimit", "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	leafDER := sign(leaf, authority, key, authorityKey)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write("ca.crt", "CERTIFICATE", authorityDER)
	write("tls.crt", "CERTIFICATE", leafDER)
	write("tls.key", "PRIVATE KEY", keyDER)
	if c.pair, err = tls.LoadX509KeyPair(filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(authorityDER)
	if err != nil {
		t.Fatal(err)
	}
	c.pool.AddCert(parsed)
	return c
}
