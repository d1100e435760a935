package kv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/rules"
	"weir/rules/kv"
)

func sortedKeys(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }

func TestAPushIsAVersionWithItsHistory(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		if st := stateOf(t, repo); st.Version != 0 || st.ByHand || len(st.Files) != 0 {
			t.Errorf("an empty store: %+v", st)
		}
		if _, err := repo.Push(t.Context(), stateOf(t, repo), nil, info("")); !errors.Is(err, kv.ErrNothing) {
			t.Errorf("nothing onto nothing: %v", err)
		}
		first := files("a.yaml", rule("/a"), "sub/b.yaml", rule("/b"), "empty.yaml", "")
		second := files("a.yaml", rule("/a", "/a2"), "c.yaml", rule("/c"))
		pushed(t, repo, first, "the first\n\"one\"")
		r := reading(t, s, s.url, 0)
		eventually(t, "the first in force", func() bool { return r.status().Version == "1" })
		v := pushed(t, repo, second, "the second")
		eventually(t, "the second in force", func() bool { return r.status().Version == "2" })
		if r.status().Digest != v.Digest || v.Digest != rules.Digest(second) || r.live.Current().Version() != v.Digest {
			t.Errorf("digests: instance %s, version %s", r.status().Digest, v.Digest)
		}
		st := stateOf(t, repo)
		if st.Version != 2 || st.ByHand || text(st.Files) != text(second) {
			t.Errorf("%+v", st)
		}
		if _, err := repo.Push(t.Context(), st, second, info("")); !errors.Is(err, kv.ErrNothing) {
			t.Errorf("the same again: %v", err)
		}
		log, err := repo.Log(t.Context())
		if err != nil || len(log) != 2 || log[0].Number != 2 || log[1].Info != info("the first\n\"one\"") || log[1].Digest != rules.Digest(first) {
			t.Errorf("log: %+v, %v", log, err)
		}
		_, old, err := repo.Version(t.Context(), 1)
		if err != nil || text(old) != text(first) {
			t.Errorf("version 1: %v\n%s", err, text(old))
		}
		if _, _, err := repo.Version(t.Context(), 3); !errors.Is(err, kv.ErrNoVersion) {
			t.Errorf("version 3: %v", err)
		}
	})
}

func TestNoSourceSeesHalfAPushOfManyDocuments(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		whole := map[string]string{}
		push := func(edition string, n int) {
			set := many(n, edition)
			whole[rules.Digest(set)] = edition
			pushed(t, repo, set, edition)
		}
		push("A", 500)
		readers := []*read{reading(t, s, s.url, 0), reading(t, s, s.url, 0)}
		for _, r := range readers {
			eventually(t, "A", func() bool { return r.status().Version == "1" })
		}
		for i, edition := range []string{"B", "C", "D"} {
			push(edition, 500-100*i)
		}
		for _, r := range readers {
			eventually(t, "D", func() bool { return r.status().Version == "4" })
			for _, version := range r.seen() {
				if whole[version] == "" {
					t.Errorf("a set was in force that nobody pushed: %s", version)
				}
			}
			if n := r.live.Status().Failures; n != 0 {
				t.Errorf("%d failures", n)
			}
		}
	})
}

func TestOfTwoOperatorsOneWins(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		for _, n := range []int{3, 200} { // in one transaction, and in many
			repo := kv.NewRepository(s, prefix)
			pushed(t, repo, many(n, fmt.Sprint("base", n)), "base")
			from := stateOf(t, repo)
			var all sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				all.Go(func() { _, errs[i] = repo.Push(t.Context(), from, many(n, fmt.Sprint("operator", i)), info("")) })
			}
			all.Wait()
			won := -1
			for i, err := range errs {
				switch {
				case err == nil && won >= 0:
					t.Errorf("%d documents: both %d and %d won", n, won, i)
				case err == nil:
					won = i
				case !errors.Is(err, kv.ErrConflict):
					t.Errorf("%d documents: %v", n, err)
				}
			}
			st := stateOf(t, repo)
			if won < 0 || st.Push != nil || st.ByHand || text(st.Files) != text(many(n, fmt.Sprint("operator", won))) {
				t.Errorf("%d documents: %d won, state version %d, by hand %v, push %v", n, won, st.Version, st.ByHand, st.Push)
			}
		}
	})
}

