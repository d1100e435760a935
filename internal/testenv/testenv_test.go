package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// helperEnv makes the test binary a helper program instead: see TestMain.
const helperEnv = "WEIR_TESTENV_HELPER"

// TestMain lets tests run this binary as another test process: it prints ports
// that it reserved, and holds them until its standard input ends.
func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	for range 250 { // more than two blocks
		port, err := ports.take()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(port)
	}
	fmt.Println("all")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestPortsAreDistinctAcrossProcesses(t *testing.T) {
	t.Parallel()
	seen := map[int]string{}
	add := func(port int, who string) {
		if other, dup := seen[port]; dup {
			t.Errorf("port %d was given to %s and to %s", port, other, who)
		}
		seen[port] = who
	}
	for i := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), helperEnv+"=1")
		hold, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hold.Close(); _ = cmd.Wait() })
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "all" {
			port, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(lines.Text())
			}
			add(port, fmt.Sprintf("process %d", i))
		}
	}
	for _, port := range FreePorts(t, 50) {
		add(port, "this process")
	}
	if want := 4*250 + 50; len(seen) != want {
		t.Errorf("%d ports, want %d", len(seen), want)
	}
}

func TestPortInUseIsNotGivenOut(t *testing.T) {
	t.Parallel()
	var book portBook
	for {
		port, err := book.take()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		if err != nil { // the next one has another listener
			continue
		}
		defer l.Close()
		if next, err := book.take(); err != nil || next == port+1 {
			t.Errorf("after %d came %d, which has a listener (%v)", port, next, err)
		}
		return
	}
}

func TestStartWaitsForLineAndEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	var child int
	t.Run("run", func(t *testing.T) {
		p := Start(t, Program{
			Path: "sh",
			Args: []string{"-c", `sleep 300 & echo "child $!"; wait`},
			Line: "child ",
		})
		if _, err := fmt.Sscanf(p.Output(), "child %d", &child); err != nil {
			t.Fatalf("output %q: %v", p.Output(), err)
		}
	})
	for range 500 { // init reaps it in its own time
		if gone(child) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d, a child of a program, has outlived the test", child)
}

// gone says whether a process has ended, be it that nobody has reaped it.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

func TestStartSaysWhyAProgramIsNotUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		prog Program
		want string
	}{
		{"there is none", Program{Path: "/nonexistent/program"}, "start /nonexistent/program"},
		{"it ends", Program{Path: "sh", Args: []string{"-c", "echo oops >&2; exit 3"}, Line: "ready"}, "sh ended before it was up: exit status 3"},
		{"it hangs", Program{Path: "sleep", Args: []string{"300"}, Line: "ready", Wait: 50 * time.Millisecond}, "sleep is not up after 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := start(t.Context(), c.prog)
			if p != nil {
				t.Cleanup(p.Kill)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestInstallSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hasApt bool
		uid    int
		want   string
	}{
		{true, 0, ""},
		{true, 1000, "only root can install it: sudo apt-get install redis-server"},
		{false, 0, "there is no apt-get"},
	} {
		err := canApt("redis-server", c.hasApt, c.uid)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("with apt %v as user %d: error %v, want one with %q", c.hasApt, c.uid, err, c.want)
		}
	}
	never := func() (string, bool) { return "", false }
	if _, err := findOrInstall(never, func(io.Writer) error { return nil }); err == nil {
		t.Error("an installation that brings nothing is no error")
	}
}

func TestInstallsAreOneAtATimeAndOnce(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "program")
	find := func() (string, bool) {
		_, err := os.Stat(marker)
		return marker, err == nil
	}
	var installs int // not guarded: the lock does it, and -race checks that
	install := func(io.Writer) error {
		installs++
		return os.WriteFile(marker, nil, 0o600)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := findOrInstall(find, install); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if installs != 1 {
		t.Errorf("installed %d times, want once", installs)
	}
}

func TestCommandShowsProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := command(&out, "sh", "-c", "echo one; echo two >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("error %v", err)
	}
	if want := "testenv:   one\ntestenv:   two\n"; out.String() != want {
		t.Errorf("shown %q, want %q", out.String(), want)
	}
}

func TestRedisStopsAndComesBack(t *testing.T) {
	t.Parallel()
	r := StartRedis(t, RedisOptions{})
	if got := ping(t, r.Addr); got != "+PONG\r\n" {
		t.Errorf("PING answered %q", got)
	}
	if code := r.Stop(t); code != 0 {
		t.Errorf("stopped with exit code %d", code)
	}
	if accepts(r.Addr) {
		t.Error("still accepts connections after Stop")
	}
	StartRedis(t, RedisOptions{Addr: r.Addr})
	if got := ping(t, r.Addr); got != "+PONG\r\n" {
		t.Errorf("PING answered %q after a restart on the same port", got)
	}
}

func ping(t *testing.T, addr string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEnvoyServes(t *testing.T) {
	t.Parallel()
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	StartEnvoy(t, EnvoyOptions{Addr: addr, Config: fmt.Sprintf(`
static_resources:
  listeners:
    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: %s}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: http
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: {prefix: /}
                          direct_response: {status: 418}
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
`, port)})
	resp, err := http.Get("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestTailKeepsWholeLines(t *testing.T) {
	t.Parallel()
	if got := tail("one\ntwo\nthree\n", 8); got != "…\nthree\n" {
		t.Errorf("tail is %q", got)
	}
	if got := tail("one\n", 8); got != "one\n" {
		t.Errorf("tail is %q", got)
	}
}
