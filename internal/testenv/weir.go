package testenv

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The binary is built once a test process, for the tree does not change under
// it and each link takes a second or two.
var buildWeirOnce = sync.OnceValues(buildWeir)

// WeirBinary returns the path of the weir command, built from this tree.
func WeirBinary(t testing.TB) string {
	t.Helper()
	path, err := buildWeirOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildWeir builds the command and files it in the cache folder under a hash of
// its contents. Test processes have no common end at which a temporary folder
// could be removed; here equal builds share a file, and old ones are swept.
func buildWeir() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := cacheDir("weir")
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(dir, "new-")
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	built := filepath.Join(temp, "weir")
	// Built as `make build` does it, so that the two share the build cache.
	cmd := exec.Command("go", "build", "-trimpath", "-o", built, "./cmd/weir")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testenv: build weir: %w\n%s", err, out)
	}
	sum, err := fileHash(built)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "weir-"+sum)
	if err := os.Rename(built, path); err != nil { // over an equal one that may be running
		return "", fmt.Errorf("testenv: %w", err)
	}
	sweep(dir, 24*time.Hour)
	return path, nil
}

func fileHash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("testenv: read %s: %w", path, err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// sweep removes what is older than age. Best effort: what stays is swept next
// time.
func sweep(dir string, age time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