func TestWhatWasWrittenByOtherMeansIsKept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		s.put(prefix+"/hand.yaml", rule("/hand"))
		if st := stateOf(t, repo); !st.ByHand || st.Version != 0 {
			t.Errorf("%+v", st)
		}
		if v := pushed(t, repo, files("a.yaml", rule("/a")), "first"); v.Number != 2 {
			t.Errorf("version %d", v.Number)
		}
		s.put(prefix+"/a.yaml", rule("/hot-fix"))
		r := reading(t, s, s.url, 0)
		eventually(t, "by hand", func() bool { return r.status().Version == "2+" && r.has("/hot-fix") })
		pushed(t, repo, many(150, "x"), "many")
		for number, want := range map[uint64]string{1: "hand.yaml: " + rule("/hand") + "\n", 3: "a.yaml: " + rule("/hot-fix") + "\n"} {
			v, got, err := repo.Version(t.Context(), number)
			if err != nil || text(got) != want || !v.Found {
				t.Errorf("version %d: %v, found %v\n%s", number, err, v.Found, text(got))
			}
		}
		if st := stateOf(t, repo); st.Version != 4 || st.ByHand {
			t.Errorf("%+v", st)
		}
	})
}

// A client that dies, or is cut off, at any of its writes: what is there can be
// finished or taken back, and nothing that reads ever saw half of it.
func TestAPushCutOffAnywhereIsFinishedOrTakenBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		base := many(150, "base")
		next := many(120, "next") // changes 120, removes 30
		next["new.yaml"] = []byte(rule("/new"))
		repo := kv.NewRepository(s, prefix)
		r := reading(t, s, s.url, 0)
		whole := map[string]bool{rules.Digest(base): true, rules.Digest(next): true}
		for _, way := range []string{"abort", "resume"} {
			for _, answer := range []bool{false, true} {
				for cut := 0; ; cut++ {
					if text(stateOf(t, repo).Files) != text(base) {
						pushed(t, repo, base, "base")
					}
					f := &failing{Store: s, left: cut, answer: answer}
					_, err := kv.NewRepository(f, prefix).Push(t.Context(), stateOf(t, repo), next, info(""))
					if err == nil {
						break // it takes no more commits than that
					}
					st := stateOf(t, repo)
					if st.Push == nil {
						if text(st.Files) != text(base) {
							t.Fatalf("cut at %d: no push stands, and the documents are not what they were", cut)
						}
						continue
					}
					remark := fmt.Sprintf("%s of a push cut at %d (answer lost: %v)", way, cut, answer)
					checkPutRight(t, repo, way, base, next, remark)
				}
			}
		}
		eventually(t, "the last one", func() bool { return r.live.Current().Version() == rules.Digest(stateOf(t, repo).Files) })
		for _, version := range r.seen() {
			if !whole[version] {
				t.Errorf("a set was in force that nobody pushed: %s", version)
			}
		}
	})
}

func checkPutRight(t *testing.T, repo *kv.Repository, way string, base, next map[string][]byte, remark string) {
	t.Helper()
	want := base
	var err error
	if way == "resume" {
		_, err = repo.Resume(t.Context(), info("resumed"))
		want = next
		if err != nil && strings.Contains(err.Error(), "no document written yet") {
			_, err = repo.Abort(t.Context(), info("aborted"))
			want = base
		}
	} else {
		_, err = repo.Abort(t.Context(), info("aborted"))
	}
	st := stateOf(t, repo)
	if err != nil || st.Push != nil || st.ByHand || text(st.Files) != text(want) {
		t.Fatalf("%s: %v; version %d, by hand %v, push %v, %d documents", remark, err, st.Version, st.ByHand, st.Push, len(st.Files))
	}
	log, err := repo.Log(t.Context())
	if err != nil || log[0].Number != st.Version {
		t.Fatalf("%s: the history ends with %d, version %d is in force (%v)", remark, log[0].Number, st.Version, err)
	}
}

func TestAConflictHalfwayTakesThePushBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		base, next := many(200, "base"), many(200, "next")
		repo := kv.NewRepository(s, prefix)
		pushed(t, repo, base, "")
		victim := sortedKeys(base)[199]
		commits := &failing{Store: s, left: -1}
		commits.before = func(commit int) {
			if commit == 6 { // documents are being written, but not yet this one
				s.put(prefix+"/"+victim, "# by hand")
			}
		}
		_, err := kv.NewRepository(commits, prefix).Push(t.Context(), stateOf(t, repo), next, info(""))
		if !errors.Is(err, kv.ErrConflict) || !strings.Contains(err.Error(), "nothing was changed") {
			t.Errorf("%v", err)
		}
		st := stateOf(t, repo)
		base[victim] = []byte("# by hand")
		if st.Push != nil || !st.ByHand || text(st.Files) != text(base) {
			t.Errorf("push %v, by hand %v", st.Push, st.ByHand)
		}
	})
}

func TestOnePushAtATime(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		pushed(t, repo, many(10, "base"), "")
		from := stateOf(t, repo)
		f := &failing{Store: s, left: 2}
		_, _ = kv.NewRepository(f, prefix).Push(t.Context(), from, many(200, "dead"), info("died"))
		if _, err := repo.Push(t.Context(), stateOf(t, repo), many(10, "x"), info("")); !errors.Is(err, kv.ErrPushing) || !strings.Contains(err.Error(), "alice@example") {
			t.Errorf("while one stands: %v", err)
		}
		if _, err := repo.Push(t.Context(), from, many(10, "x"), info("")); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("with a state of before: %v", err)
		}
		if _, err := repo.Abort(t.Context(), info("")); err != nil {
			t.Error(err)
		}
		if _, err := repo.Abort(t.Context(), info("")); !errors.Is(err, kv.ErrNoPush) {
			t.Errorf("twice: %v", err)
		}
		if _, err := repo.Resume(t.Context(), info("")); !errors.Is(err, kv.ErrNoPush) {
			t.Errorf("after that: %v", err)
		}
	})
}

func TestDocumentsTooLargeOrHiddenAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		most := min(s.Limits().Value, s.Limits().Bytes-4096)
		for _, bad := range []struct{ name, value, want string }{
			{"large.yaml", strings.Repeat("#", most+1), fmt.Sprintf("large.yaml: it has %d bytes, and the store takes %d", most+1, most)},
			{".hidden.yaml", "x", ".hidden.yaml: "},
			{"a/.b/c.yaml", "x", "a/.b/c.yaml: "},
			{"folder/", "x", "folder/: "},
			{"bell\a.yaml", "x", "without control characters"},
			{"\xff.yaml", "x", "is UTF-8"},
			{"", "x", "a document's name"},
		} {
			_, err := repo.Push(t.Context(), stateOf(t, repo), files("ok.yaml", rule("/ok"), bad.name, bad.value), info(""))
			if err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%q: %v", bad.name, err)
			}
		}
		if st := stateOf(t, repo); len(st.Files) != 0 || st.Push != nil {
			t.Errorf("something was written: %v", sortedKeys(st.Files))
		}
		largest := files("large.yaml", strings.Repeat("#", most), "ok.yaml", rule("/ok"))
		pushed(t, repo, largest, "")
		if _, got, err := repo.Version(t.Context(), 1); err != nil || text(got) != text(largest) {
			t.Errorf("the largest: %v", err)
		}
	})
}

func TestPruningKeepsWhatVersionsNeed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		for i := range 8 {
			pushed(t, repo, files("same.yaml", rule("/same"), "a.yaml", rule(fmt.Sprint("/", i))), "")
			if err := repo.Prune(t.Context(), 3); err != nil {
				t.Fatal(err)
			}
		}
		log, err := repo.Log(t.Context())
		if err != nil || len(log) != 3 {
			t.Fatalf("%d versions, %v", len(log), err)
		}
		for _, v := range log {
			if _, got, err := repo.Version(t.Context(), v.Number); err != nil || rules.Digest(got) != v.Digest {
				t.Errorf("version %d: %v", v.Number, err)
			}
		}
		listing, err := s.List(t.Context(), kv.Query{Prefix: prefix + ".history/blobs/"})
		if err != nil || len(listing.Pairs) != 4 {
			t.Errorf("%d contents are kept, %v", len(listing.Pairs), err)
		}
		if _, _, err := repo.Version(t.Context(), 1); !errors.Is(err, kv.ErrNoVersion) {
			t.Errorf("version 1: %v", err)
		}
	})
}

