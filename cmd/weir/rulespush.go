package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"weir/rules/file"
	"weir/rules/kv"
)

// pushFlags are what a push and a rollback have in common.
type pushFlags struct {
	*target
	who
	dryRun bool
	keep   int
}

func (p *pushFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	p.who.addFlags(f)
	f.BoolVar(&p.dryRun, "dry-run", false, "only show what would change")
	f.IntVar(&p.keep, "keep", 100, "versions that the history keeps")
}

func (p *pushFlags) check() error {
	if p.keep < 1 {
		return usagef("--keep %d: it is 1 at least", p.keep)
	}
	if len(p.message) > 4096 {
		return usagef("--message has %d bytes; it may have 4096", len(p.message))
	}
	return nil
}

func newRulesPush(t *target) *cobra.Command {
	p := pushFlags{target: t}
	var base uint64
	var resume, abort, force bool
	var name string
	cmd := &cobra.Command{
		Use:   "push PATH…",
		Short: "make a folder's rules the ones in force",
		Long: `Push rules: compile them, show what changes, and put them into force, all of them
or none. A folder takes the place of all documents that are there; a single file is
added to them, or takes the place of the one with its name, which is --name, or where
the file is in a folder that was pulled, or the file's own. What would not load is
refused, each fault as file:line:col.

Of a folder that was pulled, and of a file in it, it is known what was in force then:
if that has changed since, nothing is done. A push that was interrupted halfway changes nothing
that serves; --resume finishes it, --abort takes it back.`,
		Example: `weir rules push rules/ -m "double the login limit"
weir rules push rules/ --dry-run
weir rules push --abort`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.check(); err != nil {
				return err
			}
			switch {
			case resume && abort:
				return usagef("--resume and --abort exclude each other")
			case (resume || abort) && len(args) > 0:
				return usagef("--resume and --abort take no rules: those of the push that was interrupted are known")
			case !resume && !abort && len(args) == 0:
				return usagef("want a folder of rules, or rule files")
			}
			repo, ctx, err := p.open(cmd.Context())
			if err != nil {
				return err
			}
			defer repo.close()
			switch {
			case resume:
				return p.resume(ctx, repo, cmd.OutOrStdout())
			case abort:
				return p.abort(ctx, repo, force, cmd.OutOrStdout())
			}
			local, err := readLocal(args, name)
			if err != nil {
				return err
			}
			expect := expectation{force: force, base: base, hasBase: cmd.Flags().Changed("base")}
			return p.pushLocal(ctx, repo, local, expect, cmd.OutOrStdout())
		},
	}
	p.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what to call the document, if it is a single file: team/login.yaml")
	cmd.Flags().Uint64Var(&base, "base", 0, "refuse if another version than this one is in force (0, if given: if there is any)")
	cmd.Flags().BoolVar(&force, "force", false, "push over what was pushed since the folder was pulled; with --abort: leave the documents as they stand")
	cmd.Flags().BoolVar(&resume, "resume", false, "finish a push that was interrupted")
	cmd.Flags().BoolVar(&abort, "abort", false, "take back a push that was interrupted")
	return cmd
}

// localRules are the files to push.
type localRules struct {
	files  map[string][]byte // by name beneath the prefix
	paths  map[string]string // where each was read
	whole  bool              // they take the place of all that is there
	pulled []*pulled         // what is known of the folders
}

