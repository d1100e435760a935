package testenv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// FindPromtool returns the path of promtool, which checks what Prometheus reads. It
// is taken out of Debian's package of Prometheus, which is not installed: that would
// start the service.
func FindPromtool() (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(parent, "prometheus")
	unpacked := filepath.Join(dir, "usr", "bin", "promtool")
	find := func() (string, bool) {
		if path, ok := onPath("promtool")(); ok {
			return path, true
		}
		_, err := os.Stat(unpacked)
		return unpacked, err == nil
	}
	return findOrInstall(find, func(progress io.Writer) error { return unpackDebian(progress, "prometheus", dir) })
}

// unpackDebian downloads a Debian package and unpacks it, and runs nothing of it. It
// is unpacked beside the place and then moved there, so that what stands there is
// whole.
func unpackDebian(progress io.Writer, name, dir string) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("testenv: there is no %s to unpack Debian's package %s with: install it by hand, so that its programs are on PATH", tool, name)
		}
	}
	begin := time.Now()
	say(progress, "unpacking Debian's package %s…", name)
	temp, err := os.MkdirTemp(filepath.Dir(dir), name+"-new-")
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	download := func() error {
		return command(progress, "sh", "-c", `cd "$1" && apt-get download -q "$2"`, "sh", temp, name)
	}
	if err := download(); err != nil { // the lists of packages may be old, or missing
		if os.Geteuid() != 0 {
			return err
		}
		if err := errors.Join(command(progress, "apt-get", "update", "-q"), download()); err != nil {
			return err
		}
	}
	found, _ := filepath.Glob(filepath.Join(temp, name+"_*.deb"))
	if len(found) != 1 {
		return fmt.Errorf("testenv: apt-get download %s left %d files", name, len(found))
	}
	unpacked := filepath.Join(temp, "unpacked")
	if err := command(progress, "dpkg-deb", "-x", found[0], unpacked); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	if err := os.Rename(unpacked, dir); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	say(progress, "unpacked %s in %v", name, time.Since(begin).Round(time.Second))
	return nil
}

// Promtool returns the path of promtool.
func Promtool(t testing.TB) string {
	t.Helper()
	path, err := FindPromtool()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
