package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Program says what to run, and when it is up. With neither Addr nor Line it is
// up once it is started.
type Program struct {
	Path string
	Args []string
	Dir  string        // where it runs; empty: the test's folder
	Env  []string      // beside the test's own environment; a later NAME=value wins
	Addr string        // up when it accepts TCP connections here (a unix socket's path, if it begins with /)
	And  []string      // and at all of these addresses
	Line string        // up when its output has this text
	Wait time.Duration // how long that may take; 0: 30s
}

// Process is a program that runs.
type Process struct {
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
}

// Start runs the program and returns when it is up. It ends with the test: its
// whole process group is killed. The output is shown if the test fails.
func Start(t testing.TB, p Program) *Process {
	t.Helper()
	proc, err := start(t.Context(), p)
	if proc != nil {
		t.Cleanup(func() {
			proc.Kill()
			if t.Failed() {
				t.Logf("output of %s:\n%s", proc.name, tail(proc.Output(), 64<<10))
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

// start returns the process also when it does not come up, for its output.
func start(ctx context.Context, p Program) (*Process, error) {
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir = p.Dir
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = ownGroup()
	cmd.WaitDelay = 5 * time.Second // for children that keep the output open
	proc := &Process{name: filepath.Base(p.Path), cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &proc.out, &proc.out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("testenv: start %s: %w", p.Path, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(proc.done)
	}()
	return proc, proc.waitUp(ctx, p)
}

func (p *Process) waitUp(ctx context.Context, prog Program) error {
	wait := prog.Wait
	if wait == 0 {
		wait = 30 * time.Second
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		if (prog.Line == "" || p.out.contains(prog.Line)) && prog.accepts() {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("testenv: %s ended before it was up: %v", p.name, p.cmd.ProcessState)
		case <-deadline.C:
			return fmt.Errorf("testenv: %s is not up after %v (addr %q, line %q)", p.name, wait, prog.Addr, prog.Line)
		case <-ctx.Done():
			return fmt.Errorf("testenv: wait for %s: %w", p.name, ctx.Err())
		case <-time.After(10 * time.Millisecond): // a foreign process: there is nothing to be told by
		}
	}
}

func (prog Program) accepts() bool {
	for _, addr := range append([]string{prog.Addr}, prog.And...) {
		if addr != "" && !accepts(addr) {
			return false
		}
	}
	return true
}

func accepts(addr string) bool {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is what the program has printed so far, on both streams.
func (p *Process) Output() string { return p.out.String() }

// Runs tells whether the program has not ended.
func (p *Process) Runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the program, not to its children.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("testenv: signal %s: %w", p.name, err)
	}
	return nil
}

// Kill ends the program and its children at once. It may be called again.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.done
}

// Stop asks the program to end (SIGTERM), and returns its exit code. The test
// fails if it takes longer than 30 s.
func (p *Process) Stop(t testing.TB) int {
	t.Helper()
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	return p.ExitCode(t, 30*time.Second)
}

// ExitCode waits for the program's end and returns its exit code, -1 if a signal
// ended it. The test fails if it takes longer than wait.
func (p *Process) ExitCode(t testing.TB, wait time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(wait):
		t.Fatalf("testenv: %s still runs after %v", p.name, wait)
	}
	return p.cmd.ProcessState.ExitCode()
}

// output keeps what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) contains(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.buf.Bytes(), []byte(text))
}

// tail is the end of a text, in whole lines where that is possible.
func tail(text string, size int) string {
	if len(text) <= size {
		return text
	}
	text = text[len(text)-size:]
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return "…\n" + text
}
