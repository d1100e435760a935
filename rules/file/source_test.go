package file

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/rules"
)

// rule is a rule file with one rule for each endpoint.
func rule(endpoints ...string) string {
	text := "rules:\n"
	for _, e := range endpoints {
		text += fmt.Sprintf("  - {endpoint: %s, limit: 1, window: 1s}\n", e)
	}
	return text
}

// watched is a source that runs on real files, and the Live that it feeds.
type watched struct {
	t       *testing.T
	path    string
	live    *rules.Live
	log     *lockedBuffer
	applied chan error
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a source until the test ends. With interval 0 it reads by itself
// so rarely that the test sees only what events bring about.
func start(t *testing.T, path string, interval time.Duration) *watched {
	t.Helper()
	if interval == 0 {
		interval = time.Hour
	}
	w := &watched{t: t, path: path, live: rules.NewLive(rules.LiveOptions{}), log: &lockedBuffer{}, applied: make(chan error, 100)}
	source := New(path, Options{ReloadInterval: interval, Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- source.Run(ctx, func(snap rules.Snapshot) error {
			err := w.live.Apply(path, snap)
			w.applied <- err
			return err
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.change(true)
	return w
}

// change waits for the next apply, which has to come within a second, and to
// pass or not.
func (w *watched) change(good bool) {
	w.t.Helper()
	select {
	case err := <-w.applied:
		if (err == nil) != good {
			w.t.Fatalf("applied: %v", err)
		}
	case <-time.After(time.Second):
		w.t.Fatalf("no change within a second; log: %s", w.log)
	}
}

// quiet waits long enough for a change to have been seen, and holds that none
// was applied.
func (w *watched) quiet() {
	w.t.Helper()
	select {
	case err := <-w.applied:
		w.t.Fatalf("applied: %v", err)
	case <-time.After(2*settle + 100*time.Millisecond):
	}
}

// refuses waits for a refusal, and holds that it is told once, with the reason
// and the path, where operators look.
func (w *watched) refuses(path, reason string) {
	w.t.Helper()
	failures := w.live.Status().Failures
	w.change(false)
	w.quiet()
	status := w.live.Status()
	source := status.Sources[w.path]
	if status.Failures != failures+1 || source.FailedAt.IsZero() || source.LastError != path+": "+reason {
		w.t.Fatalf("%d failures, %+v, want %s: %s", status.Failures-failures, source, path, reason)
	}
	if w.log.String() != "" {
		w.t.Fatalf("the source told of it too: %s", w.log)
	}
}

// holds compares the endpoints that have a rule.
func (w *watched) holds(endpoints ...string) {
	w.t.Helper()
	set := w.live.Current()
	if _, n := set.Size(); n != len(endpoints) {
		w.t.Fatalf("%d rules, want %q", n, endpoints)
	}
	for _, e := range endpoints {
		if set.Explain("default", []rules.Entry{{Key: "endpoint", Value: e}}).Rule == nil {
			w.t.Fatalf("no rule for %s", e)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// must fails the test for an error of an os function.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFolderIsReadWithAllBeneathButHiddenOnes(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), rule("/a"))
	write(t, filepath.Join(dir, "sub", "deep", "b.yml"), rule("/b"))
	write(t, filepath.Join(dir, ".hidden.yaml"), rule("/a"))
	write(t, filepath.Join(dir, ".git", "c.yaml"), rule("/a"))
	write(t, filepath.Join(dir, "README.md"), "no rules")
	must(t, os.Symlink(dir, filepath.Join(dir, "sub", "loop")))
	must(t, os.Symlink("a.yaml", filepath.Join(dir, "same.yaml")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	start(t, dir, 0).holds("/a", "/b")
}

func TestAFileReplacedByRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, dir, 0)
	for _, e := range []string{"/b", "/c"} {
		write(t, path+".tmp", rule(e))
		must(t, os.Rename(path+".tmp", path))
		w.change(true)
		w.holds(e)
	}
}

func TestAFileRewrittenInPlaceIsNotTakenHalf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, filepath.Dir(path), 0)
	f, err := os.Create(path)
	must(t, err)
	for line := range strings.Lines(rule("/b", "/c", "/d")) {
		time.Sleep(settle / 3)
		_, err := f.WriteString(line)
		must(t, err)
	}
	must(t, f.Close())
	w.change(true)
	w.holds("/b", "/c", "/d")
	w.quiet()
}

func TestOneFileIsWatchedAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.conf") // whatever its name
	write(t, path, rule("/a"))
	write(t, filepath.Join(dir, "other.yaml"), rule("/other"))
	w := start(t, path, 0)
	write(t, filepath.Join(dir, "other.yaml"), rule("/more"))
	w.quiet()
	write(t, path, rule("/b"))
	w.change(true)
	write(t, path+".tmp", rule("/c"))
	must(t, os.Rename(path+".tmp", path))
	w.change(true)
	w.holds("/c")
}

// swap does what Kubernetes does when a ConfigMap changes.
func swap(t *testing.T, dir, version, text string) {
	t.Helper()
	write(t, filepath.Join(dir, version, "rules.yaml"), text)
	must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestAConfigMapIsSwapped(t *testing.T) {
	for _, path := range []string{"", "rules.yaml"} {
		dir := t.TempDir()
		swap(t, dir, "..1", rule("/a"))
		must(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules.yaml")))
		w := start(t, filepath.Join(dir, path), 0)
		w.holds("/a")
		for i, e := range []string{"/b", "/c"} {
			swap(t, dir, fmt.Sprintf("..%d", i+2), rule(e))
			must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..%d", i+1))))
			w.change(true)
			w.holds(e)
		}
	}
}

func TestALinkedFileIsFollowedToWhereItLies(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	target := filepath.Join(elsewhere, "real.yaml")
	write(t, target, rule("/a"))
	must(t, os.Symlink(target, filepath.Join(dir, "link.yaml")))
	w := start(t, dir, 0)
	write(t, target, rule("/b"))
	w.change(true)
	w.holds("/b")
}

func TestAReleaseFolderIsSwitchedByItsLink(t *testing.T) {
	dir := t.TempDir()
	for _, release := range []string{"1", "2"} {
		write(t, filepath.Join(dir, release, "rules", "a.yaml"), rule("/"+release))
	}
	must(t, os.Symlink("1", filepath.Join(dir, "current")))
	w := start(t, filepath.Join(dir, "current", "rules"), 0)
	w.holds("/1")
	must(t, os.Symlink("2", filepath.Join(dir, "next")))
	must(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")))
	w.change(true)
	w.holds("/2")
	write(t, filepath.Join(dir, "2", "rules", "b.yaml"), rule("/3"))
	w.change(true)
	w.holds("/2", "/3")
}

func TestABadFileChangesNothingAndAGoodOneHeals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, path, 0)
	write(t, path, "rules: [{endpoint: /b}]")
	w.change(false)
	w.holds("/a")
	write(t, path, rule("/b"))
	w.change(true)
	w.holds("/b")
}

func TestContentThatStaysIsNotAppliedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, path, 50*time.Millisecond)
	write(t, path, rule("/a"))
	must(t, os.Chtimes(path, time.Now(), time.Now()))
	w.quiet()
	write(t, path, "rules: x")
	w.change(false)
	w.quiet() // refused once
}

func TestWhatIsLostKeepsTheLastRulesAndIsTold(t *testing.T) {
	const keeps = "; the last good rules stay (a file with only a comment clears them)"
	for _, row := range []struct {
		remark string
		lose   func(dir string) error
		at     string // beneath the folder
		says   string
	}{
		{"the folder is emptied", func(dir string) error { return os.Remove(filepath.Join(dir, "a.yaml")) }, "", "the folder has no rule files (*.yaml, *.yml)" + keeps},
		{"the folder is removed", os.RemoveAll, "", "no such file or directory" + keeps},
		{"the file is emptied", func(dir string) error { return os.Truncate(filepath.Join(dir, "a.yaml"), 0) }, "a.yaml", "the file became empty" + keeps},
		{"the file is a folder", func(dir string) error {
			_ = os.Remove(filepath.Join(dir, "a.yaml"))
			return os.Mkdir(filepath.Join(dir, "a.yaml"), 0o755)
		}, "", "the folder has no rule files (*.yaml, *.yml)" + keeps},
		{"the link leads nowhere", func(dir string) error {
			_ = os.Remove(filepath.Join(dir, "a.yaml"))
			return os.Symlink("nowhere", filepath.Join(dir, "a.yaml"))
		}, "a.yaml", "no such file or directory" + keeps},
		{"the file is no file", func(dir string) error {
			_ = os.Remove(filepath.Join(dir, "a.yaml"))
			return os.Symlink(os.DevNull, filepath.Join(dir, "a.yaml"))
		}, "a.yaml", "this is not a regular file; the last good rules stay"},
	} {
		t.Run(row.remark, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "rules")
			path := filepath.Join(dir, "a.yaml")
			write(t, path, rule("/a"))
			w := start(t, dir, 0)
			must(t, row.lose(dir))
			w.refuses(filepath.Join(dir, row.at), row.says)
			w.holds("/a")
			must(t, os.RemoveAll(path))
			write(t, path, rule("/b"))
			w.change(true)
			w.holds("/b")
		})
	}
}

func TestOneOfSeveralFilesThatBecomesEmptyCanBeRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, rule("/a"))
	write(t, filepath.Join(dir, "b.yaml"), rule("/b"))
	w := start(t, dir, 0)
	must(t, os.Truncate(path, 0))
	w.refuses(path, "the file became empty; if that is meant, remove it, or leave a comment in it; the last good rules stay")
	w.holds("/a", "/b")
	must(t, os.Remove(path))
	w.change(true)
	w.holds("/b")
}

