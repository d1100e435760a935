package rules

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

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

// lineReader hands out one line at a time, so that how far a reader came tells
// on which line it stopped.
type lineReader struct {
	rest []byte
	read int // lines
}

func (r *lineReader) Read(buffer []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	line := len(r.rest)
	if end := bytes.IndexByte(r.rest, '\n'); end >= 0 {
		line = end + 1
	}
	n := copy(buffer, r.rest[:line])
	if n == line {
		r.read++
	}
	r.rest = r.rest[n:]
	return n, nil
}

// syntaxFault says where the YAML library stopped, after so many lines, as far as
// it tells.
func syntaxFault(err error, src []byte, lines int) (place, string) {
	problem := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(rest, "'")
		return firstOf(src, "*"+name), fmt.Sprintf(`no anchor &%s before this alias; if a value is meant, quote it, as in "*%[1]s"`, name)
	}
	line := 1
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, problem = n, text
		}
	}
	if problem == "did not find expected alphabetic or numeric character" { // of an alias or an anchor
		problem += `; quote a value that begins with * or &, as in "*"`
	}
	if namesBeginning(problem) {
		return place{max(lines, 1), 1}, fmt.Sprintf("not YAML: %s (in what begins on line %d)", problem, line+1)
	}
	return place{line, 1}, "not YAML: " + problem
}

// namesBeginning knows the messages of the library's parser. The line of those
// is where the list or mapping begins in which it stopped, counted from 0.
func namesBeginning(problem string) bool {
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
