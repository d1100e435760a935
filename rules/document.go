package rules

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// DefaultDomain is the domain of rules that name none.
const DefaultDomain = "default"

// Document is what one file says: one or more YAML documents, each with rules
// of one domain. It is immutable.
type Document struct {
	Name string // of the file, as it stands in faults

	source   []byte            // the file's bytes
	digest   [sha256.Size]byte // of them
	stated   []stated          // in file order
	drafts   []statedDraft     // what each of them does
	faults   Faults
	warnings []Fault
}

// draft is a node of a domain's tree as a file states it: a path, and the rule
// at its end if there is one.
type draft struct {
	domain string
	path   []step
	rule   *ruleDraft // nil: the node is only a way to others
	at     place
}

// step is one level of a path.
type step struct {
	key      string
	value    pattern
	defaults mask // of a flat remote_address: "*"
	own      mask // of the nested descriptor that the step is
	share    bool // one counter for all values
	toMetric bool // metrics tell its value (value_to_metric)
}

// place is where in its file something stands.
type place struct{ line, col int }

// Source returns the file's bytes, which are not to be changed.
func (d *Document) Source() []byte { return d.source }

// is tells whether src is what the document was parsed from.
func (d *Document) is(src []byte) bool { return bytes.Equal(d.source, src) }

// same tells whether two documents have one name and one content.
func (d *Document) same(other *Document) bool {
	return d == other || d.Name == other.Name && d.digest == other.digest
}

// Parse reads a rule file. All that is wrong with it is in the error, which is
// Faults; the Document then holds what is sound, so that Compile can find the
// faults between rules too. The Document is never nil.
func Parse(name string, src []byte) (*Document, error) {
	doc := &Document{Name: name, source: bytes.Clone(src), digest: sha256.Sum256(src)}
	r := newReader(name, len(src))
	if at, problem := unreadable(src); problem != "" {
		r.faultAt(at, "%s", problem)
		doc.faults = sorted(r.faults)
		return doc, doc.faults
	}
	var drafts []draft
	lines := &lineReader{rest: src}
	decoder := yaml.NewDecoder(lines)
	for !r.stopped {
		root, err := nextDocument(decoder)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			at, problem := syntaxFault(err, src, lines.read)
			r.faultAt(at, "%s", problem)
			break
		}
		drafts = append(drafts, r.document(root)...)
	}
	if !r.stopped {
		doc.keep(drafts)
	}
	doc.faults, doc.warnings = sorted(r.faults), sorted(r.warnings)
	return doc, doc.faults.asError()
}

// ParseNode is Parse for rules that stand within another file, of which src is all:
// root is what a rule file is, a mapping, at its place there.
func ParseNode(name string, src []byte, root *yaml.Node) (*Document, error) {
	doc := &Document{Name: name, source: bytes.Clone(src)}
	doc.digest = sha256.Sum256(fmt.Appendf(nil, "%d:%d:%s", root.Line, root.Column, src)) // apart from the rules elsewhere in the file
	r := newReader(name, len(src))
	if drafts := r.document(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}}); !r.stopped {
		doc.keep(drafts)
	}
	doc.faults, doc.warnings = sorted(r.faults), sorted(r.warnings)
	return doc, doc.faults.asError()
}

// nextDocument turns a panic of the YAML library, of which it had some, into a
// fault: a file never ends the process.
func nextDocument(decoder *yaml.Decoder) (root *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: not understood: %v", p)
		}
	}()
	root = new(yaml.Node)
	if err := decoder.Decode(root); err != nil {
		return nil, err
	}
	return root, nil
}