func TestWhatComesBackAsItWasEndsTheError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, path, 0)
	must(t, os.Rename(path, path+".away"))
	w.refuses(path, "no such file or directory; the last good rules stay (a file with only a comment clears them)")
	must(t, os.Rename(path+".away", path))
	w.change(true)
	if s := w.live.Status().Sources[path]; s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

func TestAFileWithOnlyACommentClearsTheRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write(t, path, rule("/a"))
	w := start(t, path, 0)
	write(t, path, "# none\n")
	w.change(true)
	w.holds()
}

func TestAnEmptyFileIsRefusedAtStartInTheWordsOfCheck(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	const empty = ": the file is empty; if no rules are meant, leave a comment in it"
	write(t, a, "")
	for _, row := range []struct{ remark, path, want string }{
		{"a file", a, "reading rules: " + a + empty},
		{"a folder's only file", dir, "reading rules: " + a + empty},
		{"all files of a folder", dir, "reading rules: " + a + empty + "\n" + b + empty},
	} {
		if strings.HasPrefix(row.remark, "all") {
			write(t, b, "")
		}
		ran := New(row.path, Options{}).Run(t.Context(), func(rules.Snapshot) error { return nil })
		_, read := Read(row.path)
		for _, err := range []error{ran, read} {
			if err == nil || err.Error() != row.want {
				t.Errorf("%s: %v, want %s", row.remark, err, row.want)
			}
		}
	}
	write(t, b, "# none\n")
	if _, err := Read(dir); err != nil {
		t.Errorf("beside a comment: %v", err)
	}
}

