package testenv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"testing"
)

// EtcdOptions is how etcd is started.
type EtcdOptions struct {
	Addr string    // of its clients; empty: a free port; set: the address of one that was stopped
	Dir  string    // where it keeps data; empty: a folder that goes with the test; that of one that was stopped: goes on from there
	TLS  *TLSFiles // speak TLS to clients
	Args []string  // more arguments, such as "--client-cert-auth", "--trusted-ca-file", TLS.CA
}

// Etcd is an etcd server that runs.
type Etcd struct {
	*Process
	Addr   string // of its clients
	scheme string
	client *http.Client
}

// StartEtcd runs one etcd server on 127.0.0.1, a cluster of its own, and returns
// when it answers. It may be killed at any time, and started again with the same
// Dir and Addr.
func StartEtcd(t testing.TB, o EtcdOptions) *Etcd {
	t.Helper()
	path, err := FindEtcd()
	if err != nil {
		t.Fatal(err)
	}
	if o.Addr == "" {
		o.Addr = FreeAddr(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	e := &Etcd{Addr: o.Addr, scheme: "http", client: httpClient(t, o.TLS)}
	var tls []string
	if o.TLS != nil {
		e.scheme = "https"
		tls = []string{"--cert-file", o.TLS.Cert, "--key-file", o.TLS.Key}
	}
	peer := "http://" + FreeAddr(t) // where nobody calls
	args := []string{
		"--name", "weir", "--data-dir", o.Dir,
		"--listen-client-urls", e.URL(""), "--advertise-client-urls", e.URL(""),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "weir=" + peer,
		"--logger", "zap", "--log-level", "warn",
	}
	e.Process = Start(t, Program{
		Path: path, Args: append(append(args, tls...), o.Args...), Addr: o.Addr,
		// Older versions ask for this where they were less tested, as on arm64.
		Env: []string{"ETCD_UNSUPPORTED_ARCH=" + runtime.GOARCH},
	})
	awaitUp(t, e.Process, "is healthy", e.health)
	return e
}

func (e *Etcd) health() error {
	answer, err := e.do(http.MethodGet, "/health", nil)
	if err != nil {
		return err
	}
	var health struct{ Health string }
	if err := json.Unmarshal(answer, &health); err != nil || health.Health != "true" {
		return fmt.Errorf("testenv: etcd at %s says of its health: %q", e.Addr, answer)
	}
	return nil
}

// URL is that of a path of its HTTP API; of "", what clients are given.
func (e *Etcd) URL(path string) string { return e.scheme + "://" + e.Addr + path }

// etcdRange is a request of the HTTP API. Its bytes are base64 in JSON.
type etcdRange struct {
	Key   []byte `json:"key"`
	End   []byte `json:"range_end,omitempty"`
	Value []byte `json:"value,omitempty"`
}

// Put writes a key. Like the others here it works only while no one has switched
// authentication on.
func (e *Etcd) Put(t testing.TB, key, value string) {
	t.Helper()
	e.call(t, "put", etcdRange{Key: []byte(key), Value: []byte(value)}, nil)
}

// Get reads a key, and tells whether there is one.
func (e *Etcd) Get(t testing.TB, key string) (string, bool) {
	t.Helper()
	var answer struct{ Kvs []etcdRange }
	e.call(t, "range", etcdRange{Key: []byte(key)}, &answer)
	if len(answer.Kvs) == 0 {
		return "", false
	}
	return string(answer.Kvs[0].Value), true
}

// Delete removes a key; that there is none is fine.
func (e *Etcd) Delete(t testing.TB, key string) {
	t.Helper()
	e.call(t, "deleterange", etcdRange{Key: []byte(key)}, nil)
}

// DeleteTree removes all keys that begin with a prefix.
func (e *Etcd) DeleteTree(t testing.TB, prefix string) {
	t.Helper()
	e.call(t, "deleterange", prefixRange(prefix), nil)
}

// prefixRange is the range of all keys that begin with a prefix.
func prefixRange(prefix string) etcdRange {
	open := []byte{0} // as the end of a range: there is none
	if prefix == "" { // which is no key to begin with
		return etcdRange{Key: open, End: open}
	}
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return etcdRange{Key: []byte(prefix), End: end[:i+1]}
		}
	}
	return etcdRange{Key: []byte(prefix), End: open}
}

func (e *Etcd) call(t testing.TB, method string, in etcdRange, out any) {
	t.Helper()
	answer, err := e.do(http.MethodPost, "/v3/kv/"+method, jsonOf(t, in))
	if err != nil {
		t.Fatal(err)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(answer, out); err != nil {
		t.Fatalf("testenv: etcd at %s answered %q: %v", e.Addr, answer, err)
	}
}

func (e *Etcd) do(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, e.URL(path), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	return send(e.client, req)
}
