package rules

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// Bounds that keep a file from costing more than its size warrants.
const (
	maxDepth      = 64      // levels of descriptors or merges
	maxMetadata   = 24      // levels of metadata; protobuf reads messages 100 deep, a level has three, and access logs wrap them
	spareVisits   = 100_000 // nodes that aliases may repeat, whatever the file's size
	visitsPerByte = 4
	spareText     = 1 << 20 // bytes of text that aliases may repeat, whatever the file's size
	textPerByte   = 8
	regexpBudget  = 500_000 // instructions of all regular expressions, of some 250 bytes each
)

// reader turns YAML nodes into drafts. It goes on after a fault, so that one
// run finds them all.
type reader struct {
	file     string
	faults   Faults
	warnings []Fault
	zones    map[string]*time.Location // loaded once each: loading reads the disk
	visits   int                       // nodes that may still be looked at
	texts    int                       // bytes of texts that may still be taken
	regexps  int                       // instructions that regular expressions may still have
	stopped  bool                      // they were used up: what is found from then on means nothing
}

func newReader(file string, size int) *reader {
	return &reader{file: file, zones: map[string]*time.Location{}, visits: spareVisits + visitsPerByte*size, texts: spareText + textPerByte*size, regexps: regexpBudget}
}

func (r *reader) faultAt(at place, format string, args ...any) {
	if r.stopped {
		return
	}
	r.faults = append(r.faults, Fault{File: r.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)})
}

func (r *reader) fault(n *yaml.Node, format string, args ...any) {
	r.faultAt(placeOf(n), format, args...)
}

func (r *reader) warn(n *yaml.Node, format string, args ...any) {
	r.warnAt(placeOf(n), format, args...)
}

func (r *reader) warnAt(at place, format string, args ...any) {
	r.warnings = append(r.warnings, Fault{File: r.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)})
}

func placeOf(n *yaml.Node) place { return place{max(n.Line, 1), max(n.Column, 1)} }

// spend counts the children of n as looked at. Aliases within aliases can make
// a small file enormous, or endless; then spend says so once and is false.
func (r *reader) spend(n *yaml.Node) bool {
	r.visits -= len(n.Content) + 1
	return r.left(n)
}

// spendText counts the text of n as taken, like spend.
func (r *reader) spendText(n *yaml.Node) bool {
	r.texts -= len(n.Value)
	return r.left(n)
}

func (r *reader) left(n *yaml.Node) bool {
	if !r.stopped && (r.visits < 0 || r.texts < 0) {
		r.fault(n, "aliases repeat too much, or an alias contains itself")
		r.stopped = true
	}
	return !r.stopped
}

// missing reports a field that is not there, unless the mapping has one that was
// not understood, which likely is that field.
func (r *reader) missing(fs *fields, problem string) {
	if !fs.partial {
		r.fault(fs.at, "%s", problem)
	}
}

// tooDeep bounds recursion.
func (r *reader) tooDeep(n *yaml.Node, depth int) bool { return r.deeper(n, depth, maxDepth) }

func (r *reader) deeper(n *yaml.Node, depth, most int) bool {
	if depth < most {
		return false
	}
	r.fault(n, "deeper than %d levels (does an alias contain itself?)", most)
	return true
}

// deref follows an alias. An alias never leads to another.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindOf names a node for people.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return brief(n.Value)
}

// brief quotes a text, of which a fault shows no more than is helpful.
func brief(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:most], "")) + "…"
}

// list returns the items of a sequence; none, and a fault, of anything else.
func (r *reader) list(f field) []*yaml.Node {
	if f.value.Kind != yaml.SequenceNode {
		r.fault(f.value, "%s is a list, not %s", f.name, kindOf(f.value))
		return nil
	}
	if !r.spend(f.value) {
		return nil
	}
	items := make([]*yaml.Node, len(f.value.Content))
	for i, item := range f.value.Content {
		items[i] = deref(item)
	}
	return items
}

// text returns a scalar as it is written: 1 and 1.0 stay what they are.
func (r *reader) text(f field) (string, bool) {
	if !r.spendText(f.value) {
		return "", false
	}
	if f.value.Kind != yaml.ScalarNode || isNull(f.value) {
		r.fault(f.value, "%s is a text, not %s", f.name, kindOf(f.value))
		return "", false
	}
	switch tag := f.value.ShortTag(); tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		return f.value.Value, true
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.value.Value), ""))
		if err != nil {
			r.fault(f.value, "%s is not base64: %v", f.name, err)
			return "", false
		}
		return string(data), true
	default:
		r.fault(f.value, "%s has the unknown tag %s", f.name, tag)
		return "", false
	}
}

// whole returns a whole number from 0 to most.
func (r *reader) whole(f field, most uint64) (uint64, bool) { return r.wholeFrom(f, 0, most) }

// wholeFrom is whole, for numbers of which the caller takes none below the least.
func (r *reader) wholeFrom(f field, least, most uint64) (uint64, bool) {
	var number uint64
	if f.value.Kind == yaml.ScalarNode && f.value.ShortTag() == "!!int" && f.value.Decode(&number) == nil && number <= most {
		if digits := f.value.Value; len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
			r.warn(f.value, "%s %s is read as %d, for YAML takes a leading 0 for octal", f.name, digits, number)
		}
		return number, true
	}
	quoted := ""
	if f.value.Kind == yaml.ScalarNode && f.value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		quoted = " in quotes"
	}
	r.fault(f.value, "%s is a whole number from %d to %d, not %s%s", f.name, least, most, kindOf(f.value), quoted)
	return 0, false
}

// flag returns a truth value. The words of YAML 1.1 (yes, no, on, off) are
// taken too, as envoyproxy/ratelimit takes them.
func (r *reader) flag(f field) bool {
	var on bool
	plain := f.value.Kind == yaml.ScalarNode && f.value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
	if !plain || isNull(f.value) || f.value.Decode(&on) != nil {
		r.fault(f.value, "%s is true or false, not %s", f.name, kindOf(f.value))
		return false
	}
	return on
}

// choice returns the index of the name that the field's text is, or -1.
func (r *reader) choice(f field, names []string) int {
	text, ok := r.text(f)
	if !ok {
		return -1
	}
	i := slices.Index(names, text)
	if i < 0 {
		r.fault(f.value, "%s: unknown %s%s", f.name, brief(text), suggestion(text, names))
	}
	return i
}

// suggestion names the known word that is nearest, or the few that the word
// begins, or all if they are few.
func suggestion(word string, known []string) string {
	if len(word) > 64 {
		return "" // no slip makes a name so long, and comparing would take its time
	}
	nearest, least := "", len(word)/3+2
	for _, candidate := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), candidate); d < least {
			nearest, least = candidate, d
		}
	}
	if begun := begunBy(word, known); least > 2 && len(begun) > 1 {
		return "; did you mean " + strings.Join(begun, " or ") + "?"
	}
	switch {
	case nearest != "":
		return fmt.Sprintf("; did you mean %q?", nearest)
	case len(known) <= 8:
		return "; known are " + strings.Join(known, ", ")
	}
	return ""
}

// begunBy returns the known words, quoted, that the word is the beginning of;
// none if they are more than a few.
func begunBy(word string, known []string) []string {
	word = strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(word))
	var begun []string
	for _, candidate := range known {
		if len(word) >= 3 && strings.HasPrefix(candidate, word) {
			begun = append(begun, strconv.Quote(candidate))
		}
	}
	if len(begun) > 3 {
		return nil
	}
	return begun
}
