package testenv

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// FindNode returns the path of node, with npm installed by apt if need be.
func FindNode() (string, error) {
	find := func() (string, bool) {
		if _, ok := onPath("npm")(); !ok {
			return "", false
		}
		return onPath("node")()
	}
	return findOrInstall(find, aptInstall("nodejs", "npm"))
}

// FindPythonPackages returns the path of a Python that has the packages of
// examples/python/requirements.txt, installed from PyPI if need be.
func FindPythonPackages() (string, error) {
	lock, dir, err := locked("python", "examples/python/requirements.txt")
	if err != nil {
		return "", err
	}
	return findOrInstall(inFolder(dir, "bin/python"), func(progress io.Writer) error {
		return installInto(progress, "Python packages of "+lock, dir, func(temp string) error {
			if err := makeVenv(progress, temp); err != nil {
				return err
			}
			return command(progress, filepath.Join(temp, "bin", "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", lock)
		})
	})
}

// FindNodeModules returns the node_modules of examples/typescript, installed from
// the npm registry if need be.
func FindNodeModules() (string, error) {
	if _, err := FindNode(); err != nil { // which brings npm
		return "", err
	}
	lock, dir, err := locked("node", "examples/typescript/package-lock.json")
	if err != nil {
		return "", err
	}
	return findOrInstall(inFolder(dir, "node_modules"), func(progress io.Writer) error {
		return installInto(progress, "npm packages of "+lock, dir, func(temp string) error {
			for _, name := range []string{"package.json", "package-lock.json"} {
				text, err := os.ReadFile(filepath.Join(filepath.Dir(lock), name))
				if err != nil {
					return fmt.Errorf("testenv: %w", err)
				}
				if err := os.WriteFile(filepath.Join(temp, name), text, 0o600); err != nil {
					return fmt.Errorf("testenv: %w", err)
				}
			}
			return command(progress, "npm", "ci", "--prefix", temp, "--ignore-scripts", "--no-audit", "--no-fund")
		})
	})
}

// locked returns the path of a file of this repository that names packages with
// their versions, and the folder of the cache that holds them: another file,
// another folder.
func locked(name, file string) (lock, dir string, err error) {
	root, err := moduleRoot()
	if err != nil {
		return "", "", err
	}
	lock = filepath.Join(root, filepath.FromSlash(file))
	text, err := os.ReadFile(lock)
	if err != nil {
		return "", "", fmt.Errorf("testenv: %w", err)
	}
	parent, err := cacheDir()
	if err != nil {
		return "", "", err
	}
	return lock, filepath.Join(parent, fmt.Sprintf("%s-%x", name, sha256.Sum256(text))[:len(name)+17]), nil
}

// inFolder finds a file or folder within another, if that is whole.
func inFolder(dir, name string) func() (string, bool) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	return func() (string, bool) {
		_, err := os.Stat(path)
		return path, err == nil
	}
}

// installInto installs beside a folder's place and then moves it there, so that
// what stands there is whole.
func installInto(progress io.Writer, what, dir string, install func(temp string) error) error {
	begin := time.Now()
	say(progress, "installing the %s…", what)
	temp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+"-new-")
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := install(temp); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // what has not all of it, such as a Python that is gone
		return fmt.Errorf("testenv: %w", err)
	}
	if err := os.Rename(temp, dir); err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	say(progress, "installed them in %v", time.Since(begin).Round(time.Second))
	return nil
}
