package xds

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"

	"weir/internal/testenv"
)

func TestMutualTLSWithFilesThatAreReadAnew(t *testing.T) {
	t.Parallel()
	files, err := testenv.MakeTLSFiles(t.TempDir())
	must(t, err)
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	must(t, err)
	c := newControl(t, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: files.Pool,
	})
	c.set("1", limit("api", "a"))
	url := "xds+tls://" + c.addr

	f := follow(t, url, Options{CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key}, quick)
	f.awaitApplies(1, 0)
	f.holds("api/a")

	late := t.TempDir() // the certificates come later than Weir
	f = follow(t, url, Options{CAFile: late + "/ca.pem", CertFile: late + "/cert.pem", KeyFile: late + "/key.pem"}, quick)
	f.awaitApplies(1, 1)
	if got := f.status().LastError; !strings.Contains(got, "reading the authority of the control plane's certificate: open "+late+"/ca.pem") {
		t.Error(got)
	}
	for name, path := range map[string]string{"cert.pem": files.Cert, "key.pem": files.Key, "ca.pem": files.CA} {
		data, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(late+"/new", data, 0o600))
		must(t, os.Rename(late+"/new", late+"/"+name))
	}
	eventually(t, "rules by the certificates that came", func() bool { return f.has("api", "a") })

	for _, row := range []struct {
		remark  string
		url     string
		options Options
		want    string
	}{
		{"no client certificate", url, Options{CAFile: files.CA}, "; does the server want a client certificate?"},
		{"an authority that is not known", url, Options{CertFile: files.Cert, KeyFile: files.Key}, "signed by unknown authority"},
		{"another server name", url, Options{CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key, ServerName: "other"}, "not other"},
		{"no PEM", url, Options{CAFile: os.DevNull}, "no certificate in " + os.DevNull},
		{"no TLS", "xds://" + c.addr, Options{}, "; if the server has TLS, write xds+tls://"},
	} {
		f := follow(t, row.url, row.options, quick)
		eventually(t, row.remark, func() bool { return f.status().LastError != "" })
		if got := f.status().LastError; !strings.Contains(got, row.want) {
			t.Errorf("%s: %s, want %q", row.remark, got, row.want)
		}
	}
	plain := newControl(t, nil)
	f = follow(t, "xds+tls://"+plain.addr, Options{CAFile: files.CA}, quick)
	eventually(t, "no TLS there", func() bool { return strings.HasSuffix(f.status().LastError, "; a server without TLS is xds://") })
}

func TestAServerThatHangsIsToldOf(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	f := follow(t, "xds://"+listener.Addr().String(), Options{}, quick)
	f.awaitApplies(1, 1) // the connection is taken, and nothing said on it
	if got := f.status().LastError; !strings.Contains(got, "no stream of rules: ") {
		t.Error(got)
	}
}
