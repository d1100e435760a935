package testenv

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RedisOptions is how Redis is started.
type RedisOptions struct {
	Addr      string    // empty: a free port; set: the address of one that was stopped
	Dir       string    // where it keeps data; empty: a folder that goes with the test
	Password  string    // of the default user; empty: none
	Users     []string  // more users, as ACL SETUSER takes them: "weir on >secret ~weir:* +@all"
	Socket    bool      // listen on a unix socket too
	TLS       *TLSFiles // speak TLS instead of plain TCP
	MaxMemory string    // such as "1mb": refuse writes beyond it
	Args      []string  // more arguments, such as "--appendonly", "yes"
}

// Redis is a Redis server that runs.
type Redis struct {
	*Process
	Addr   string
	Socket string // a path, if the options ask for one
	auth   []string
	tls    *TLSFiles
}

// StartRedis runs a Redis server on 127.0.0.1 that writes nothing to disk, unless
// the options say so.
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	if o.Addr == "" {
		o.Addr = FreeAddr(t)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	host, port, err := net.SplitHostPort(o.Addr)
	if err != nil {
		t.Fatalf("testenv: address of Redis: %v", err)
	}
	r := &Redis{Addr: o.Addr, tls: o.TLS}
	args := []string{"--bind", host, "--dir", o.Dir, "--save", "", "--daemonize", "no"}
	if o.TLS != nil {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-cert-file", o.TLS.Cert, "--tls-key-file", o.TLS.Key, "--tls-ca-cert-file", o.TLS.CA, "--tls-auth-clients", "no")
	} else {
		args = append(args, "--port", port)
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password)
		r.auth = []string{"AUTH", o.Password}
	}
	for _, user := range o.Users {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	if o.Socket {
		r.Socket = filepath.Join(o.Dir, "redis.sock")
		args = append(args, "--unixsocket", r.Socket)
	}
	if o.MaxMemory != "" {
		args = append(args, "--maxmemory", o.MaxMemory, "--maxmemory-policy", "noeviction")
	}
	r.Process = startRedis(t, o.Addr, append(args, o.Args...))
	return r
}

func startRedis(t testing.TB, addr string, args []string) *Process {
	t.Helper()
	path, err := FindRedis()
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, Program{Path: path, Args: args, Addr: addr})
}

// Do runs a command. An array is answered as its members, one a line; nil is
// empty.
func (r *Redis) Do(args ...string) (string, error) { return redisDo(r.Addr, r.tls, r.auth, args) }

// MustDo is Do where an error ends the test.
func (r *Redis) MustDo(t testing.TB, args ...string) string {
	t.Helper()
	text, err := r.Do(args...)
	if err != nil {
		t.Fatalf("testenv: Redis at %s: %s: %v", r.Addr, strings.Join(args, " "), err)
	}
	return text
}

// Info is a field of INFO, such as "role"; empty: there is none, or no Redis.
func (r *Redis) Info(field string) string {
	text, err := r.Do("INFO", "everything")
	if err != nil {
		return ""
	}
	return infoField(text, field)
}

func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// longestWait is how long programs may take to agree: some seconds where the
// machine is idle.
const longestWait = 60 * time.Second

// await polls until what is true. The programs that tests start have no way to
// tell a test that something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(longestWait); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("testenv: not after %v: %s", longestWait, what)
		}
	}
}
