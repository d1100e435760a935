package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// consulVersion is the version in consul/go.mod, a module of its own: what
// Consul needs is not what Weir needs.
const consulVersion = "1.14.11"

// FindConsul returns the path of Consul, built from source if need be: that takes
// some minutes, once. A consul on PATH may be any version from 1.14 on.
func FindConsul() (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	built := filepath.Join(parent, "consul-"+consulVersion)
	find := func() (string, bool) {
		if path, ok := onPath("consul")(); ok {
			return path, true
		}
		_, err := os.Stat(built)
		return built, err == nil
	}
	return findOrInstall(find, func(progress io.Writer) error { return buildConsul(progress, built) })
}

// buildConsul builds beside the place and then moves the binary there, so that
// what stands there is whole.
func buildConsul(progress io.Writer, path string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	// A build that was interrupted leaves its folder; the lock says that none runs.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "consul-new-*"))
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), "consul-new-")
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	begin := time.Now()
	say(progress, "building consul %s from source, once: some minutes…", consulVersion)
	built := filepath.Join(temp, "consul")
	module := filepath.Join(root, "internal", "testenv", "consul")
	err = goBuild(progress, 20*time.Second, module,
		"-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", built, "github.com/hashicorp/consul")
	if err != nil {
		return err
	}
	if err := os.Rename(built, path); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	say(progress, "built consul %s in %v", consulVersion, time.Since(begin).Round(time.Second))
	return nil
}

// goBuild runs `go build` in the folder of a module, and says each time that
// every has passed how far it is; what go prints is shown only if it fails.
func goBuild(progress io.Writer, every time.Duration, module string, args ...string) error {
	args = append([]string{"build", "-C", module, "-v"}, args...) // -v names each package as it is compiled
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var log buildLog
	cmd.Stdout, cmd.Stderr = &log, &log
	done := make(chan struct{})
	var ticks sync.WaitGroup
	ticks.Go(func() {
		begin, tick := time.Now(), time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				say(progress, "  %v: %s", time.Since(begin).Round(time.Second), log.summary())
			case <-done:
				return
			}
		}
	})
	err := cmd.Run()
	close(done)
	ticks.Wait()
	if err != nil {
		return fmt.Errorf("testenv: go %s: %w\n%s", strings.Join(args, " "), err, tail(log.out.String(), 8<<10))
	}
	return nil
}

// buildLog keeps what `go build -v` prints: a line for each module that it
// downloads, and for each package that it compiles.
type buildLog struct{ out output }

func (l *buildLog) Write(b []byte) (int, error) { return l.out.Write(b) }

func (l *buildLog) summary() string {
	text := l.out.String()
	modules := strings.Count("\n"+text, "\ngo: downloading ")
	packages := strings.Count(text, "\n") - modules
	return fmt.Sprintf("%d modules downloaded, %d packages compiled", modules, packages)
}
