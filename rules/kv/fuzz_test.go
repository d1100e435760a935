package kv

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/rules"
)

// stands is what stands in a store, as a fuzzer says.
type stands []Pair

func (s stands) List(_ context.Context, q Query) (Listing, error) {
	listing := Listing{Index: 1}
	for _, p := range s {
		if strings.HasPrefix(p.Key, q.Prefix) {
			listing.Pairs = append(listing.Pairs, p)
		}
	}
	slices.SortFunc(listing.Pairs, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	return listing, nil
}

func (stands) Commit(context.Context, []Op) (uint64, error) { return 0, ErrConflict }
func (stands) Limits() Limits                               { return Limits{Ops: 10, Bytes: 1000, Value: 1000} }

// FuzzWhatStandsBeneathAPrefix holds that whatever people and other programs write
// there is read as rules, as a push, as a version or as damaged, and holds nobody up.
func FuzzWhatStandsBeneathAPrefix(f *testing.F) {
	version := []byte(`{"version":1,"digest":"x","by":"a","at":"2026-01-02T03:04:05Z","files":{"a.yaml":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}`)
	f.Add("a.yaml", []byte("rules: [{endpoint: /a, unlimited: true}]"), []byte(`{"version":1,"digest":"x","fingerprint":"y"}`), []byte{}, "0000000001", version, []byte{})
	f.Add("a.yaml", []byte("rules: [{endpoint: /a, unlimited: true}]"), []byte{}, []byte(`{"version":2}`), "0000000001", version, []byte("x"))
	f.Add(".weir/x", []byte{}, []byte(`{"version":9999999999}`), []byte(`{"version":2,"by":"\u001b[2J","replaces":1,"recorded":true}`), "1", []byte("null"), []byte("x"))
	f.Add("dir/", []byte{}, []byte("[]"), []byte("!"), "18446744073709551616", []byte(`{"version":18446744073709551615}`), []byte{})
	f.Add("", []byte("\xff"), []byte{}, []byte(`{"version":-1}`), "-1/..", []byte(`{"version":1,"files":{"../x":"","":"y"}}`), []byte("{"))
	f.Fuzz(func(t *testing.T, name string, document, current, marker []byte, number string, version, blob []byte) {
		const prefix = "p"
		s := stands{{Key: prefix + "/" + name, Value: document, Version: 1}, {Key: prefix + ".history/" + versionsName + number, Value: version, Version: 1},
			{Key: prefix + ".history/" + blobsName + blobName(blob), Value: blob, Version: 1}}
		if len(current) > 0 {
			s = append(s, Pair{Key: prefix + "/" + currentName, Value: current, Version: 1})
		}
		if len(marker) > 0 {
			s = append(s, Pair{Key: prefix + "/" + markerName, Value: marker, Version: 1})
		}
		ctx, r := t.Context(), NewRepository(s, prefix)
		state, err := r.State(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(marker) > 0 != (state.Push != nil) && name != markerName {
			t.Fatalf("a push is under way: %t, and is seen: %+v", len(marker) > 0, state.Push)
		}
		if state.Push != nil {
			_ = state.Push.String()
		}
		if state.Version >= lastVersion {
			t.Fatalf("version %d", state.Version)
		}
		log, err := r.Log(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range log {
			_, files, err := r.Version(ctx, v.Number)
			for name, content := range files {
				if err == nil && blobName(content) != v.Files[name] {
					t.Fatalf("%s of version %d is %q", name, v.Number, content)
				}
			}
		}
		if next, err := r.next(ctx, state); err == nil && (next == 0 || next >= lastVersion || next <= state.Version) {
			t.Fatalf("after version %d comes %d", state.Version, next)
		}
		checkSource(t, s, prefix, len(marker) > 0 || name == markerName)
	})
}

// checkSource takes what stands there as a source of rules does.
func checkSource(t *testing.T, s stands, prefix string, pushing bool) {
	t.Helper()
	told := 0
	reader := &reader{Source: NewSource(SourceOptions{Store: s, Prefix: prefix, URL: "kv://h/p"}), apply: func(snap rules.Snapshot) error {
		told++
		if pushing && len(snap.Documents) > 0 {
			t.Fatal("rules are taken in the middle of a push")
		}
		_, err := rules.Compile(snap.Documents...)
		return err
	}}
	if pause := reader.step(t.Context()); told != 1 || pause > time.Minute {
		t.Fatalf("told %d times, and waits %v", told, pause)
	}
}