func TestThePrefixForgetsItsVersionAndTheHistoryGoesOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		pushed(t, repo, files("a.yaml", rule("/a")), "")
		pushed(t, repo, files("a.yaml", rule("/b")), "")
		s.delete(prefix + "/.weir/current")
		if v := pushed(t, repo, files("a.yaml", rule("/c")), ""); v.Number != 4 { // 3 is what was found
			t.Errorf("version %d", v.Number)
		}
	})
}

func TestACancelledPushLeavesNoHalf(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		base := many(150, "base")
		pushed(t, repo, base, "")
		ctx, cancel := context.WithCancel(t.Context())
		f := &failing{Store: s, left: -1}
		f.before = func(commit int) {
			if commit == 5 {
				cancel()
			}
		}
		if _, err := kv.NewRepository(f, prefix).Push(ctx, stateOf(t, repo), many(150, "next"), info("")); err == nil {
			t.Error("no error")
		}
		if st := stateOf(t, repo); st.Push != nil || text(st.Files) != text(base) {
			t.Errorf("push %v, version %d", st.Push, st.Version)
		}
	})
}

// hold is a store of which one write is held up until it is let go.
type hold struct {
	kv.Store
	at      func(ops []kv.Op) bool
	reached chan struct{}
	let     chan struct{}
	once    sync.Once
}

func (h *hold) Commit(ctx context.Context, ops []kv.Op) (uint64, error) {
	if h.at(ops) {
		h.once.Do(func() { close(h.reached); <-h.let })
	}
	return h.Store.Commit(ctx, ops)
}

func puts(ops []kv.Op, suffix string) bool {
	return slices.ContainsFunc(ops, func(op kv.Op) bool { return op.Kind != kv.Check && strings.HasSuffix(op.Key, suffix) })
}

func TestWhoeverWasAbortedWritesNothingMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		base, next := many(150, "base"), many(150, "next")
		most := s.Limits().Bytes - 4096
		next["zz-large.yaml"] = []byte(strings.Repeat("#", most))
		repo := kv.NewRepository(s, prefix)
		pushed(t, repo, base, "")
		h := &hold{Store: s, reached: make(chan struct{}), let: make(chan struct{})}
		h.at = func(ops []kv.Op) bool { return puts(ops, prefix+"/zz-large.yaml") }
		done := make(chan error)
		from := stateOf(t, repo)
		go func() {
			_, err := kv.NewRepository(h, prefix).Push(context.Background(), from, next, info(""))
			done <- err
		}()
		<-h.reached
		if _, err := repo.Abort(t.Context(), info("aborted")); err != nil {
			t.Error(err)
		}
		close(h.let)
		if err := <-done; err == nil {
			t.Error("the push went well")
		}
		if st := stateOf(t, repo); text(st.Files) != text(base) || st.Push != nil || st.ByHand {
			t.Errorf("push %v, by hand %v, %d documents", st.Push, st.ByHand, len(st.Files))
		}
	})
}

// interrupted leaves a push of next over base standing halfway.
func interrupted(t *testing.T, s *server, base, next map[string][]byte) *kv.Repository {
	t.Helper()
	repo := kv.NewRepository(s, prefix)
	pushed(t, repo, base, "")
	f := &failing{Store: s, left: -1}
	f.before = func(int) {
		if f.left < 0 && f.documents > 1 {
			f.left = 0
		}
	}
	if _, err := kv.NewRepository(f, prefix).Push(t.Context(), stateOf(t, repo), next, info("")); err == nil {
		t.Fatal("the push was not interrupted")
	}
	st := stateOf(t, repo)
	if st.Push == nil || text(st.Files) == text(base) || text(st.Files) == text(next) {
		t.Fatalf("the push does not stand halfway: %v", st.Push)
	}
	return repo
}

