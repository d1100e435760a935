package consul

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	consulapi "github.com/hashicorp/consul/api"

	"weir/internal/testenv"
	"weir/rules/kv"
	"weir/rules/kv/kvtest"
)

func TestAMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	c.Put(t, "w/rules/1", "one")
	c.Put(t, "w/rules/2", "two")
	all := open(t, Options{Addr: c.Addr, Token: c.Token})
	const (
		read   = `key_prefix "w/rules/" { policy = "read" }`
		half   = `key "w/rules/1" { policy = "read" }`
		hole   = read + ` key "w/rules/1" { policy = "deny" }`
		write  = `key_prefix "w/rules/" { policy = "write" }`
		write1 = read + ` key "w/rules/1" { policy = "write" }`
		list   = `key_prefix "w/rules/" { policy = "list" }`
		allOf  = `service_prefix "" { policy = "read" } and node_prefix "" { policy = "read" }`
	)
	for _, step := range []struct {
		remark string
		rules  string
		do     string
		needs  string // "": it is allowed
	}{
		{"a listing without any right", "", "list", read},
		{"where there is nothing either", "", "list nothing", `key_prefix "w/empty/" { policy = "read" }`},
		{"a listing of which only a part may be read", half, "list", read},
		{"a listing with a hole in it", hole, "list", read},
		{"a listing that is allowed", read, "list", ""},
		{"and with another right", list, "list", ""},
		{"a wait", "", "wait", read},
		{"a put without any right", "", "put", `key "w/rules/1" { policy = "write" }`},
		{"a put by who may read", read, "put", `key "w/rules/1" { policy = "write" }`},
		{"a put of the one key that may be", write1, "put", ""},
		{"a put that is allowed", write, "put", ""},
		{"several of which one may not be put", write1, "put two", `key "w/rules/2" { policy = "write" }`},
		{"several of which none may", read, "put two", `key_prefix "w/rules/" { policy = "write" }`},
		{"a large put", read, "put large", `key "w/rules/1" { policy = "write" }`},
		{"a large put that is allowed", write, "put large", ""},
		{"a removal", read, "delete", `key "w/rules/1" { policy = "write" }`},
		{"a check", "", "check", `key "w/rules/1" { policy = "read" }`},
		{"a check that is allowed", read, "check", ""},
		{"a check that there is nothing", read, "check none", `key "w/rules/3" { policy = "write" }`},
		{"the catalog", "", "instances", allOf},
		{"the catalog where nodes may not be read", `service_prefix "" { policy = "read" }`, "instances", allOf},
		{"the catalog that is allowed", `service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`, "instances", ""},
	} {
		secret := c.ACLToken(t, step.rules)
		s := open(t, Options{Addr: c.Addr, Token: secret})
		before, err := all.List(t.Context(), kv.Query{Prefix: "w/"})
		kvtest.Must(t, err)
		err = do(s, step.do, before)
		t.Logf("%s: %v", step.remark, err)
		if step.needs == "" {
			if err != nil {
				t.Errorf("%s: %v", step.remark, err)
			}
			continue
		}
		denied(t, err, secret, step.needs+" is needed", c.Addr)
		after, err := all.List(t.Context(), kv.Query{Prefix: "w/"})
		kvtest.Must(t, err)
		if before.Index != after.Index {
			t.Errorf("%s: something was written", step.remark)
		}
	}
}

// do does something to what the test has written.
func do(s *Store, what string, now kv.Listing) (err error) {
	op := func(kind kv.OpKind, name string, version uint64, value string) kv.Op {
		return kv.Op{Kind: kind, Key: "w/rules/" + name, If: version, Value: []byte(value)}
	}
	commit := func(ops ...kv.Op) error {
		_, err := s.Commit(context.Background(), ops)
		return err
	}
	switch what {
	case "list":
		_, err = s.List(context.Background(), kv.Query{Prefix: "w/rules/"})
	case "list nothing":
		_, err = s.List(context.Background(), kv.Query{Prefix: "w/empty/"})
	case "wait":
		_, err = s.List(context.Background(), kv.Query{Prefix: "w/rules/", Since: 1, Wait: kvtest.Never, Stale: true})
	case "put":
		err = commit(op(kv.Put, "1", kv.AnyVersion, "new"))
	case "put two":
		err = commit(op(kv.Put, "1", kv.AnyVersion, "new"), op(kv.Put, "2", kv.AnyVersion, "new"))
	case "put large":
		err = commit(op(kv.Put, "1", kv.AnyVersion, strings.Repeat("x", limits.Value)))
	case "delete":
		err = commit(op(kv.Delete, "1", kv.AnyVersion, ""))
	case "check":
		err = commit(op(kv.Check, "1", now.Pairs[0].Version, ""))
	case "check none":
		err = commit(op(kv.Check, "3", 0, ""))
	case "instances":
		var all []Instance
		if all, err = s.Instances(context.Background(), "consul"); err == nil && len(all) != 1 { // itself
			err = errors.New("there is no instance")
		}
	}
	return err
}

