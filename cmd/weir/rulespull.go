package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"weir/rules/kv"
)

// pulled is what a folder knows of the rules that were pulled into it. It stands
// in a hidden file, which is not pushed.
type pulled struct {
	Rules   string `json:"rules"`   // the URL
	Version string `json:"version"` // for people
	Store   string `json:"store"`   // fingerprint of the documents in the store
	Local   string `json:"local"`   // of the files as they were written

	dir string
}

const pulledName = ".weir-pulled"

// readPulled returns nil for a folder into which nothing was pulled.
func readPulled(dir string) (*pulled, error) {
	path := filepath.Join(dir, pulledName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pulled{dir: dir}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("reading %s: %w; remove it, and pushing no longer knows which version the folder began with", path, err)
	}
	return p, nil
}

func (p *pulled) write(root *os.Root) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return replaceIn(root, pulledName, append(text, '\n'))
}

// renew notes that the folder's files are what is in force.
func (p *pulled) renew(version uint64, files map[string][]byte) error {
	p.Version = strconv.FormatUint(version, 10)
	p.Store = kv.Fingerprint(files)
	p.Local = p.Store
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return p.write(root)
}

func newRulesPull(t *target) *cobra.Command {
	var version uint64
	var force, dryRun bool
	cmd := &cobra.Command{
		Use:   "pull DIR",
		Short: "write the rules into a folder",
		Long: `Write the documents into a folder, made if need be, to be edited and pushed. Rule
files that are there and not in the store are removed. A folder whose files were
changed since they were pulled is left alone. A later push from the folder is refused
if what is in force has changed since the pull; so it is with --version, whose folder
goes over what is in force now.`,
		Example: `weir rules pull rules/
weir rules pull --version 7 /tmp/rules-of-yesterday`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			repo, ctx, err := t.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			from, err := pullFrom(ctx, repo, version)
			if err != nil {
				return err
			}
			from.dir = args[0]
			return from.into(force, dryRun, cmd.OutOrStdout())
		},
	}
	cmd.Flags().Uint64Var(&version, "version", 0, "of the history (0: what is in force)")
	cmd.Flags().BoolVar(&force, "force", false, "write over files that were changed here")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be written")
	return cmd
}

// pull is what to write into a folder.
type pull struct {
	pulled
	what  string            // in words
	files map[string][]byte // by path within the folder
}

func pullFrom(ctx context.Context, repo *repository, version uint64) (*pull, error) {
	state, err := repo.State(ctx)
	if err != nil {
		return nil, err
	}
	p := &pull{pulled: pulled{Rules: repo.url, Store: kv.Fingerprint(state.Files)}}
	files := state.Files
	if version > 0 {
		p.Version = strconv.FormatUint(version, 10)
		p.what = "version " + p.Version
		if _, files, err = repo.Version(ctx, version); err != nil {
			return nil, err
		}
	} else {
		if err := refusePushing(state); err != nil {
			return nil, err
		}
		p.Version = strconv.FormatUint(state.Version, 10)
		if state.ByHand {
			p.Version += "+"
		}
		p.what = stateText(state)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no rules", repo.url)
	}
	p.files = make(map[string][]byte, len(files))
	for name, text := range files {
		path, err := localPath(name)
		if err != nil {
			return nil, err
		}
		if _, twice := p.files[path]; twice {
			return nil, fmt.Errorf("two documents would both be written to %s; rename one of them in the store", path)
		}
		p.files[path] = text
	}
	for path := range p.files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			if _, both := p.files[dir]; both {
				return nil, fmt.Errorf("%s would be both a file and a folder; rename one of the documents in the store", dir)
			}
		}
	}
	p.Local = kv.Fingerprint(p.files)
	return p, nil
}

// localPath is the file of a document. What has no ending that a rule file has
// gets one, so that it is one here too.
func localPath(name string) (string, error) {
	path := filepath.FromSlash(name)
	if !filepath.IsLocal(path) || filepath.Clean(path) != path || strings.ContainsFunc(path, unicode.IsControl) {
		return "", fmt.Errorf("the document %q is no path of a file within a folder; rename it in the store", name)
	}
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		path += ".yaml"
	}
	return path, nil
}

// into writes the files, and removes rule files that are not among them.
func (p *pull) into(force, dryRun bool, out io.Writer) error {
	stand, err := ruleFilesIn(p.dir)
	if err != nil {
		return err
	}
	before, err := readPulled(p.dir)
	if err != nil && !force {
		return err
	}
	if now := kv.Fingerprint(stand); !force && len(stand) > 0 && now != p.Local && (before == nil || now != before.Local) {
		return fmt.Errorf("%s has rule files that were changed here, or come from elsewhere; choose another folder, or write over them by --force", p.dir)
	}
	c := compared{from: stand, to: p.files}
	for _, line := range c.files() {
		fmt.Fprintln(out, "  "+line)
	}
	if dryRun {
		_, err := fmt.Fprintf(out, "%s: %s; not written, for it is a dry run\n", p.Rules, p.what)
		return err
	}
	if err := p.write(stand); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %s is in %s (%s)\n", p.Rules, p.what, p.dir, count(len(p.files), "document"))
	return err
}

// write goes through a root, so that no link in the folder leads out of it, and
// replaces what is there rather than write through it.
func (p *pull) write(stand map[string][]byte) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil { //nolint:gosec // rules are no secret: the server may run as another user
		return err
	}
	root, err := os.OpenRoot(p.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range sortedNames(stand, p.files) {
		if _, stays := p.files[name]; !stays {
			err = errors.Join(err, root.Remove(name))
		}
	}
	for _, name := range sortedNames(p.files) {
		if was, there := stand[name]; err == nil && (!there || string(was) != string(p.files[name])) {
			err = replaceIn(root, name, p.files[name])
		}
	}
	if err == nil {
		err = p.pulled.write(root)
	}
	if err != nil {
		return fmt.Errorf("writing into %s: %w", p.dir, err)
	}
	return nil
}

func replaceIn(root *os.Root, name string, text []byte) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.WriteFile(name, text, 0o644)
}

// ruleFilesIn reads the rule files of a folder, which may not exist. It follows no
// links.
func ruleFilesIn(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, item fs.DirEntry, err error) error {
		hidden := path != dir && item != nil && item.Name()[0] == '.'
		ext := filepath.Ext(path)
		switch {
		case path == dir && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case hidden && item.IsDir():
			return fs.SkipDir
		case hidden, !item.Type().IsRegular(), ext != ".yaml" && ext != ".yml":
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[name], err = os.ReadFile(path) //nolint:gosec // of one's own folder
		}
		return err
	})
	return files, err
}
