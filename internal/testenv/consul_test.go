package testenv

import (
	"net/http"
	"testing"
)

func TestConsulKeepsItsDataAndStartsEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := StartConsul(t, ConsulOptions{Dir: dir})
	c.Put(t, "weir/rules/a ?", "kept")
	addr := c.Addr
	for range 2 {
		c.Kill()
		c = StartConsul(t, ConsulOptions{Dir: dir, Addr: addr})
		if got, ok := c.Get(t, "weir/rules/a ?"); !ok || got != "kept" {
			t.Errorf("after a restart on the same data the key holds %q, %v", got, ok)
		}
	}
	c.Kill()
	c = StartConsul(t, ConsulOptions{Addr: addr})
	if got, ok := c.Get(t, "weir/rules/a ?"); ok {
		t.Errorf("on a new folder the key holds %q", got)
	}
}

func TestConsulDeletes(t *testing.T) {
	t.Parallel()
	c := StartConsul(t, ConsulOptions{})
	for _, key := range []string{"a/1", "a/2", "ab", "b"} {
		c.Put(t, key, "x")
	}
	c.Delete(t, "b")
	c.DeleteTree(t, "a/")
	for key, want := range map[string]bool{"a/1": false, "a/2": false, "ab": true, "b": false} {
		if _, ok := c.Get(t, key); ok != want {
			t.Errorf("%s is there: %v, want %v", key, ok, want)
		}
	}
}

func TestConsulSpeaksTLSAndAsksForRights(t *testing.T) {
	t.Parallel()
	files, err := MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := StartConsul(t, ConsulOptions{Dir: dir, TLS: files, ACL: true})
	c.Put(t, "a/1", "x")
	secret := c.ACLToken(t, `key_prefix "a/" { policy = "read" }`)
	none := c.ACLToken(t, "")
	check := func() {
		for _, row := range []struct {
			token, method, key string
			want               int
			remark             string
		}{
			{secret, http.MethodGet, "a/1", 200, "what the rules allow"},
			{secret, http.MethodPut, "a/1", 403, "reading is not writing"},
			{secret, http.MethodGet, "b", 403, "a key that the rules do not name"},
			{none, http.MethodGet, "a/1", 403, "no rules, no rights"},
			{"", http.MethodGet, "a/1", 403, "no token"},
			{c.Token, http.MethodGet, "b", 404, "the first token may do everything"},
		} {
			as := Consul{Addr: c.Addr, Token: row.token, scheme: c.scheme, client: c.client}
			_, err := as.do(row.method, kvPath(row.key, ""), nil)
			got := statusOf(err)
			if err == nil {
				got = 200
			}
			if got != row.want {
				t.Errorf("%s: %s %s: status %d, want %d (%v)", row.remark, row.method, row.key, got, row.want, err)
			}
		}
	}
	check()
	c.Kill()
	c = StartConsul(t, ConsulOptions{Dir: dir, Addr: c.Addr, TLS: files, ACL: true})
	check() // tokens are data too
	plain := Consul{Addr: c.Addr, Token: c.Token, scheme: "http", client: c.client}
	if _, err := plain.do(http.MethodGet, "/v1/status/leader", nil); err == nil {
		t.Error("it answers without TLS")
	}
}

func TestConsulTakesMoreConfiguration(t *testing.T) {
	t.Parallel()
	for _, config := range []string{
		`limits { kv_max_value_size = 3 }`,
		`{"limits": {"kv_max_value_size": 3}}`,
	} {
		c := StartConsul(t, ConsulOptions{Config: config})
		_, err := c.do(http.MethodPut, kvPath("a", ""), []byte("four"))
		if statusOf(err) != http.StatusRequestEntityTooLarge {
			t.Errorf("with %s a value of four bytes: %v", config, err)
		}
	}
}
