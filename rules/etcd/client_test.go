package etcd

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weir/internal/testenv"
	"weir/rules/kv"
	"weir/rules/kv/kvtest"
)

func TestURLsOfEtcd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url       string
		endpoints []string
		prefix    string
		tls       bool
		says      string // of the error; "": none
	}{
		{"etcd://", nil, "weir/rules", false, ""},
		{"etcd:///a/b", nil, "a/b", false, ""},
		{"etcd://h", []string{"h:2379"}, "weir/rules", false, ""},
		{"etcd+https://h:1,[::1]/a", []string{"h:1", "[::1]:2379"}, "a", true, ""},
		{"etcd://h/a/", nil, "", false, "slash"},
		{"etcd://user:secret@h", nil, "", false, "no user"},
		{"consul://h/a", nil, "", false, "etcd://host:2379/weir/rules"},
	} {
		o, prefix, err := ParseURL(c.url)
		switch {
		case c.says != "":
			kvtest.Wants(t, err, c.says)
		case err != nil || !reflect.DeepEqual(o, Options{Endpoints: c.endpoints, TLS: c.tls}) || prefix != c.prefix:
			t.Errorf("%s: %+v, %q, %v", c.url, o, prefix, err)
		}
	}
}

// enableAuth makes a root with the password "root", and for each user, whose
// password is the name, a role with rights on prefixes.
func enableAuth(t testing.TB, e *testenv.Etcd, users map[string]map[string]clientv3.PermissionType) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr}})
	kvtest.Must(t, err)
	defer client.Close()
	ctx := context.Background()
	do := func(_ any, err error) { t.Helper(); kvtest.Must(t, err) }
	do(client.UserAdd(ctx, "root", "root"))
	do(client.RoleAdd(ctx, "root"))
	do(client.UserGrantRole(ctx, "root", "root"))
	for user, rights := range users {
		do(client.UserAdd(ctx, user, user))
		do(client.RoleAdd(ctx, user))
		do(client.UserGrantRole(ctx, user, user))
		for prefix, right := range rights {
			do(client.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), right))
		}
	}
	do(client.AuthEnable(ctx))
}

func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	e.Put(t, "w/rules/1", "one")
	const read, write, both = clientv3.PermissionType(clientv3.PermRead), clientv3.PermissionType(clientv3.PermWrite), clientv3.PermissionType(clientv3.PermReadWrite)
	enableAuth(t, e, map[string]map[string]clientv3.PermissionType{
		"nobody": nil,
		"half":   {"w/rules/1": read},
		"reader": {"w/rules/": read},
		"writer": {"w/rules/": write},
		"both":   {"w/rules/": both},
	})
	const toRead, toWrite, toCheck = `read on "w/rules/"`, "readwrite on w/rules/1", "read on w/rules/1"
	for _, step := range []struct {
		user, do string
		needs    string // "": it is allowed
	}{
		{"nobody", "list", toRead},
		{"nobody", "wait", toRead},
		{"nobody", "put", toWrite},
		{"nobody", "check", toCheck},
		{"half", "list", toRead},
		{"half", "wait", toRead},
		{"reader", "list", ""},
		{"reader", "wait", ""},
		{"reader", "check", ""},
		{"reader", "put", toWrite},
		{"reader", "put if", toWrite},
		{"reader", "delete", toWrite},
		{"writer", "list", toRead},
		{"writer", "put", ""},
		{"writer", "put if", toWrite},
		{"both", "list", ""},
		{"both", "put", ""},
		{"both", "put if", ""},
		{"both", "delete", ""},
		{"", "list", "a user (ETCDCTL_USER)"},
		{"", "put", "a user (ETCDCTL_USER)"},
	} {
		s := open(t, Options{Endpoints: []string{e.Addr}, User: step.user, Password: step.user})
		err := do(s, step.do)
		t.Logf("%s, %s: %v", step.user, step.do, err)
		if step.needs == "" {
			if err != nil {
				t.Errorf("%s, %s: %v", step.user, step.do, err)
			}
			continue
		}
		if !errors.Is(err, kv.ErrDenied) {
			t.Errorf("%s, %s: %v, want %v", step.user, step.do, err, kv.ErrDenied)
		}
		kvtest.Wants(t, err, step.needs, e.Addr, "user "+step.user)
	}
	for _, what := range []string{"list", "wait", "put"} {
		err := do(open(t, Options{Endpoints: []string{e.Addr}, User: "reader:secret"}), what)
		if !errors.Is(err, kv.ErrDenied) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with a wrong password: %v", err)
		}
		kvtest.Wants(t, err, "the password of user reader")
	}
}

