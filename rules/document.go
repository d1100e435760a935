package rules

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// DefaultDomain is the domain of rules that name none.
const DefaultDomain = "default"

// Document is what one file says: one or more YAML documents, each with rules
// of one domain. It is immutable.
type Document struct {
	Name string // of the file, as it stands in faults

	digest   [sha256.Size]byte // of the file's bytes
	drafts   []draft
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
}

// place is where in its file something stands.
type place struct{ line, col int }

// Parse reads a rule file. All that is wrong with it is in the error, which is
// Faults; the Document then holds what is sound, so that Compile can find the
// faults between rules too. The Document is never nil.
func Parse(name string, src []byte) (*Document, error) {
	doc := &Document{Name: name, digest: sha256.Sum256(src)}
	r := newReader(name, len(src))
	if at, problem := unreadable(src); problem != "" {
		r.faultAt(at, "%s", problem)
		doc.faults = sorted(r.faults)
		return doc, doc.faults
	}
	decoder := yaml.NewDecoder(bytes.NewReader(src))
	for !r.exhausted() {
		root, err := nextDocument(decoder)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			at, problem := syntaxFault(err, src)
			r.faultAt(at, "%s", problem)
			break
		}
		doc.drafts = append(doc.drafts, r.document(root)...)
	}
	if r.exhausted() {
		doc.drafts = nil
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

// unreadable finds the first byte that cannot stand in a rule file.
func unreadable(src []byte) (place, string) {
	if bytes.HasPrefix(src, []byte("\xff\xfe")) || bytes.HasPrefix(src, []byte("\xfe\xff")) {
		return place{1, 1}, "the file is UTF-16; save it as UTF-8"
	}
	at := place{1, 1}
	for i := 0; i < len(src); {
		char, size := utf8.DecodeRune(src[i:])
		switch {
		case char == utf8.RuneError && size == 1:
			return at, fmt.Sprintf(`byte 0x%02x is not UTF-8; write a value of other bytes as !!binary, in base64`, src[i])
		case char == 0:
			return at, "a NUL byte; is this a text file?"
		case char < ' ' && char != '\t' && char != '\n' && char != '\r', char == 0x7f:
			return at, fmt.Sprintf(`control character 0x%02x; within double quotes it is written "\x%02x"`, char, char)
		}
		at.col++
		if char == '\n' {
			at = place{at.line + 1, 1}
		}
		i += size
	}
	return at, ""
}

// syntaxFault says where the YAML library stopped, as far as it tells.
func syntaxFault(err error, src []byte) (place, string) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	at := place{1, 1}
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			at.line, problem = line, text
			if countsLinesFromZero(text) {
				at.line++
			}
		}
	}
	if rest, ok := strings.CutPrefix(problem, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		at = firstOf(src, "*"+name)
	}
	return at, "not YAML: " + problem
}

// countsLinesFromZero knows the messages of the library's parser. Those of its
// scanner count lines from 1.
func countsLinesFromZero(problem string) bool {
	what, ok := strings.CutPrefix(problem, "did not find expected ")
	if !ok {
		return false
	}
	switch what {
	case "node content", "'-' indicator", "key", "',' or ']'", "',' or '}'", "<document start>":
		return true
	}
	return false
}

func firstOf(src []byte, text string) place {
	before, _, found := bytes.Cut(src, []byte(text))
	if !found {
		return place{1, 1}
	}
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	return place{
		line: bytes.Count(before, []byte("\n")) + 1,
		col:  utf8.RuneCount(before[lineStart:]) + 1,
	}
}
