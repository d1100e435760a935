package redis

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/limiter"
)

func TestTLSFilesSayWhomToTrustAndWhatToShow(t *testing.T) {
	t.Parallel()
	servers, clients := testenv.NewAuthority(t), testenv.NewAuthority(t)
	dir := t.TempDir()
	server := servers.MustIssue(t, dir, testenv.Leaf{Name: "server"})
	elsewhere := servers.MustIssue(t, dir, testenv.Leaf{Name: "elsewhere", SANs: []string{"redis.example.org"}})
	client := clients.MustIssue(t, t.TempDir(), testenv.Leaf{})
	open := testenv.StartRedis(t, testenv.RedisOptions{TLS: server}).Addr
	mutual := testenv.StartRedis(t, testenv.RedisOptions{TLS: server, Args: []string{"--tls-ca-cert-file", client.CA, "--tls-auth-clients", "yes"}}).Addr
	named := testenv.StartRedis(t, testenv.RedisOptions{TLS: elsewhere}).Addr
	for _, c := range []struct {
		remark, addr string
		files        TLSFiles
		want         string // in the log; empty: Redis decides
	}{
		{"whom the system trusts", open, TLSFiles{}, "--store-ca-file"},
		{"the authority", open, TLSFiles{CAFile: server.CA}, ""},
		{"another authority", open, TLSFiles{CAFile: client.CA}, "--store-ca-file"},
		{"another authority, any name", open, TLSFiles{CAFile: client.CA, ServerName: AnyName}, "--store-ca-file"},
		{"no certificate", mutual, TLSFiles{CAFile: server.CA}, "--store-cert-file"},
		{"a certificate of another authority", mutual, TLSFiles{CAFile: server.CA, CertFile: server.Cert, KeyFile: server.Key}, "--store-cert-file"},
		{"a certificate", mutual, TLSFiles{CAFile: server.CA, CertFile: client.Cert, KeyFile: client.Key}, ""},
		{"another name", named, TLSFiles{CAFile: server.CA}, "--store-tls-server-name"},
		{"the name", named, TLSFiles{CAFile: server.CA, ServerName: "redis.example.org"}, ""},
		{"any name", named, TLSFiles{CAFile: server.CA, ServerName: AnyName}, ""},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			if c.want == "" {
				s := openURL(t, Options{URL: "rediss://" + c.addr, TLS: c.files})
				decide(t, s, hit("k", perYear(5), 1))
				return
			}
			var book *logBook
			await(t, "the last attempt is not cut short", func() bool {
				book = new(logBook)
				s := openAny(t, Options{URL: "rediss://" + c.addr, TLS: c.files, Logger: book.logger(), Timeout: time.Second, Events: Events{Failed: ignored}}, 200*time.Millisecond)
				if s.Healthy() {
					t.Error("it passes for healthy")
				}
				return strings.Contains(book.String(), "tls:") || strings.Contains(book.String(), "x509:")
			})
			if !strings.Contains(book.String(), c.want) {
				t.Errorf("the log has no %q:\n%s", c.want, book.String())
			}
		})
	}
}

func TestTLSFilesThatCannotBeUsedAreErrors(t *testing.T) {
	t.Parallel()
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	other := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		remark, url string
		files       TLSFiles
		want        string
		ofURL       bool
	}{
		{"no TLS", "redis://host", TLSFiles{CAFile: files.CA}, "rediss://host", true},
		{"no TLS, several hosts", "redis+cluster://a,b", TLSFiles{CAFile: files.CA}, "?tls=true", true},
		{"whom to trust, and to trust anybody", "rediss://host?skip_verify=true", TLSFiles{CAFile: files.CA}, "skip_verify", true},
		{"a certificate without its key", "rediss://host", TLSFiles{CertFile: files.Cert}, "go together", true},
		{"a file that is not there", "rediss://host", TLSFiles{CAFile: "/nowhere/ca.pem"}, "/nowhere/ca.pem", false},
		{"a file of something else", "rediss://host", TLSFiles{CAFile: files.Key}, files.Key + " has no certificate", false},
		{"the key of another", "redis+sentinel://a/m?tls=true", TLSFiles{CertFile: files.Cert, KeyFile: other.Key}, other.Key, false},
	} {
		s, err := Open(ended, Options{URL: c.url, TLS: c.files, Local: limiter.NewStandby(limiter.MemoryOptions{})})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: no error", c.remark)
			continue
		}
		if errors.Is(err, ErrURL) != c.ofURL || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.remark, err, c.want)
		}
	}
}

// Redis comes back with certificates of a new authority, and so do the files. In
// between, one of them is half written.
func TestRenewedTLSFilesAreUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issue := func() (server, client *testenv.TLSFiles) {
		a := testenv.NewAuthority(t)
		return a.MustIssue(t, t.TempDir(), testenv.Leaf{}), a.MustIssue(t, dir, testenv.Leaf{})
	}
	mutual := []string{"--tls-auth-clients", "yes"}
	server, client := issue()
	r := testenv.StartRedis(t, testenv.RedisOptions{TLS: server, Args: mutual})
	s := openURL(t, Options{URL: "rediss://" + r.Addr, TLS: TLSFiles{CAFile: client.CA, CertFile: client.Cert, KeyFile: client.Key},
		Timeout: time.Second, Events: Events{Failed: ignored}})
	decides := func() bool {
		decide(t, s, hit("k", perYear(100_000), 1))
		return s.Healthy()
	}
	away := func() bool { return !decides() }

	if err := os.WriteFile(filepath.Join(dir, "key.pem"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Stop(t)
	await(t, "Redis is away", away)
	r = testenv.StartRedis(t, testenv.RedisOptions{Addr: r.Addr, TLS: server, Args: mutual})
	await(t, "it decides with the files of before", decides)

	server, _ = issue()
	r.Stop(t)
	await(t, "Redis is away", away)
	testenv.StartRedis(t, testenv.RedisOptions{Addr: r.Addr, TLS: server, Args: mutual})
	await(t, "it decides with the new ones", decides)
}

func TestSentinelsMayHaveAPassword(t *testing.T) {
	t.Parallel()
	set := testenv.StartSentinel(t, testenv.SentinelOptions{Replicas: 1, Sentinels: 1})
	set.Sentinels[0].MustDo(t, "ACL", "SETUSER", "default", "resetpass", ">p&ss")
	url := "redis+sentinel://" + set.Addrs() + "/" + set.Name
	if s := openAny(t, Options{URL: url, Events: Events{Failed: ignored}}, 500*time.Millisecond); s.Healthy() {
		t.Error("the sentinels tell without a password")
	}
	decide(t, openURL(t, Options{URL: url + "?sentinel_password=p%26ss"}), hit("k", perYear(5), 1))
}
