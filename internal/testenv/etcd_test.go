package testenv

import "testing"

func TestEtcdKeepsItsDataAndStartsEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := StartEtcd(t, EtcdOptions{Dir: dir})
	e.Put(t, "weir/rules/a ?", "kept")
	addr := e.Addr
	for range 2 {
		e.Kill()
		e = StartEtcd(t, EtcdOptions{Dir: dir, Addr: addr})
		if got, ok := e.Get(t, "weir/rules/a ?"); !ok || got != "kept" {
			t.Errorf("after a restart on the same data the key holds %q, %v", got, ok)
		}
	}
	e.Kill()
	e = StartEtcd(t, EtcdOptions{Addr: addr})
	if got, ok := e.Get(t, "weir/rules/a ?"); ok {
		t.Errorf("on a new folder the key holds %q", got)
	}
}

func TestEtcdDeletes(t *testing.T) {
	t.Parallel()
	e := StartEtcd(t, EtcdOptions{})
	for _, key := range []string{"a/1", "a/2", "ab", "b"} {
		e.Put(t, key, "x")
	}
	e.Delete(t, "b")
	e.DeleteTree(t, "a/")
	for key, want := range map[string]bool{"a/1": false, "a/2": false, "ab": true, "b": false} {
		if _, ok := e.Get(t, key); ok != want {
			t.Errorf("%s is there: %v, want %v", key, ok, want)
		}
	}
	e.DeleteTree(t, "")
	if _, ok := e.Get(t, "ab"); ok {
		t.Error("the empty prefix leaves a key")
	}
}

func TestEtcdSpeaksTLS(t *testing.T) {
	t.Parallel()
	files, err := MakeTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--client-cert-auth", "--trusted-ca-file", files.CA}} {
		dir := t.TempDir()
		e := StartEtcd(t, EtcdOptions{Dir: dir, TLS: files, Args: args})
		e.Put(t, "a", "x")
		e.Kill()
		e = StartEtcd(t, EtcdOptions{Dir: dir, Addr: e.Addr, TLS: files, Args: args})
		if got, _ := e.Get(t, "a"); got != "x" {
			t.Errorf("with %q: the key holds %q", args, got)
		}
		plain := Etcd{Addr: e.Addr, scheme: "http", client: httpClient(t, nil)}
		if err := plain.health(); err == nil {
			t.Errorf("with %q: it answers without TLS", args)
		}
	}
}
