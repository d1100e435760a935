package testenv

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// ConsulOptions is how Consul is started.
type ConsulOptions struct {
	Addr   string    // of its HTTP API; empty: a free port; set: the address of one that was stopped
	Dir    string    // where it keeps data; empty: a folder that goes with the test; that of one that was stopped: goes on from there
	ACL    bool      // deny what no token allows
	TLS    *TLSFiles // speak HTTPS instead of HTTP
	Config string    // more configuration, as HCL or JSON; it wins over this package's
}

// Consul is a Consul server that runs.
type Consul struct {
	*Process
	Addr   string // of its HTTP API
	Token  string // may do everything; empty without ACL
	scheme string
	client *http.Client
}

// StartConsul runs one Consul server on 127.0.0.1, a cluster of its own, and
// returns when it takes writes. It may be killed at any time, and started again
// with the same Dir and Addr.
func StartConsul(t testing.TB, o ConsulOptions) *Consul {
	t.Helper()
	path, err := FindConsul()
	if err != nil {
		t.Fatal(err)
	}
	if o.Addr == "" {
		o.Addr = FreeAddr(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	c := &Consul{Addr: o.Addr, scheme: "http", client: httpClient(t, o.TLS)}
	if o.TLS != nil {
		c.scheme = "https"
	}
	if o.ACL {
		c.Token = consulToken
	}
	c.Process = Start(t, Program{Path: path, Args: append([]string{"agent"}, consulFiles(t, o)...), Addr: o.Addr})
	// A write that changes nothing: no key has the index 1, for the server's own
	// entries come before any. That it is refused has gone through the leader and
	// its log.
	awaitUp(t, c.Process, "takes writes", func() error {
		_, err := c.do(http.MethodPut, "/v1/kv/up?cas=1", []byte("?"))
		return err
	})
	return c
}

// consulToken is the token that may do everything, the same each time, so that a
// server that is started again knows it.
const consulToken = "00000000-0000-4000-8000-000000000001"

// consulFiles writes the configuration into the data folder, where it is in
// nobody's way, and returns the arguments that name it.
func consulFiles(t testing.TB, o ConsulOptions) []string {
	t.Helper()
	host, portText, err := net.SplitHostPort(o.Addr)
	if err != nil {
		t.Fatalf("testenv: address of Consul: %v", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatalf("testenv: address of Consul: %v", err)
	}
	// -1 is none. The others may change with each start: a server alone finds
	// itself in its data by its id, not by its address.
	own := FreePorts(t, 2)
	ports := map[string]int{
		"http": port, "https": -1, "server": own[0], "serf_lan": own[1],
		"serf_wan": -1, "dns": -1, "grpc": -1, "grpc_tls": -1,
	}
	config := map[string]any{
		"server": true, "bootstrap_expect": 1, "node_name": "consul", "data_dir": o.Dir,
		"bind_addr": "127.0.0.1", "client_addr": host, "ports": ports,
		"performance":          map[string]any{"raft_multiplier": 1}, // elect soon
		"log_level":            "warn",
		"disable_update_check": true,
	}
	if o.TLS != nil {
		ports["http"], ports["https"] = -1, port
		config["tls"] = map[string]any{"https": map[string]any{"ca_file": o.TLS.CA, "cert_file": o.TLS.Cert, "key_file": o.TLS.Key}}
	}
	if o.ACL {
		config["acl"] = map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]any{"initial_management": consulToken, "agent": consulToken},
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		t.Fatalf("testenv: configuration of Consul: %v", err)
	}
	name := filepath.Join(o.Dir, "weir-agent.json")
	args := []string{"-config-file", name}
	mustWrite(t, name, text)
	if o.Config != "" {
		more := filepath.Join(o.Dir, "weir-more.hcl") // Consul goes by the name
		if strings.HasPrefix(strings.TrimSpace(o.Config), "{") {
			more = filepath.Join(o.Dir, "weir-more.json")
		}
		mustWrite(t, more, []byte(o.Config))
		args = append(args, "-config-file", more)
	}
	return args
}

func mustWrite(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(fmt.Errorf("testenv: %w", err))
	}
}

// URL is that of something in the API: of a path such as "/v1/kv/key?raw".
func (c *Consul) URL(path string) string { return c.scheme + "://" + c.Addr + path }

// Put writes a key.
func (c *Consul) Put(t testing.TB, key, value string) {
	t.Helper()
	c.mustDo(t, http.MethodPut, kvPath(key, ""), []byte(value))
}

// Get reads a key, and tells whether there is one.
func (c *Consul) Get(t testing.TB, key string) (string, bool) {
	t.Helper()
	value, err := c.do(http.MethodGet, kvPath(key, "raw"), nil)
	if statusOf(err) == http.StatusNotFound {
		return "", false
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(value), true
}

// Delete removes a key; that there is none is fine.
func (c *Consul) Delete(t testing.TB, key string) {
	t.Helper()
	c.mustDo(t, http.MethodDelete, kvPath(key, ""), nil)
}

// DeleteTree removes all keys that begin with a prefix.
func (c *Consul) DeleteTree(t testing.TB, prefix string) {
	t.Helper()
	c.mustDo(t, http.MethodDelete, kvPath(prefix, "recurse"), nil)
}

// ACLToken makes a token with the rules given, as HCL, and returns its secret.
// With no rules it is a token that may do nothing.
func (c *Consul) ACLToken(t testing.TB, rules string) string {
	t.Helper()
	name := "test-" + rand.Text()
	c.mustDo(t, http.MethodPut, "/v1/acl/policy", jsonOf(t, map[string]any{"Name": name, "Rules": rules}))
	answer := c.mustDo(t, http.MethodPut, "/v1/acl/token", jsonOf(t, map[string]any{"Policies": []map[string]string{{"Name": name}}}))
	var token struct{ SecretID string }
	if err := json.Unmarshal(answer, &token); err != nil || token.SecretID == "" {
		t.Fatalf("testenv: Consul at %s answered %q to a new token: %v", c.Addr, answer, err)
	}
	return token.SecretID
}

// mustDo is do where an error ends the test.
func (c *Consul) mustDo(t testing.TB, method, path string, body []byte) []byte {
	t.Helper()
	answer, err := c.do(method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// do calls the API with the token that may do everything.
func (c *Consul) do(method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, c.URL(path), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	if c.Token != "" {
		req.Header.Set("X-Consul-Token", c.Token)
	}
	return send(c.client, req)
}

// kvPath is the path of a key in the API. A key may hold anything, a question
// mark too.
func kvPath(key, query string) string {
	u := url.URL{Path: "/v1/kv/" + key, RawQuery: query}
	return u.String()
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return text
}
