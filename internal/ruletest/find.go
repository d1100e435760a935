package ruletest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find lists the test files that are meant: files as they are, of folders all *.yaml
// and *.yml but hidden ones, and of patterns what fits. The error is of those that
// mean none, each on a line.
func Find(names []string) (paths []string, err error) {
	var missing []error
	for _, name := range names {
		found, err := find(name)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s: the folder has no test files (*.yaml, *.yml)", name)
		}
		if err != nil {
			missing = append(missing, err)
		}
		for _, path := range found {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths, errors.Join(missing...)
}

func find(name string) ([]string, error) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir():
		return inFolder(name)
	case err == nil:
		return []string{name}, nil
	case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(name, "*?["):
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	found, err := filepath.Glob(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var paths []string
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			continue // a pattern of files may fit a folder
		}
		paths = append(paths, path)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: no file fits the pattern", name)
	}
	return paths, nil
}

func inFolder(folder string) (paths []string, err error) {
	err = filepath.WalkDir(folder, func(path string, item fs.DirEntry, err error) error {
		switch hidden := strings.HasPrefix(item.Name(), ".") && path != folder; {
		case err != nil:
			return err
		case hidden && item.IsDir():
			return filepath.SkipDir
		case hidden || item.IsDir():
		case filepath.Ext(path) == ".yaml" || filepath.Ext(path) == ".yml":
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}
