package rules

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is a source that says one thing after the other, each after a second.
type script []Snapshot

func (s script) Run(ctx context.Context, apply func(Snapshot) error) error {
	for _, snap := range s {
		time.Sleep(time.Second)
		_ = apply(snap)
	}
	<-ctx.Done()
	return nil
}

// cachedRun runs a source behind a cache for some time.
func cachedRun(t *testing.T, dir, name string, source Source, length time.Duration) *Live {
	t.Helper()
	l := NewLive(LiveOptions{})
	c, err := NewCache(source, CacheOptions{Dir: dir, Name: name, Wait: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	if err := c.Run(ctx, func(s Snapshot) error { return l.Apply(name, s) }); err != nil {
		t.Error(err)
	}
	return l
}

func away(problem string) Snapshot {
	return Snapshot{Faults: Faults{{File: "consul://x", Msg: problem}}}
}

func versioned(snap Snapshot, version string) Snapshot {
	snap.Version = version
	return snap
}

func TestTheCacheStandsInAtAStartWithoutTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "made/if/need/be")
		const name = "consul://127.0.0.1:8500/weir/rules"
		begin := time.Now()
		l := cachedRun(t, dir, name, script{away("away"), versioned(snapshot("a", ruleA), "7"), versioned(snapshot("a", rulesAB), "8"), snapshot("a", badRules), away("away")}, time.Minute)
		if has(l) != "ab" {
			t.Fatalf("rules %q", has(l))
		}
		for _, c := range []struct {
			remark string
			source Source
			length time.Duration
			want   string
			cached bool
			failed bool
		}{
			{"a source that says nothing", script{}, time.Minute, "ab", true, false},
			{"before it is given up", script{}, 400 * time.Millisecond, "", false, false},
			{"one that is away", script{away("away")}, time.Minute, "ab", true, true},
			{"one that is faulty", script{snapshot("a", badRules)}, time.Minute, "ab", true, true},
			{"one that comes later, with other rules", script{away("away"), snapshot("a", ruleB)}, time.Minute, "b", false, false},
		} {
			if c.want == "b" {
				dir = copyOf(t, dir)
			}
			l := cachedRun(t, dir, name, c.source, c.length)
			s := l.Status().Sources[name]
			if has(l) != c.want || s.Cached != c.cached || (s.LastError != "") != c.failed {
				t.Errorf("%s: rules %q, %+v", c.remark, has(l), s)
			}
			if c.cached && (s.Version != "8" || !s.AsOf.Equal(begin.Add(3*time.Second))) {
				t.Errorf("%s: version %q as of %v", c.remark, s.Version, s.AsOf)
			}
		}
	})
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestTheSourceConfirmsWhatTheCacheHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cachedRun(t, dir, "s", script{snapshot("a", ruleA)}, time.Minute)
		l := cachedRun(t, dir, "s", script{away("away"), snapshot("a", ruleA)}, time.Minute)
		if s := l.Status(); has(l) != "a" || s.Reloads != 1 || s.Sources["s"].Cached || s.Sources["s"].LastError != "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestACacheThatCannotBeReadIsNoRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cachedRun(t, dir, "s", script{snapshot("a", ruleA)}, time.Minute)
		if l := cachedRun(t, dir, "another", script{}, time.Minute); has(l) != "" {
			t.Error("a source got another one's rules")
		}
		for _, text := range []string{"", "{", `{"source": "x"}`, `{"source": "s", "files": {"a": "!"}}`, `{"source": "s", "files": {"a": "Og=="}}`} {
			found, err := filepath.Glob(filepath.Join(dir, "s-*.json"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if err := os.WriteFile(found[0], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if l := cachedRun(t, dir, "s", script{away("away")}, time.Minute); has(l) != "" {
				t.Errorf("%q: rules %q", text, has(l))
			}
		}
		cachedRun(t, dir, "s", script{snapshot("a", ruleB)}, time.Minute) // and is written anew
		if l := cachedRun(t, dir, "s", script{away("away")}, time.Minute); has(l) != "b" {
			t.Errorf("rules %q", has(l))
		}
	})
}

func TestAFolderThatCannotBeWrittenIsSaidAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewCache(script{}, CacheOptions{Dir: file, Name: "s"}); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestUnchangedFilesAreNotParsedAgain(t *testing.T) {
	before := ParseSnapshot(map[string][]byte{"a": []byte(ruleA), "b": []byte(ruleB)})
	after := ParseSnapshot(map[string][]byte{"a": []byte(ruleA), "b": []byte(badRules), "c": []byte(ruleB)}, before.Documents...)
	if after.Documents[0] != before.Documents[0] || after.Documents[1] == before.Documents[1] || after.Documents[2] == before.Documents[1] || len(after.Faults) != 1 {
		t.Errorf("%v", after)
	}
}

// Who shares the machine sees no rules, and puts none into the cache.
func TestTheCacheIsItsOwnersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "cache")
		cachedRun(t, dir, "consul://x", script{versioned(snapshot("a", ruleA), "7")}, time.Minute)
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
