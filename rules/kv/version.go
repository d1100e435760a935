package kv

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Beneath the prefix stand the documents, and
//
//	.weir/push     Marker: a push is under way
//	.weir/current  current: which version the documents are of
//
// Beside it, so that whoever reads the rules need not read it, stands their
// history, beneath PREFIX.history/:
//
//	versions/NUMBER  Version, as JSON; NUMBER has 10 digits
//	blobs/SHA256     a document's content
const (
	markerName  = ".weir/push"
	currentName = ".weir/current"

	versionsName = "versions/"
	blobsName    = "blobs/"
)

// Info is who pushed, when, and why.
type Info struct {
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Message string    `json:"message,omitempty"`
}

// Version is a set of documents that was in force.
type Version struct {
	Number uint64 `json:"version"` // from 1
	Digest string `json:"digest"`  // as of rules.Digest: what a Set of it has for a Version
	Info
	Found bool              `json:"found,omitempty"` // the documents were written by other means, and found by the next push
	Files map[string]string `json:"files"`           // SHA-256 of each document, in hexadecimal digits, by name
}

// Marker is a push that is under way.
type Marker struct {
	Version  uint64 `json:"version"` // that it will be; 0: what stands there is no marker that this program wrote
	Digest   string `json:"digest"`
	Replaces uint64 `json:"replaces"` // the version before; 0: there were no documents
	Recorded bool   `json:"recorded"` // the history has all that is needed, and documents may have been written
	ID       string `json:"id"`       // of this attempt
	Info
}

func (m Marker) String() string {
	if m.Version == 0 {
		return "one whose marker is not understood"
	}
	return fmt.Sprintf("version %d by %s, begun %s", m.Version, quoted(m.By), m.At.UTC().Format(time.RFC3339))
}

// parseMarker never fails: whatever stands there holds the rules.
func parseMarker(value []byte) *Marker {
	m := new(Marker)
	if json.Unmarshal(value, m) != nil || m.Version > lastVersion {
		return new(Marker)
	}
	return m
}

// quoted is text that people wrote, in quotes if it would mislead a terminal.
func quoted(text string) string {
	if q := strconv.Quote(text); q != `"`+text+`"` {
		return q
	}
	return text
}

// lastVersion is the number of the last version that there can be: it has ten
// digits.
const lastVersion = 9_999_999_999

// current is which version the documents are of.
type current struct {
	Version     uint64 `json:"version"`
	Digest      string `json:"digest"`
	Fingerprint string `json:"fingerprint"`
}

func parseCurrent(p *Pair) (current, bool) {
	var c current
	if p == nil || json.Unmarshal(p.Value, &c) != nil || c.Version == 0 || c.Version >= lastVersion {
		return current{}, false
	}
	return c, true
}

// newVersion describes files, which are in force from number on.
func newVersion(number uint64, files map[string][]byte, digest string, info Info) Version {
	v := Version{Number: number, Digest: digest, Info: info, Files: make(map[string]string, len(files))}
	for name, value := range files {
		v.Files[name] = blobName(value)
	}
	return v
}

// blobName is what a content is kept by.
func blobName(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// Fingerprint digests names and contents.
func Fingerprint(files map[string][]byte) string {
	whole := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(whole, "%d %s %x\n", len(name), name, sum)
	}
	return hex.EncodeToString(whole.Sum(nil))[:16]
}
