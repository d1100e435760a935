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

// ratelimitVersion is the version in ratelimit/go.mod, a module of its own. The
// project has no releases but v1.4.0 of 2019: each commit is one.
const ratelimitVersion = "1.4.1-0.20260122083618-3fb702589d36"

// FindConsul returns the path of Consul, built from source if need be: that takes
// some minutes, once. A consul on PATH may be any version from 1.14 on.
func FindConsul() (string, error) {
	return findOrBuild("consul", consulVersion, "github.com/hashicorp/consul", onPath("consul"))
}

// FindRatelimit returns the path of envoyproxy/ratelimit, which Weir is compared
// with, built from source if need be. It is this version and no other: the tests
// say what it does.
func FindRatelimit() (string, error) {
	return findOrBuild("ratelimit", ratelimitVersion, "github.com/envoyproxy/ratelimit/src/service_cmd", onPath())
}

// findOrBuild looks elsewhere, then in the cache folder, and builds what is in
// neither from the module in the folder of that name.
func findOrBuild(name, version, pkg string, elsewhere func() (string, bool)) (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	built := filepath.Join(parent, name+"-"+version)
	find := func() (string, bool) {
		if path, ok := elsewhere(); ok {
			return path, true
		}
		_, err := os.Stat(built)
		return built, err == nil
	}
	return findOrInstall(find, func(progress io.Writer) error { return buildProgram(progress, name, version, pkg, built) })
}

// buildProgram builds beside the place and then moves the binary there, so that
// what stands there is whole.
func buildProgram(progress io.Writer, name, version, pkg, path string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	// A build that was interrupted leaves its folder; the lock says that none runs.
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), name+"-new-*"))
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), name+"-new-")
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	begin := time.Now()
	say(progress, "building %s %s from source, once: it may take minutes…", name, version)
	built := filepath.Join(temp, name)
	module := filepath.Join(root, "internal", "testenv", name)
	err = goBuild(progress, 20*time.Second, module,
		"-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", built, pkg)
	if err != nil {
		return err
	}
	if err := os.Rename(built, path); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	say(progress, "built %s %s in %v", name, version, time.Since(begin).Round(time.Second))
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
