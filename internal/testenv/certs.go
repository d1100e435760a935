package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TLSFiles are a certificate and its key, and the authority that signed it.
type TLSFiles struct {
	CA, Cert, Key string // paths of PEM files
	Pool          *x509.CertPool
}

// MakeTLSFiles makes an authority, and a certificate for localhost, 127.0.0.1 and
// ::1, in a folder.
func MakeTLSFiles(dir string) (*TLSFiles, error) {
	a, err := MakeAuthority("tests")
	if err != nil {
		return nil, err
	}
	return a.Issue(dir, Leaf{})
}

// Authority signs certificates.
type Authority struct {
	PEM  []byte
	Pool *x509.CertPool

	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority returns an authority that no other certificate is of.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := MakeAuthority("tests")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// MakeAuthority is NewAuthority where there is no test.
func MakeAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("testenv: sign a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	a := &Authority{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Pool: x509.NewCertPool(), key: key, cert: cert}
	a.Pool.AddCert(cert)
	return a, nil
}

// Leaf is a certificate to sign, which is good for servers and clients.
type Leaf struct {
	Name     string    // of its files: NAME.pem and NAME-key.pem; empty: cert.pem and key.pem
	SANs     []string  // DNS names, IP addresses, URIs; none: localhost, 127.0.0.1 and ::1
	NotAfter time.Time // zero: when the authority's own ends
}

// Issue signs a certificate for a new key, and writes both to a folder, with the
// authority's own as ca.pem. Files of the same names are replaced, each at once.
func (a *Authority) Issue(dir string, l Leaf) (*TLSFiles, error) {
	cert, key, err := a.Sign(l)
	if err != nil {
		return nil, err
	}
	f := &TLSFiles{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), Pool: a.Pool}
	if l.Name != "" {
		f.Cert, f.Key = filepath.Join(dir, l.Name+".pem"), filepath.Join(dir, l.Name+"-key.pem")
	}
	for path, text := range map[string][]byte{f.CA: a.PEM, f.Cert: cert, f.Key: key} {
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			return nil, fmt.Errorf("testenv: %w", err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			return nil, fmt.Errorf("testenv: %w", err)
		}
	}
	return f, nil
}

// MustIssue is Issue, but that the test ends where it fails.
func (a *Authority) MustIssue(t testing.TB, dir string, l Leaf) *TLSFiles {
	t.Helper()
	f, err := a.Issue(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Sign returns the certificate and its key as PEM.
func (a *Authority) Sign(l Leaf) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("testenv: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, nil, fmt.Errorf("testenv: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if !l.NotAfter.IsZero() {
		template.NotAfter = l.NotAfter
	}
	if len(l.SANs) == 0 {
		l.SANs = []string{"localhost", "127.0.0.1", "::1"}
	}
	for _, san := range l.SANs {
		if ip := net.ParseIP(san); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		if !strings.Contains(san, "://") {
			template.DNSNames = append(template.DNSNames, san)
			continue
		}
		uri, err := url.Parse(san)
		if err != nil {
			return nil, nil, fmt.Errorf("testenv: %w", err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("testenv: sign a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("testenv: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