// readLocal reads files and folders. A folder's files have names within it; name
// is that of a single file, if it is not "".
func readLocal(args []string, name string) (*localRules, error) {
	l := &localRules{files: map[string][]byte{}, paths: map[string]string{}}
	for _, path := range args {
		read, err := file.Read(path)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		switch {
		case name != "" && (info.IsDir() || len(args) > 1):
			return nil, usagef("--name is for a single file")
		case info.IsDir():
			err = l.addFolder(path, read)
		default:
			err = l.addFile(path, name, read[filepath.Clean(path)])
		}
		if err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *localRules) addFolder(path string, read map[string][]byte) error {
	l.whole = true
	base, err := readPulled(path)
	if err != nil {
		return err
	}
	if base != nil {
		l.pulled = append(l.pulled, base)
	}
	for p, text := range read {
		name, err := filepath.Rel(path, p)
		if err != nil {
			return err
		}
		if err := l.add(name, p, text); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a single file. One within a folder that was pulled is called what
// it is called there.
func (l *localRules) addFile(path, name string, text []byte) error {
	whole, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(whole); ; dir = filepath.Dir(dir) {
		base, err := readPulled(dir)
		if err != nil {
			return err
		}
		if base != nil {
			if !slices.ContainsFunc(l.pulled, func(p *pulled) bool { return p.dir == dir }) {
				l.pulled = append(l.pulled, base)
			}
			if name == "" {
				if name, err = filepath.Rel(dir, whole); err != nil {
					return err
				}
			}
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return l.add(cmp.Or(name, filepath.Base(path)), path, text)
}

func (l *localRules) add(name, path string, text []byte) error {
	name = filepath.ToSlash(name)
	if other, twice := l.paths[name]; twice {
		return fmt.Errorf("%s and %s would both be %s", other, path, name)
	}
	l.files[name], l.paths[name] = text, path
	return nil
}

// onto returns what the documents are after a push, and what to call them.
func (l *localRules) onto(stand map[string][]byte, standName func(string) string) (map[string][]byte, func(string) string) {
	files := l.files
	if !l.whole {
		files = maps.Clone(stand)
		maps.Copy(files, l.files)
	}
	return files, func(name string) string {
		if path, ok := l.paths[name]; ok {
			return path
		}
		return standName(name)
	}
}

// expectation is what must stand in the store for a push to be made.
type expectation struct {
	force   bool
	base    uint64
	hasBase bool
}

func (e expectation) check(state *kv.State, repo *repository, local *localRules) error {
	if e.hasBase && (state.Version != e.base || state.ByHand) {
		return fmt.Errorf("%s has %s, not version %d as --base says; nothing was pushed", repo.url, stateText(state), e.base)
	}
	if e.force || e.hasBase {
		return nil
	}
	for _, p := range local.pulled {
		if p.Rules == repo.url && p.Store != kv.Fingerprint(state.Files) {
			return fmt.Errorf("%s has %s, and %s was pulled when it had version %s; pull into another folder and compare, or push over it by --force; nothing was pushed",
				repo.url, stateText(state), p.dir, p.Version)
		}
	}
	return nil
}

func (p *pushFlags) pushLocal(ctx context.Context, repo *repository, local *localRules, expect expectation, out io.Writer) error {
	state, err := repo.State(ctx)
	if err != nil {
		return err
	}
	if err := refusePushing(state); err != nil {
		return err
	}
	files, toName := local.onto(state.Files, repo.named)
	diff, err := compare(state.Files, files, repo.named, toName)
	if err != nil {
		return printFaults(out, err, "nothing was pushed")
	}
	if err := expect.check(state, repo, local); err != nil {
		return err
	}
	version, err := p.push(ctx, repo, state, diff, out)
	if err != nil || p.dryRun {
		return err
	}
	for _, base := range local.pulled {
		unseen := !local.whole && (expect.force || expect.hasBase) // what others changed is not in the folder
		if base.Rules != repo.url || len(local.pulled) > 1 || unseen {
			continue
		}
		if err := base.renew(version, files); err != nil {
			return err
		}
	}
	return nil
}

// push shows what changes, and does it. It returns the version in force then.
func (p *pushFlags) push(ctx context.Context, repo *repository, state *kv.State, diff *compared, out io.Writer) (uint64, error) {
	fmt.Fprintf(out, "%s: %s\n", repo.url, stateText(state))
	if diff.same() && state.Version > 0 {
		fmt.Fprintln(out, "no difference: nothing to push")
		return state.Version, nil
	}
	if !diff.same() {
		diff.print(out)
	}
	if p.dryRun {
		fmt.Fprintf(out, "not pushed, for it is a dry run: %s\n", diff.summary())
		return state.Version, nil
	}
	version, err := repo.Push(ctx, state, diff.to, p.info())
	if err != nil {
		return 0, explainConflict(err)
	}
	if found := version.Number - 1; state.ByHand && len(state.Files) > 0 {
		fmt.Fprintf(out, "what was written by other means is kept as version %d\n", found)
	}
	fmt.Fprintf(out, "pushed version %d: %s\n", version.Number, diff.summary())
	if err := repo.Prune(ctx, p.keep); err != nil && !errors.Is(err, kv.ErrConflict) {
		fmt.Fprintf(out, "old versions were not removed: %v\n", err)
	}
	return version.Number, nil
}

func explainConflict(err error) error {
	if errors.Is(err, kv.ErrConflict) {
		return fmt.Errorf("%w; somebody else was faster: look at what is there now and push again", err)
	}
	return err
}

func (p *pushFlags) resume(ctx context.Context, repo *repository, out io.Writer) error {
	if p.dryRun {
		return p.standing(ctx, repo, out, "would be finished")
	}
	version, err := repo.Resume(ctx, p.info())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "finished the push of version %d\n", version.Number)
	return err
}

func (p *pushFlags) abort(ctx context.Context, repo *repository, force bool, out io.Writer) error {
	if p.dryRun {
		return p.standing(ctx, repo, out, "would be taken back")
	}
	if force {
		if err := repo.Release(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "the push is over, and the documents are left as they stand: push whole rules now")
		return err
	}
	version, err := repo.Abort(ctx, p.info())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "took the push back; %s\n", inForceText(version))
	return err
}

func inForceText(version uint64) string {
	if version == 0 {
		return "no version is in force"
	}
	return fmt.Sprintf("version %d is in force", version)
}

// standing says which push would be finished or taken back.
func (p *pushFlags) standing(ctx context.Context, repo *repository, out io.Writer, what string) error {
	state, err := repo.State(ctx)
	if err != nil {
		return err
	}
	if state.Push == nil {
		return kv.ErrNoPush
	}
	_, err = fmt.Fprintf(out, "the push of %v %s\n", state.Push, what)
	return err
}

// sortedNames are the names of all documents.
func sortedNames(sets ...map[string][]byte) []string {
	all := map[string]bool{}
	for _, files := range sets {
		for name := range files {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
