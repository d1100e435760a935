package testenv

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	if err := noteSources(root); err != nil {
		return "", err
	}
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

// noteSources looks at each file that the command may be built from, and does
// nothing with it: `go test` gives an old result again unless files changed that
// the test itself has looked at, and it does not see what a `go build` within reads.
func noteSources(root string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "docs"):
			return filepath.SkipDir
		case !d.IsDir() && !strings.HasSuffix(path, "_test.go"):
			_, _ = os.Stat(path) // one that has just gone is none to build from
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("testenv: looking at the sources of weir: %w", err)
	}
	return nil
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
