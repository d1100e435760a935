package rules

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"
)

// Snapshot is all that a source held at one moment.
type Snapshot struct {
	Documents []*Document
	Faults    Faults // what Parse found, or why the source was not read; with any, the snapshot is refused

	Version string    // what the source calls this state, such as the number of a push; "": nothing
	AsOf    time.Time // when the source last held it; zero: just now
	Cached  bool      // it comes from a Cache, not from the source

	// Taken, unless nil, is called when the snapshot has come into force, or was
	// confirmed: before apply returns, or later, on another goroutine, if it was
	// refused for what another source said and that one has changed.
	Taken func()
}

// ParseSnapshot parses the files of a source, by name. Those that the snapshot
// before has with the same name and content are taken from it.
func ParseSnapshot(files map[string][]byte, before ...*Document) Snapshot {
	known := make(map[string]*Document, len(before))
	for _, doc := range before {
		known[doc.Name] = doc
	}
	var snap Snapshot
	for _, name := range slices.Sorted(maps.Keys(files)) {
		doc := known[name]
		if doc == nil || !doc.is(files[name]) {
			doc, _ = Parse(name, files[name]) // the document has its faults
			runtime.Gosched()                 // loading is in no hurry; requests are
		}
		snap.Documents = append(snap.Documents, doc)
		snap.Faults = append(snap.Faults, doc.faults...)
	}
	return snap
}

// Source is where rules come from.
type Source interface {
	// Run calls apply with what the source holds, and again each time that it
	// has changed, never twice at once. An error of apply means that the rules
	// before stay in force; the source goes on, and calls again only with other
	// content, or with what is in force to confirm that it still is. When the source
	// is lost or found empty, apply is called with a
	// Snapshot whose Faults say so, once: it refuses them, tells of them, and the
	// last good rules stay. Run returns nil when ctx is done. A source on this
	// machine (a file) returns an error at once if the first read or the first
	// apply fails, for whoever starts it is there to mend it; one elsewhere goes on
	// as it does later.
	Run(ctx context.Context, apply func(Snapshot) error) error
}
