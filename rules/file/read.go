package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"weir/rules"
)

// maxFileSize is the size in bytes from which a file is taken for a mistake.
const maxFileSize = 64 << 20

// tree is what was read of a path.
type tree struct {
	files   map[string][]byte // by the path as given, joined with the rest
	folders folders           // to watch, also where reading failed
}

// folders are those to watch, by their real paths, each for some names in it, or
// for all if it has nil.
type folders map[string][]string

// all has a folder watched for all that is in it.
func (f folders) all(folder string) {
	if folder, ok := realPath(folder); ok {
		f[folder] = nil
	}
}

// only has the folder of path watched for path itself.
func (f folders) only(path string) {
	folder, ok := realPath(filepath.Dir(path))
	if !ok {
		return
	}
	if names, known := f[folder]; !known || names != nil {
		f[folder] = append(names, filepath.Base(path))
	}
}

// realPath is the one absolute path without links. A path that leads nowhere has
// none.
func realPath(path string) (string, bool) {
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	return path, err == nil
}

// reading is one walk through a tree.
type reading struct {
	tree
	seen map[string]bool // real paths, so that links neither loop nor read twice
}

// What is wrong with a path that holds no rules.
const (
	noFile      = "no such file or directory"
	noRuleFiles = "the folder has no rule files (*.yaml, *.yml)"
	emptyFile   = "the file is empty; if no rules are meant, leave a comment in it"
)

// readTree reads the file, or the rule files in the folder. It fails if there
// are none, or if one of them cannot be read. The error is rules.Faults.
func readTree(path string) (tree, error) {
	path = filepath.Clean(path)
	r := &reading{tree: tree{files: map[string][]byte{}, folders: folders{}}, seen: map[string]bool{}}
	r.folders.above(path)
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		err = r.folder(path)
	default:
		err = r.file(path)
	}
	switch {
	case err != nil:
		return r.tree, rules.Faults{unread(path, err)}
	case len(r.files) == 0:
		return r.tree, rules.Faults{{File: path, Msg: noRuleFiles}}
	}
	return r.tree, nil
}

// readFirst is readTree where nothing was read before: it fails, too, if all
// files are empty.
func readFirst(path string) (tree, error) {
	t, err := readTree(path)
	if err == nil && t.allEmpty() {
		err = t.eachEmpty(emptyFile)
	}
	if err != nil {
		return t, fmt.Errorf("reading rules: %w", err)
	}
	return t, nil
}

// unread says why a path, or one beneath it, cannot be read.
func unread(path string, err error) rules.Fault {
	fault := rules.Fault{File: path, Msg: err.Error()}
	var of *fs.PathError
	switch {
	case errors.As(err, &fault): // it has its path and reason
	case errors.As(err, &of):
		fault.File, fault.Msg = of.Path, of.Err.Error()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fault.Msg = noFile
	case errors.Is(err, fs.ErrPermission):
		fault.Msg += "; the user that Weir runs as must be able to read it"
	}
	return fault
}

// allEmpty tells whether no file has a byte. Whoever means that there are no
// rules says so in a comment: an empty file is likely being written, or was lost.
func (t *tree) allEmpty() bool {
	for _, data := range t.files {
		if len(data) > 0 {
			return false
		}
	}
	return true
}

// eachEmpty says the same of each file that is empty.
func (t *tree) eachEmpty(problem string) rules.Faults {
	var faults rules.Faults
	for _, name := range slices.Sorted(maps.Keys(t.files)) {
		if len(t.files[name]) == 0 {
			faults = append(faults, rules.Fault{File: name, Msg: problem})
		}
	}
	return faults
}

// above adds the folders in which the path itself, or a link on the way to it,
// comes and goes. A link at its end may lead over others beside it, as
// Kubernetes' ..data does.
func (f folders) above(path string) {
	f.only(path)
	if isLink(path) {
		f.all(filepath.Dir(path))
	}
	for folder := filepath.Dir(path); folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
		if isLink(folder) {
			f.only(folder)
		}
	}
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// again tells whether what path leads to was read before.
func (r *reading) again(path string) bool {
	target, ok := realPath(path)
	if !ok {
		return false // reading it tells why
	}
	again := r.seen[target]
	r.seen[target] = true
	return again
}

// folder reads what is in a folder. It goes on after a failure, so that all
// folders are watched, and returns the first.
func (r *reading) folder(path string) error {
	if r.again(path) {
		return nil
	}
	r.folders.all(path)
	items, first := os.ReadDir(path)
	for _, item := range items {
		if strings.HasPrefix(item.Name(), ".") {
			continue
		}
		if err := r.item(filepath.Join(path, item.Name()), item); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// item reads what may be rules. A link that leads nowhere is none, unless it is
// named as if.
func (r *reading) item(path string, item os.DirEntry) error {
	isRules := filepath.Ext(path) == ".yaml" || filepath.Ext(path) == ".yml"
	isFolder := item.IsDir()
	if item.Type()&os.ModeSymlink != 0 {
		info, err := os.Stat(path)
		if err != nil && isRules {
			return err
		}
		isFolder = err == nil && info.IsDir()
	}
	switch {
	case isFolder:
		return r.folder(path)
	case isRules:
		return r.file(path)
	}
	return nil
}

// file reads a file, and has the folder watched that it really lies in: where a
// link leads somewhere else, changes there do not show beside the link.
func (r *reading) file(path string) error {
	if r.again(path) {
		return nil
	}
	if target, ok := realPath(path); ok && isLink(path) {
		r.folders.all(filepath.Dir(target))
	}
	data, err := readFile(path)
	if err != nil {
		return err
	}
	r.files[path] = data
	return nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a pipe would wait for its writer
		return nil, rules.Fault{File: path, Msg: "this is not a regular file"}
	case info.Size() > maxFileSize:
		return nil, tooLarge(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1)) // it may have grown
	if err == nil && len(data) > maxFileSize {
		err = tooLarge(path)
	}
	return data, err
}

func tooLarge(path string) error {
	return rules.Fault{File: path, Msg: fmt.Sprintf("the file is larger than %d MiB; split it, if it is a rule file at all", maxFileSize>>20)}
}

// Read returns the file, or the rule files in the folder, by the path as given
// joined with the rest. It fails as a Source does at its first read.
func Read(path string) (map[string][]byte, error) {
	t, err := readFirst(path)
	if err != nil {
		return nil, err
	}
	return t.files, nil
}