// denied holds that an error is of a missing right, says which, and shows no
// secret.
func denied(t testing.TB, err error, secret string, says ...string) {
	t.Helper()
	if !errors.Is(err, kv.ErrDenied) {
		t.Errorf("%v, want %v", err, kv.ErrDenied)
		return
	}
	kvtest.Wants(t, err, says...)
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error shows the token: %v", err)
	}
}

// Consul does not tell those without a token that something was left out.
func TestWithoutATokenAMissingRightIsNamedToo(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	c.Put(t, "w/rules/1", "one")
	c.Put(t, "w/rules/2", "two")
	s := open(t, Options{Addr: c.Addr})
	now := kv.Listing{Pairs: []kv.Pair{{Version: 1}}}
	for _, what := range []string{"list", "list nothing", "wait", "put", "put two", "put large", "delete", "check", "check none"} {
		err := do(s, what, now)
		t.Logf("%s: %v", what, err)
		denied(t, err, c.Token, "policy = ", "a token (CONSUL_HTTP_TOKEN) with ")
	}
	allowAnonymous(t, c, `key "w/rules/1" { policy = "read" }`)
	denied(t, do(s, "list", now), c.Token, `key_prefix "w/rules/" { policy = "read" }`)
	allowAnonymous(t, c, `key_prefix "w/rules/" { policy = "read" }`)
	if err := do(s, "list", now); err != nil {
		t.Error(err)
	}
}

// allowAnonymous gives rights to who has no token.
func allowAnonymous(t testing.TB, c *testenv.Consul, rules string) {
	t.Helper()
	admin, err := newClient(Options{Addr: c.Addr, Token: c.Token})
	kvtest.Must(t, err)
	defer admin.close()
	policy, _, err := admin.ACL().PolicyCreate(&consulapi.ACLPolicy{Name: fmt.Sprintf("anonymous-%d", time.Now().UnixNano()), Rules: rules}, nil)
	kvtest.Must(t, err)
	_, _, err = admin.ACL().TokenUpdate(&consulapi.ACLToken{
		AccessorID: "00000000-0000-0000-0000-000000000002", Policies: []*consulapi.ACLLink{{ID: policy.ID}},
	}, nil)
	kvtest.Must(t, err)
}

func TestARightOfItsOwnForListsIsNamed(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, Config: `acl { enable_key_list_policy = true }`})
	c.Put(t, "w/rules/1", "one")
	secret := c.ACLToken(t, `key_prefix "w/rules/" { policy = "read" }`)
	err := do(open(t, Options{Addr: c.Addr, Token: secret}), "list", kv.Listing{})
	denied(t, err, secret, `key_prefix "w/rules/" { policy = "list" }`)
	secret = c.ACLToken(t, `key_prefix "w/rules/" { policy = "list" }`)
	if err := do(open(t, Options{Addr: c.Addr, Token: secret}), "list", kv.Listing{}); err != nil {
		t.Error(err)
	}
}

func TestATokenThatIsUnknownIsDenied(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	const secret = "11111111-2222-4333-8444-555555555555"
	s := open(t, Options{Addr: c.Addr, Token: secret})
	for _, what := range []string{"list", "wait", "put", "put two", "put large", "instances"} {
		err := do(s, what, kv.Listing{})
		t.Logf("%s: %v", what, err)
		denied(t, err, secret, "a token that this Consul knows", "ACL not found")
	}
}

func TestATokenFileThatIsRotatedIsTakenUp(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	c.Put(t, "w/rules/1", "one")
	file := filepath.Join(t.TempDir(), "token")
	kvtest.Must(t, os.WriteFile(file, []byte("11111111-2222-4333-8444-555555555555\n"), 0o600))
	s := open(t, Options{Addr: c.Addr, TokenFile: file, Token: "not this one"})
	if err := do(s, "list", kv.Listing{}); !errors.Is(err, kv.ErrDenied) {
		t.Errorf("with a wrong token: %v", err)
	}
	kvtest.Must(t, os.WriteFile(file, []byte(" "+c.ACLToken(t, `key_prefix "w/" { policy = "write" }`)+"\n"), 0o600))
	for _, what := range []string{"list", "put", "put large"} {
		if err := do(s, what, kv.Listing{}); err != nil {
			t.Errorf("%s after a rotation: %v", what, err)
		}
	}
	kvtest.Must(t, os.WriteFile(file, nil, 0o600)) // while it is being replaced
	if err := do(s, "list", kv.Listing{}); err != nil {
		t.Errorf("with an empty file: %v", err)
	}
	kvtest.Must(t, os.Remove(file))
	if err := do(s, "list", kv.Listing{}); err != nil {
		t.Errorf("without the file: %v", err)
	}
	if _, err := New(Options{TokenFile: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is not there at the start: %v", err)
	}
}
