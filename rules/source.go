package rules

import (
	"context"
	"maps"
	"slices"
)

// Snapshot is all that a source held at one moment.
type Snapshot struct {
	Documents []*Document
	Faults    Faults // what Parse found, or why the source was not read; with any, the snapshot is refused
}

// ParseSnapshot parses the files of a source, by name.
func ParseSnapshot(files map[string][]byte) Snapshot {
	var snap Snapshot
	for _, name := range slices.Sorted(maps.Keys(files)) {
		doc, _ := Parse(name, files[name]) // the document has its faults
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
	// content. Run returns nil when ctx is done, and an error at once if the
	// first read or the first apply fails. When the source is lost or found empty
	// later, apply is called with a Snapshot whose Faults say so, once: it refuses
	// them, tells of them, and the last good rules stay.
	Run(ctx context.Context, apply func(Snapshot) error) error
}