func TestAbortKnowsWhatWasThereThoughNothingElseSaysSo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		base := many(350, "base")
		repo := interrupted(t, s, base, many(350, "next"))
		s.delete(prefix + "/.weir/current")
		if version, err := repo.Abort(t.Context(), info("")); err != nil || version != 1 {
			t.Errorf("version %d, %v", version, err)
		}
		if st := stateOf(t, repo); text(st.Files) != text(base) || st.Version != 1 || st.ByHand {
			t.Errorf("version %d, by hand %v, %d documents", st.Version, st.ByHand, len(st.Files))
		}
	})
}

func TestAnAbortWithoutItsHistoryDoesNothingUntilItIsForced(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := interrupted(t, s, many(350, "base"), many(350, "next"))
		listing, err := s.List(t.Context(), kv.Query{Prefix: prefix + ".history/"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range listing.Pairs {
			if strings.Contains(p.Key, "/versions/") {
				s.delete(p.Key)
			}
		}
		before := stateOf(t, repo)
		if _, err := repo.Abort(t.Context(), info("")); !errors.Is(err, kv.ErrHistory) {
			t.Errorf("abort: %v", err)
		}
		if _, err := repo.Resume(t.Context(), info("")); !errors.Is(err, kv.ErrHistory) {
			t.Errorf("resume: %v", err)
		}
		if st := stateOf(t, repo); st.Push == nil || text(st.Files) != text(before.Files) {
			t.Errorf("push %v", st.Push)
		}
		if err := repo.Release(t.Context()); err != nil {
			t.Error(err)
		}
		whole := many(10, "whole")
		pushed(t, repo, whole, "")
		if _, got, err := repo.Version(t.Context(), stateOf(t, repo).Version); err != nil || text(got) != text(whole) {
			t.Errorf("what is pushed then: %v", err)
		}
	})
}

func TestAPushWhoseFirstAnswerIsLostLeavesNoMarker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		f := &failing{Store: s, left: 0, answer: true, again: true}
		if _, err := kv.NewRepository(f, prefix).Push(t.Context(), stateOf(t, repo), many(200, "x"), info("")); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Error(err)
		}
		if st := stateOf(t, repo); st.Push != nil || len(st.Files) != 0 {
			t.Errorf("push %v, %d documents", st.Push, len(st.Files))
		}
	})
}

func TestAVersionIsWholeThoughTheHistoryWasRemovedBefore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		pushed(t, repo, files("a.yaml", rule("/a"), "b.yaml", rule("/b")), "")
		listing, err := s.List(t.Context(), kv.Query{Prefix: prefix + ".history/"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range listing.Pairs {
			s.delete(p.Key)
		}
		set := files("a.yaml", rule("/a"), "b.yaml", rule("/b2"))
		v := pushed(t, repo, set, "")
		if _, got, err := repo.Version(t.Context(), v.Number); err != nil || text(got) != text(set) {
			t.Errorf("version %d: %v", v.Number, err)
		}
	})
}

func TestAForgedNumberAndForeignKeysDoNoHarm(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		repo := kv.NewRepository(s, prefix)
		for _, name := range []string{"/a", "/b", "/c"} {
			pushed(t, repo, files("a.yaml", rule(name)), name)
		}
		s.put(prefix+".history/versions/", "")
		s.put(prefix+".history/versions/notes", "x")
		for _, forged := range []string{`{"version": 1}`, `{"version": 18446744073709551615}`, `{"version": 9999999999}`, "nonsense"} {
			s.put(prefix+"/.weir/current", forged)
			v := pushed(t, repo, files("a.yaml", rule("/"+forged[:4])), forged)
			log, err := repo.Log(t.Context())
			if err != nil || log[0].Number != v.Number {
				t.Fatalf("%s: version %d, and the log begins with %+v, %v", forged, v.Number, log[0], err)
			}
		}
		for number, name := range map[uint64]string{1: "/a", 2: "/b", 3: "/c"} {
			if _, got, err := repo.Version(t.Context(), number); err != nil || text(got) != text(files("a.yaml", rule(name))) {
				t.Errorf("version %d: %v", number, err)
			}
		}
	})
}