// do does something to w/rules/1, which may have any version.
func do(s *Store, what string) (err error) {
	ctx := context.Background()
	commit := func(op kv.Op) error {
		op.Key = "w/rules/1"
		_, err := s.Commit(ctx, []kv.Op{op})
		if errors.Is(err, kv.ErrConflict) {
			return nil
		}
		return err
	}
	switch what {
	case "list":
		_, err = s.List(ctx, kv.Query{Prefix: "w/rules/"})
	case "wait":
		_, err = s.List(ctx, kv.Query{Prefix: "w/rules/", Since: 1, Wait: kvtest.Never, Stale: true})
	case "put":
		err = commit(kv.Op{Kind: kv.Put, If: kv.AnyVersion, Value: []byte("new")})
	case "put if":
		err = commit(kv.Op{Kind: kv.Put, If: 1, Value: []byte("new")})
	case "delete":
		err = commit(kv.Op{Kind: kv.Delete, If: kv.AnyVersion})
	case "check":
		err = commit(kv.Op{Kind: kv.Check, If: 1})
	}
	return err
}

// A server that is started again knows no login of before.
func TestALoginOutlivesTheServer(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), testenv.FreeAddr(t)
	s := open(t, Options{Endpoints: []string{addr}, User: "both", Password: "both"}) // before it is there
	kvtest.Fails(t, s, kv.Query{Prefix: "w/rules/"}, addr, "connection refused")
	e := testenv.StartEtcd(t, testenv.EtcdOptions{Addr: addr, Dir: dir})
	e.Put(t, "w/rules/1", "one")
	enableAuth(t, e, map[string]map[string]clientv3.PermissionType{"both": {"w/rules/": clientv3.PermissionType(clientv3.PermReadWrite)}})
	before := kvtest.List(t, s, kv.Query{Prefix: "w/rules/"})
	done := kvtest.Wait(t, s, kv.Query{Prefix: "w/rules/", Since: before.Index, Wait: kvtest.Never})
	kvtest.Must(t, kvtest.Put(s, "w/rules/1", "two"))
	if got := kvtest.Ended(t, done); kvtest.Values(got.Listing) != "two" {
		t.Errorf("%+v", got)
	}
	e.Kill()
	testenv.StartEtcd(t, testenv.EtcdOptions{Addr: addr, Dir: dir})
	now := kvtest.List(t, s, kv.Query{Prefix: "w/rules/"})
	done = kvtest.Wait(t, s, kv.Query{Prefix: "w/rules/", Since: now.Index, Wait: kvtest.Never})
	kvtest.Must(t, kvtest.Put(s, "w/rules/1", "three"))
	if got := kvtest.Ended(t, done); kvtest.Values(got.Listing) != "three" {
		t.Errorf("%+v", got)
	}
}

func TestALoginThatHangsIsLetGo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // which never says a word
	kvtest.Must(t, err)
	defer l.Close()
	s := open(t, Options{Endpoints: []string{l.Addr().String()}, User: "u", Password: "p"})
	kvtest.Fails(t, s, kv.Query{Prefix: "a/"}, l.Addr().String())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan kvtest.Listed, 1)
	go func() {
		l, err := s.List(ctx, kv.Query{Prefix: "a/"})
		done <- kvtest.Listed{Listing: l, Err: err}
	}()
	cancel()
	if got := kvtest.Ended(t, done); !errors.Is(got.Err, context.Canceled) {
		t.Errorf("of who leaves: %v", got.Err)
	}
}

func TestEtcdctlsOwnEnvironmentSaysWhatOptionsDoNot(t *testing.T) {
	e := testenv.StartEtcd(t, testenv.EtcdOptions{})
	e.Put(t, "w/rules/1", "one")
	enableAuth(t, e, map[string]map[string]clientv3.PermissionType{"both": {"w/rules/": clientv3.PermissionType(clientv3.PermReadWrite)}})
	for _, step := range []struct {
		remark  string
		env     map[string]string
		options Options
		works   bool
	}{
		{"endpoints and user", map[string]string{"ETCDCTL_ENDPOINTS": e.Addr, "ETCDCTL_USER": "both:both"}, Options{}, true},
		{"endpoints as URLs", map[string]string{"ETCDCTL_ENDPOINTS": "http://" + e.Addr + "/, http://localhost:1", "ETCDCTL_USER": "both:both"}, Options{}, true},
		{"a password apart", map[string]string{"ETCDCTL_ENDPOINTS": e.Addr, "ETCDCTL_USER": "both", "ETCDCTL_PASSWORD": "both"}, Options{}, true},
		{"the password of an option's user", map[string]string{"ETCDCTL_ENDPOINTS": e.Addr, "ETCDCTL_PASSWORD": "both"}, Options{User: "both"}, true},
		{"no user", map[string]string{"ETCDCTL_ENDPOINTS": e.Addr}, Options{}, false},
		{"options go before", map[string]string{"ETCDCTL_ENDPOINTS": "127.0.0.1:1", "ETCDCTL_USER": "x:y"}, Options{Endpoints: []string{e.Addr}, User: "both", Password: "both"}, true},
		{"with a password in the user", map[string]string{"ETCDCTL_USER": "x:y", "ETCDCTL_PASSWORD": "z"}, Options{Endpoints: []string{e.Addr}, User: "both:both"}, true},
		{"and a user without", map[string]string{"ETCDCTL_USER": "both:both"}, Options{Endpoints: []string{e.Addr}, User: "both", Password: "no"}, false},
	} {
		t.Run(step.remark, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			if err := do(open(t, step.options), "list"); (err == nil) != step.works {
				t.Error(err)
			}
		})
	}
}

