package accesslog

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/agnivade/levenshtein"

	"weir/rules"
)

// The formats.
const (
	formatCombined = "combined"
	formatEnvoy    = "envoy"
	formatJSON     = "json"
	formatCSV      = "csv"
)

// Formats lists the names of the formats that are known.
func Formats() []string { return []string{formatCombined, formatEnvoy, formatJSON, formatCSV} }

// recognise names the format that a line is of; "": none.
func recognise(line []byte) string {
	all := make([][]byte, columnCount)
	var c columns
	switch {
	case len(line) == 0:
		return ""
	case line[0] == '{':
		return formatJSON
	case line[0] == '[':
		if c.envoy(line, all) == nil {
			return formatEnvoy
		}
		return ""
	case c.combined(line, all) == nil:
		return formatCombined
	case bytes.ContainsAny(line, ",;\t"):
		return formatCSV
	}
	return ""
}

// newParser returns the parser of a format for a mapping's fields. The header is
// CSV's.
func newParser(format string, header []byte, m *Mapping) (parser, error) {
	switch format {
	case formatCombined:
		return newColumnParser(m, format, combinedFields, (*columns).combined)
	case formatEnvoy:
		return newColumnParser(m, format, envoyFields, (*columns).envoy)
	case formatJSON:
		return newJSONParser(m), nil
	}
	return newCSVParser(header, m)
}

// resolver finds where a format has the fields of a mapping.
type resolver struct {
	mapping *Mapping
	what    string   // the format has, for people
	names   []string // of its fields
	faults  rules.Faults
}

// missing notes that the format does not have a field. A mapping that the rules imply
// does without.
func (r *resolver) missing(f *field) {
	if r.mapping.implied {
		return
	}
	hint := ""
	least := len(f.name)/3 + 2
	for _, name := range r.names {
		if d := levenshtein.ComputeDistance(f.name, name); d < least && len(f.name) < 64 {
			hint, least = fmt.Sprintf("did you mean %q? ", name), d
		}
	}
	r.faults = append(r.faults, r.mapping.fault(f.at, "unknown field %s; %s%s has %s", brief([]byte(f.name)), hint, r.what, strings.Join(r.names, ", ")))
}

func (r *resolver) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return r.faults
}