func TestAFolderBeneathComesAndGoes(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), rule("/a"))
	w := start(t, dir, 0)
	sub := filepath.Join(dir, "new", "sub")
	for range 2 {
		must(t, os.MkdirAll(sub, 0o755))
		w.quiet()
		write(t, filepath.Join(sub, "b.yaml"), rule("/b"))
		w.change(true)
		w.holds("/a", "/b")
		must(t, os.RemoveAll(filepath.Dir(sub)))
		w.change(true)
		w.holds("/a")
	}
}

func TestWithoutEventsTheIntervalFindsChanges(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "above", "rules")
	write(t, filepath.Join(dir, "a.yaml"), rule("/a"))
	w := start(t, dir, 100*time.Millisecond)
	// The folder above the rules is gone, and with it what was watched.
	must(t, os.RemoveAll(filepath.Dir(dir)))
	w.refuses(dir, "no such file or directory; the last good rules stay (a file with only a comment clears them)")
	write(t, filepath.Join(dir, "a.yaml"), rule("/b"))
	w.change(true)
	w.holds("/b")
}

func TestRunSaysWhyItCannotBegin(t *testing.T) {
	empty := t.TempDir()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	write(t, bad, "rules: x")
	large := filepath.Join(t.TempDir(), "large.yaml")
	write(t, large, "")
	must(t, os.Truncate(large, maxFileSize+1))
	for path, want := range map[string]string{
		filepath.Join(empty, "missing"): "no such file or directory",
		empty:                           "has no rule files",
		bad:                             bad + ":1:8: rules is a list",
		large:                           "larger than 64 MiB",
		os.DevNull:                      "is not a regular file",
	} {
		err := New(path, Options{}).Run(context.Background(), func(s rules.Snapshot) error {
			return rules.NewLive(rules.LiveOptions{}).Apply(path, s)
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestNamesInFaultsAreThePathAsGiven(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, filepath.Join(dir, "rules", "sub", "a.yaml"), "rules: x")
	err := New("rules", Options{}).Run(context.Background(), func(s rules.Snapshot) error { return s.Faults })
	if err == nil || !strings.Contains(err.Error(), " rules/sub/a.yaml:1:8") {
		t.Error(err)
	}
}