func TestOptionsThatCanNeverWorkAreRefusedAtOnce(t *testing.T) {
	files, err := testenv.MakeTLSFiles(t.TempDir())
	kvtest.Must(t, err)
	for _, step := range []struct {
		remark  string
		env     map[string]string
		options Options
		says    string
	}{
		{"no password", nil, Options{User: "u"}, "ETCDCTL_PASSWORD"},
		{"no password in the environment", map[string]string{"ETCDCTL_USER": "u"}, Options{}, "ETCDCTL_PASSWORD"},
		{"no endpoint", map[string]string{"ETCDCTL_ENDPOINTS": " "}, Options{}, "ETCDCTL_ENDPOINTS"},
		{"a user in an endpoint", map[string]string{"ETCDCTL_ENDPOINTS": "http://user:secret@h"}, Options{}, "ETCDCTL_ENDPOINTS"},
		{"TLS and not", map[string]string{"ETCDCTL_ENDPOINTS": "http://a:1,https://b:2"}, Options{}, "ETCDCTL_ENDPOINTS"},
		{"no authority", map[string]string{"ETCDCTL_CACERT": "/nowhere"}, Options{}, "/nowhere"},
		{"no certificate in the authority", nil, Options{CAFile: files.Key}, files.Key},
		{"no certificate", nil, Options{CertFile: "/nowhere", KeyFile: files.Key}, "/nowhere"},
		{"no key", nil, Options{CertFile: files.Cert}, files.Cert},
	} {
		t.Run(step.remark, func(t *testing.T) {
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

func TestEtcdOverTLS(t *testing.T) {
	files, err := testenv.MakeTLSFiles(t.TempDir())
	kvtest.Must(t, err)
	e := testenv.StartEtcd(t, testenv.EtcdOptions{TLS: files, Args: []string{"--client-cert-auth", "--trusted-ca-file", files.CA}})
	_, port, _ := net.SplitHostPort(e.Addr)
	mine := Options{Endpoints: []string{e.Addr}, TLS: true, CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key}
	with := func(change func(*Options)) Options {
		o := mine
		change(&o)
		return o
	}
	env := map[string]string{"ETCDCTL_CACERT": files.CA, "ETCDCTL_CERT": files.Cert, "ETCDCTL_KEY": files.Key}
	for _, step := range []struct {
		remark  string
		env     map[string]string
		options Options
		says    string // of the error; "": it works
	}{
		{"all that is needed", nil, mine, ""},
		{"by files alone", nil, with(func(o *Options) { o.TLS = false }), ""},
		{"by name", nil, with(func(o *Options) { o.Endpoints = []string{"localhost:" + port} }), ""},
		{"several", nil, with(func(o *Options) { o.Endpoints = []string{"localhost:" + port, e.Addr} }), ""},
		{"another authority", nil, with(func(o *Options) { o.CAFile = "" }), "certificate"},
		{"another name", nil, with(func(o *Options) { o.ServerName = "elsewhere" }), "elsewhere"},
		{"that name", nil, with(func(o *Options) { o.ServerName = "localhost" }), ""},
		{"no certificate to show", nil, with(func(o *Options) { o.CertFile, o.KeyFile = "", "" }), ""},
		{"no TLS", nil, Options{Endpoints: []string{e.Addr}}, ""},
		{"by environment", env, Options{Endpoints: []string{e.Addr}}, ""},
	} {
		t.Run(step.remark, func(t *testing.T) {
			for name, value := range step.env {
				t.Setenv(name, value)
			}
			err := kvtest.Put(open(t, step.options), "a/1", "1")
			t.Log(err)
			if step.says != "" || strings.HasPrefix(step.remark, "no ") {
				kvtest.Wants(t, err, step.says, port)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("by the endpoint's scheme", func(t *testing.T) {
		t.Setenv("ETCDCTL_ENDPOINTS", "https://"+e.Addr)
		kvtest.Wants(t, kvtest.Put(open(t, Options{}), "a/1", "1"), "certificate")
		for name, value := range env {
			t.Setenv(name, value)
		}
		kvtest.Must(t, kvtest.Put(open(t, Options{}), "a/1", "1"))
	})
}
