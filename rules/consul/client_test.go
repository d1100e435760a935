package consul

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/testenv"
	"weir/rules/kv"
	"weir/rules/kv/kvtest"
)

func TestURLsOfConsul(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, addr, prefix string
		tls               bool
		says              string // of the error; "": none
	}{
		{"consul://", "", "weir/rules", false, ""},
		{"consul:///a/b", "", "a/b", false, ""},
		{"consul://h", "h:8500", "weir/rules", false, ""},
		{"consul+https://h:8501/a", "h:8501", "a", true, ""},
		{"consul://[::1]/a", "[::1]:8500", "a", false, ""},
		{"consul://a,b/c", "", "", false, "one address"},
		{"consul://h/a/", "", "", false, "slash"},
		{"etcd://h/a", "", "", false, "consul://host:8500/weir/rules"},
	} {
		o, prefix, err := ParseURL(c.url)
		switch {
		case c.says != "":
			kvtest.Wants(t, err, c.says)
		case err != nil || o != (Options{Addr: c.addr, TLS: c.tls}) || prefix != c.prefix:
			t.Errorf("%s: %+v, %q, %v", c.url, o, prefix, err)
		}
	}
}

func TestConsulsOwnEnvironmentSaysWhatOptionsDoNot(t *testing.T) {
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	c.Put(t, "w/rules/1", "one")
	file := filepath.Join(t.TempDir(), "token")
	kvtest.Must(t, os.WriteFile(file, []byte(c.Token), 0o600))
	for _, step := range []struct {
		remark  string
		env     map[string]string
		options Options
		works   bool
	}{
		{"address and token", map[string]string{"CONSUL_HTTP_ADDR": c.Addr, "CONSUL_HTTP_TOKEN": c.Token}, Options{}, true},
		{"address as a URL", map[string]string{"CONSUL_HTTP_ADDR": "http://" + c.Addr, "CONSUL_HTTP_TOKEN": c.Token}, Options{}, true},
		{"a token file", map[string]string{"CONSUL_HTTP_ADDR": c.Addr, "CONSUL_HTTP_TOKEN_FILE": file}, Options{}, true},
		{"the file goes before the token", map[string]string{"CONSUL_HTTP_ADDR": c.Addr, "CONSUL_HTTP_TOKEN_FILE": file, "CONSUL_HTTP_TOKEN": "x"}, Options{}, true},
		{"no token", map[string]string{"CONSUL_HTTP_ADDR": c.Addr}, Options{}, false},
		{"an option goes before the token", map[string]string{"CONSUL_HTTP_ADDR": c.Addr, "CONSUL_HTTP_TOKEN": c.Token}, Options{Token: "x"}, false},
		{"and before the file", map[string]string{"CONSUL_HTTP_ADDR": c.Addr, "CONSUL_HTTP_TOKEN_FILE": "/nowhere"}, Options{Token: c.Token}, true},
		{"and before the address", map[string]string{"CONSUL_HTTP_ADDR": "127.0.0.1:1"}, Options{Addr: c.Addr, TokenFile: file}, true},
	} {
		t.Run(step.remark, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			err := do(open(t, step.options), "list", kv.Listing{})
			if (err == nil) != step.works {
				t.Error(err)
			}
		})
	}
}

func TestOptionsThatCanNeverWorkAreRefusedAtOnce(t *testing.T) {
	for _, step := range []struct {
		env     map[string]string
		options Options
		says    string
	}{
		{map[string]string{"CONSUL_HTTP_SSL": "maybe"}, Options{}, "CONSUL_HTTP_SSL"},
		{map[string]string{"CONSUL_HTTP_SSL_VERIFY": "maybe"}, Options{}, "CONSUL_HTTP_SSL_VERIFY"},
		{map[string]string{"CONSUL_HTTP_ADDR": "http://user:secret@host"}, Options{}, "CONSUL_HTTP_AUTH"},
		{map[string]string{"CONSUL_HTTP_ADDR": "ftp://host"}, Options{}, "ftp"},
		{map[string]string{"CONSUL_HTTP_TOKEN_FILE": "/nowhere"}, Options{}, "/nowhere"},
		{map[string]string{"CONSUL_CACERT": "/nowhere"}, Options{}, "/nowhere"},
		{nil, Options{CAFile: "/nowhere"}, "/nowhere"},
		{nil, Options{ClientCert: "/nowhere"}, "key"},
	} {
		t.Run(step.says, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			_, err := New(step.options)
			kvtest.Wants(t, err, step.says)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("it shows a secret: %v", err)
			}
		})
	}
}

func TestConsulOverTLS(t *testing.T) {
	files, err := testenv.MakeTLSFiles(t.TempDir())
	kvtest.Must(t, err)
	c := testenv.StartConsul(t, testenv.ConsulOptions{TLS: files, Config: `tls { https { verify_incoming = true } }`})
	_, port, _ := net.SplitHostPort(c.Addr)
	folder := t.TempDir()
	ca, err := os.ReadFile(files.CA)
	kvtest.Must(t, err)
	kvtest.Must(t, os.WriteFile(filepath.Join(folder, "ca.pem"), ca, 0o600))
	mine := Options{Addr: c.Addr, TLS: true, CAFile: files.CA, ClientCert: files.Cert, ClientKey: files.Key}
	without := func(change func(*Options)) Options {
		o := mine
		change(&o)
		return o
	}
	for _, step := range []struct {
		remark  string
		env     map[string]string
		options Options
		says    string // of the error; "": it works
	}{
		{"all that is needed", nil, mine, ""},
		{"by name", nil, without(func(o *Options) { o.Addr = "localhost:" + port }), ""},
		{"of an authority in a folder", nil, without(func(o *Options) { o.CAFile, o.CAPath = "", folder }), ""},
		{"another authority", nil, without(func(o *Options) { o.CAFile = "" }), "certificate"},
		{"another name", nil, without(func(o *Options) { o.TLSServerName = "elsewhere" }), "elsewhere"},
		{"that name", nil, without(func(o *Options) { o.TLSServerName = "localhost" }), ""},
		{"no certificate to show", nil, without(func(o *Options) { o.ClientCert, o.ClientKey = "", "" }), "certificate required"},
		{"no TLS", nil, without(func(o *Options) { o.TLS = false }), "HTTP request to an HTTPS server"},
		{"by environment", map[string]string{
			"CONSUL_HTTP_SSL": "true", "CONSUL_CACERT": files.CA, "CONSUL_CLIENT_CERT": files.Cert, "CONSUL_CLIENT_KEY": files.Key,
		}, Options{Addr: c.Addr}, ""},
		{"by environment, without a look at the certificate", map[string]string{
			"CONSUL_HTTP_ADDR": "https://" + c.Addr, "CONSUL_HTTP_SSL_VERIFY": "false", "CONSUL_CLIENT_CERT": files.Cert, "CONSUL_CLIENT_KEY": files.Key,
		}, Options{}, ""},
	} {
		t.Run(step.remark, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			err := kvtest.Put(open(t, step.options), "a/1", "1")
			if step.says != "" {
				kvtest.Wants(t, err, step.says, port)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConsulOnASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "consul.sock")
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, Config: `addresses { http = "127.0.0.1 unix://` + socket + `" }`})
	t.Setenv("CONSUL_HTTP_ADDR", "unix://"+socket)
	if err := kvtest.Put(open(t, Options{Token: c.Token}), "a/1", "1"); err != nil {
		t.Error(err)
	}
	_, err := open(t, Options{}).List(t.Context(), kv.Query{Prefix: "a/"})
	denied(t, err, c.Token, "unix://"+socket)
}
