// Package systemd_test holds the units against systemd, and runs what they run. No
// systemd is started: nothing here shows that the sandbox lets Weir work.
package systemd_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/testenv"
)

const installed = "/usr/local/bin/weir"

var units = []string{"weir.service", "weir-worker.service"}

// analyze runs systemd-analyze on the units, as if Weir was installed here.
func analyze(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	dir := t.TempDir()
	for _, name := range units {
		text := strings.ReplaceAll(read(t, name), installed, testenv.WeirBinary(t))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), path, append(args, filepath.Join(dir, name))...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("%s of %s: %v\n%s", args[0], name, err, out)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSystemdTakesTheUnits(t *testing.T) { analyze(t, "verify", "--man=no") }

// 10 is no protection, 2 and less is what systemd calls OK.
func TestTheUnitsLeaveLittleOpen(t *testing.T) {
	analyze(t, "security", "--offline=yes", "--threshold=20")
}

// values are those of all lines NAME=… of a unit.
func values(unit, name string) (all []string) {
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			all = append(all, value)
		}
	}
	return all
}

func TestWhatTheUnitsRunTellsSystemdHowItStands(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	rules := filepath.Dir(testenv.WriteFile(t, "rules.yaml", "rules: [{endpoint: /x, limit: 5, window: 1h}]"))
	for name, ofFile := range map[string][]string{
		"weir.service":        {"WEIR_GRPC_ADDR=127.0.0.1:0", "WEIR_HTTP_ADDR=127.0.0.1:0", "WEIR_STORE=redis://" + redis.Addr},
		"weir-worker.service": {"WEIR_UPSTREAM=http://127.0.0.1:1", "WEIR_STORE=redis://" + redis.Addr},
	} {
		t.Run(name, func(t *testing.T) {
			unit := read(t, name)
			command := strings.Fields(values(unit, "ExecStart")[0])
			if command[0] != installed {
				t.Fatalf("it runs %s", command[0])
			}
			socket := filepath.Join(t.TempDir(), "notify")
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			env := append(values(unit, "Environment"), ofFile...)
			for i := range env {
				env[i] = strings.NewReplacer("/etc/weir/rules", rules, "/var/lib/weir", t.TempDir()).Replace(env[i])
			}
			weir := testenv.Start(t, testenv.Program{Path: testenv.WeirBinary(t), Args: command[1:], Env: append(env, "NOTIFY_SOCKET="+socket)})
			told := func() string {
				t.Helper()
				buf := make([]byte, 4096)
				_ = manager.SetReadDeadline(time.Now().Add(30 * time.Second))
				n, err := manager.Read(buf)
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("it tells nothing; it prints\n%s", weir.Output())
				}
				return string(buf[:n])
			}
			if got := told(); !strings.HasPrefix(got, "READY=1") {
				t.Errorf("it begins with %q", got)
			}
			if err := weir.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if got := told(); got != "STOPPING=1" {
				t.Errorf("it ends with %q", got)
			}
			if code := weir.ExitCode(t, 30*time.Second); code != 0 {
				t.Errorf("it ends with %d, which systemd takes for a failure", code)
			}
		})
	}
}
