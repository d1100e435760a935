package server

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"weir/internal/testenv"
)

// put replaces a file at once.
func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestFaultyCertificatesDoNotReplaceThoseBefore(t *testing.T) {
	authority, clients := testenv.NewAuthority(t), testenv.NewAuthority(t)
	dir := t.TempDir()
	files := authority.MustIssue(t, dir, testenv.Leaf{})
	clientCA := filepath.Join(dir, "clients.pem")
	put(t, clientCA, clients.PEM)
	client := clientOf(t, authority, clients.MustIssue(t, t.TempDir(), testenv.Leaf{}))
	l := listenTLS(t, CertificateOptions{CertFile: files.Cert, KeyFile: files.Key, ClientCAFile: clientCA}, GRPCOptions{})

	long, err := tls.Dial("tcp", l.addr, func() *tls.Config { c := client.Clone(); c.NextProtos = []string{"h2"}; return c }())
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	good, goodKey := contents(t, files.Cert), contents(t, files.Key)
	serial := l.serial(t, client)
	sign := func(leaf testenv.Leaf) (cert, key []byte) {
		t.Helper()
		cert, key, err := authority.Sign(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	other, otherKey := sign(testenv.Leaf{})
	expired, expiredKey := sign(testenv.Leaf{NotAfter: time.Now().Add(-time.Minute)})
	for _, c := range []struct {
		remark             string
		cert, key, clients []byte
		log                string // of one line; "": the pair is taken
	}{
		{"another certificate, the key follows later", other, goodKey, clients.PEM, "private key does not match public key"},
		{"the key has come", other, otherKey, clients.PEM, ""},
		{"half a certificate", good[:len(good)/2], otherKey, clients.PEM, "cert.pem: block 1 of 1 is cut off"},
		{"an empty certificate", nil, otherKey, clients.PEM, "cert.pem: there is no certificate in it"},
		{"half a key", other, otherKey[:len(otherKey)/2], clients.PEM, "key.pem, for the certificate"},
		{"the second of two authorities is cut off", other, otherKey, append(bytes.Clone(clients.PEM), authority.PEM[:200]...), "clients.pem: block 2 of 2 is cut off"},
		{"no authority", other, otherKey, []byte("\n"), "clients.pem: there is no certificate in it"},
		{"a certificate that has expired", expired, expiredKey, clients.PEM, "expired"},
		{"the first ones, and a second authority", good, goodKey, append(bytes.Clone(clients.PEM), authority.PEM...), ""},
	} {
		t.Run(c.remark, func(t *testing.T) {
			before := len(l.logs.String())
			put(t, files.Cert, c.cert)
			put(t, files.Key, c.key)
			put(t, clientCA, c.clients)
			if c.log == "" {
				eventually(t, "another certificate", func() bool { return l.serial(t, client) != serial })
				serial = l.serial(t, client)
				return
			}
			news := func() string { return l.logs.String()[before:] }
			eventually(t, "the refusal", func() bool { return strings.Contains(news(), c.log) })
			if got := l.serial(t, client); got != serial {
				t.Errorf("serves %s, want %s", got, serial)
			}
			time.Sleep(100 * time.Millisecond) // ten more looks
			if n := strings.Count(news(), c.log); n != 1 || !strings.Contains(news(), "level=ERROR") {
				t.Errorf("logged %d times:\n%s", n, news())
			}
		})
	}
	// A connection of before the changes goes on: it takes the client's preface.
	if _, err := io.WriteString(long, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	_ = long.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(long, make([]byte, 9)); err != nil {
		t.Errorf("the first connection: %v", err)
	}
}

// A bundle of authorities that is half written is a good one too, and a pair is
// replaced one file after the other.
func TestFilesThatStillChangeAreNotTaken(t *testing.T) {
	authority := testenv.NewAuthority(t)
	dir := t.TempDir()
	files := authority.MustIssue(t, dir, testenv.Leaf{})
	logs := new(logs)
	c, err := LoadCertificates(CertificateOptions{CertFile: files.Cert, KeyFile: files.Key, ClientCAFile: files.CA, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Sign(testenv.Leaf{})
	if err != nil {
		t.Fatal(err)
	}
	r, first := reload{Certificates: c}, c.current.Load()
	for i, s := range []struct {
		remark, path string
		text         []byte
		taken        bool
	}{
		{"as it is", files.Cert, contents(t, files.Cert), false},
		{"the first of two authorities", files.CA, testenv.NewAuthority(t).PEM, false},
		{"both", files.CA, append(bytes.Clone(authority.PEM), authority.PEM...), false},
		{"a certificate", files.Cert, cert, false},
		{"its key", files.Key, key, false},
		{"nothing more", files.Key, key, true},
	} {
		put(t, s.path, s.text)
		r.look()
		if taken := c.current.Load() != first; taken != s.taken {
			t.Errorf("step %d, %s: taken: %v", i+1, s.remark, taken)
		}
	}
	if strings.Contains(logs.String(), "level=ERROR") {
		t.Errorf("logged:\n%s", logs)
	}
}

// Kubernetes puts a folder beside the old one, and turns a link.
func TestCertificatesBehindLinksAreTakenAgain(t *testing.T) {
	authority := testenv.NewAuthority(t)
	dir := t.TempDir()
	generation := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		authority.MustIssue(t, filepath.Join(dir, name), testenv.Leaf{})
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	generation("..1")
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for link, to := range map[string]string{cert: "..data/cert.pem", key: "..data/key.pem"} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	l := listenTLS(t, CertificateOptions{CertFile: cert, KeyFile: key}, GRPCOptions{})
	client := clientOf(t, authority, nil)
	before := l.serial(t, client)
	generation("..2")
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next certificate", func() bool { return l.serial(t, client) != before })
	if strings.Contains(l.logs.String(), "level=ERROR") {
		t.Errorf("logged:\n%s", l.logs)
	}
}

// Who took a certificate away takes its clients away, also those that were here
// before: no session is resumed.
func TestAnAuthorityThatIsTakenAwayLetsNobodyInAgain(t *testing.T) {
	authority, first, second := testenv.NewAuthority(t), testenv.NewAuthority(t), testenv.NewAuthority(t)
	dir := t.TempDir()
	files := authority.MustIssue(t, dir, testenv.Leaf{})
	clientCA := filepath.Join(dir, "clients.pem")
	put(t, clientCA, first.PEM)
	l := listenTLS(t, CertificateOptions{CertFile: files.Cert, KeyFile: files.Key, ClientCAFile: clientCA}, GRPCOptions{})
	before := clientOf(t, authority, first.MustIssue(t, t.TempDir(), testenv.Leaf{}))
	before.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	after := clientOf(t, authority, second.MustIssue(t, t.TempDir(), testenv.Leaf{}))
	if err := l.asks(t, credentials.NewTLS(before)); err != nil {
		t.Fatal(err)
	}
	cached := before.Clone()
	cached.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", l.addr, cached)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.ConnectionState().DidResume {
		t.Error("a session is resumed")
	}
	put(t, clientCA, second.PEM)
	eventually(t, "the second's clients", func() bool { return l.asks(t, credentials.NewTLS(after)) == nil })
	if err := l.asks(t, credentials.NewTLS(before)); err == nil {
		t.Error("the first's client is let in")
	}
}

func TestABadFileAtTheStartIsNamedWithItsFault(t *testing.T) {
	dir := t.TempDir()
	files := testenv.NewAuthority(t).MustIssue(t, dir, testenv.Leaf{})
	other := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		put(t, path, []byte(text))
		return path
	}
	for _, c := range []struct {
		cert, key, ca string
		want          string
	}{
		{"/nowhere/c.pem", files.Key, "", "reading the certificate: open /nowhere/c.pem: no such file"},
		{files.Cert, "/nowhere/k.pem", "", "reading the key: open /nowhere/k.pem: no such file"},
		{files.Cert, files.Key, "/nowhere/ca.pem", "reading the client CA: open /nowhere/ca.pem: no such file"},
		{dir, files.Key, "", "reading the certificate: " + dir + " is not a regular file"},
		{files.Cert, pipe, "", "reading the key: " + pipe + " is not a regular file"}, // whose writer may never come
		{write("text", "hello"), files.Key, "", dir + "/text: there is no certificate in it"},
		{write("bent", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), files.Key, "", "certificate " + dir + "/bent: block 1: malformed certificate"},
		{files.Key, files.Cert, "", "certificate " + files.Key + ": there is no certificate in it"},
		{files.Cert, files.Cert, "", "key " + files.Cert + ", for the certificate " + files.Cert + ": found a certificate rather than a key"},
		{files.Cert, write("locked", "-----BEGIN ENCRYPTED PRIVATE KEY-----\naGVsbG8=\n-----END ENCRYPTED PRIVATE KEY-----\n"), "", "locked: it is encrypted"},
		{files.Cert, other.Key, "", "private key does not match public key"},
		{files.Cert, files.Key, files.Key, "client CA " + files.Key + ": there is no certificate in it"},
	} {
		_, err := LoadCertificates(CertificateOptions{CertFile: c.cert, KeyFile: c.key, ClientCAFile: c.ca})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s, %s: %v, want %q", c.cert, c.key, c.ca, err, c.want)
		}
	}
}

func TestAnExpiredCertificateIsServedAtTheStartAndLoggedOnce(t *testing.T) {
	authority := testenv.NewAuthority(t)
	files := authority.MustIssue(t, t.TempDir(), testenv.Leaf{NotAfter: time.Now().Add(-time.Minute)})
	l := listenTLS(t, CertificateOptions{CertFile: files.Cert, KeyFile: files.Key}, GRPCOptions{})
	l.serial(t, &tls.Config{InsecureSkipVerify: true})
	time.Sleep(100 * time.Millisecond) // ten looks
	if n := strings.Count(l.logs.String(), "has expired"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, l.logs)
	}
	authority.MustIssue(t, filepath.Dir(files.Cert), testenv.Leaf{})
	eventually(t, "a good certificate", func() bool { return l.asks(t, credentials.NewTLS(clientOf(t, authority, nil))) == nil })
}
