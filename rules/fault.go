package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong with a rule file, and where. Line and Col count from
// 1, Col in characters; a Line of 0 means the file as a whole.
type Fault struct {
	File      string
	Line, Col int
	Msg       string
}

func (f Fault) Error() string { return f.place() + ": " + f.Msg }

func (f Fault) place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Col)
}

// Faults is all that is wrong, sorted by place. As an error it is one line for
// each fault.
type Faults []Fault

func (f Faults) Error() string {
	const most = 100 // of a file that is all wrong, in a log line
	var text strings.Builder
	for i, fault := range f {
		if i > 0 {
			text.WriteByte('\n')
		}
		if i == most {
			fmt.Fprintf(&text, "and %d more, which `weir check` names", len(f)-i)
			break
		}
		text.WriteString(fault.Error())
	}
	return text.String()
}

// asError sorts the faults and drops repetitions, which aliases bring about. It
// is nil if there are none: a nil Faults in an error is not a nil error.
func (f Faults) asError() error {
	if len(f) == 0 {
		return nil
	}
	return sorted(f)
}

func sorted(faults []Fault) Faults {
	faults = slices.Clone(faults)
	slices.SortFunc(faults, func(a, b Fault) int {
		return cmp.Or(
			strings.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
			strings.Compare(a.Msg, b.Msg),
		)
	})
	return slices.Compact(faults)
}
