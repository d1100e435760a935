// Package proc starts the programs that a benchmark runs against, and reads what
// they used.
package proc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Program says what to run, and when it is up.
type Program struct {
	Name string        // for messages, and of the log file
	Path string        // of the executable
	Args []string      //
	Env  []string      // beside the caller's own; a later NAME=value wins
	Dir  string        // where it runs, and where its log NAME.log is written
	Addr string        // up when it accepts TCP connections here
	Wait time.Duration // how long that may take; 0: 30s
}

// Process is a program that runs.
type Process struct {
	Name string
	PID  int
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Command is a command that ends, with all that it started, when the context
// does.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // go, and what it has built
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // for children that keep the output open
	return cmd
}

// Group starts programs and ends them. The zero value is ready; it is for one
// goroutine at a time.
type Group struct{ running []*Process }

// Start runs a program and returns when it is up. It has a process group of its
// own, so that Ctrl-C in a terminal reaches the benchmark alone, which then ends
// it; on Linux it ends also when the benchmark is killed.
func (g *Group) Start(ctx context.Context, p Program) (*Process, error) {
	logfile := filepath.Join(p.Dir, p.Name+".log")
	out, err := os.Create(logfile)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", p.Name, err)
	}
	defer out.Close() // the child has its own
	// Not CommandContext: Close ends it, with time to finish.
	cmd := exec.Command(p.Path, p.Args...) //nolint:gosec,noctx // it runs what it was asked to benchmark, until Close
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = ownGroup()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Path, err)
	}
	proc := &Process{Name: p.Name, PID: cmd.Process.Pid, log: logfile, cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(proc.done)
	}()
	g.running = append(g.running, proc)
	return proc, proc.waitUp(ctx, p)
}

func (p *Process) waitUp(ctx context.Context, prog Program) error {
	if prog.Wait == 0 {
		prog.Wait = 30 * time.Second
	}
	deadline := time.NewTimer(prog.Wait)
	defer deadline.Stop()
	for !accepts(ctx, prog.Addr) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was up (%v): %s", p.Name, p.cmd.ProcessState, p.Tail())
		case <-deadline.C:
			return fmt.Errorf("%s does not listen on %s after %v: %s", p.Name, prog.Addr, prog.Wait, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond): // a foreign process: there is nothing to be told by
		}
	}
	return nil
}

func accepts(ctx context.Context, addr string) bool {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// Tail is the end of what the program has printed.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// Alive is nil while the program runs, else it says how it ended.
func (p *Process) Alive() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended (%v): %s", p.Name, p.cmd.ProcessState, p.Tail())
	default:
		return nil
	}
}

// Close ends all programs, the last first, each by its process id: by SIGTERM,
// and by SIGKILL what still runs five seconds later.
func (g *Group) Close() {
	var wg sync.WaitGroup
	for i := len(g.running) - 1; i >= 0; i-- {
		p := g.running[i]
		_ = syscall.Kill(-p.PID, syscall.SIGTERM)
		wg.Go(func() {
			select {
			case <-p.done:
			case <-time.After(5 * time.Second):
				_ = syscall.Kill(-p.PID, syscall.SIGKILL)
				<-p.done
			}
		})
	}
	wg.Wait()
	g.running = nil
}

// Ports hands out ports of 127.0.0.1 that nobody listens on, each once.
type Ports struct{ next, last int }

// ParsePorts reads a range such as 15700-15790.
func ParsePorts(s string) (*Ports, error) {
	var p Ports
	if n, err := fmt.Sscanf(s, "%d-%d", &p.next, &p.last); n != 2 || err != nil || p.next < 1 || p.last > 65535 || p.next > p.last {
		return nil, fmt.Errorf("ports %q: want FIRST-LAST, such as 15700-15790", s)
	}
	return &p, nil
}

// ErrNoPorts says that the range is used up.
var ErrNoPorts = errors.New("no free port is left in the range; give another by -ports")

// Take returns the next free port, as text.
func (p *Ports) Take(ctx context.Context) (string, error) {
	for p.next <= p.last {
		port := strconv.Itoa(p.next)
		p.next++
		var c net.ListenConfig
		l, err := c.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err == nil {
			_ = l.Close()
			return port, nil
		}
	}
	return "", ErrNoPorts
}
