package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// csvParser reads lines of values, whose names the first line has. A record is one
// line: a quote that nothing ends is a fault of its line alone.
type csvParser struct {
	separator byte
	width     int
	columns   [][]csvTake // by column, the fields that it has
	unquoted  []byte      // backs values that had quotes
}

type csvTake struct {
	field int
	name  string // what of the value
}

func newCSVParser(header []byte, m *Mapping) (parser, error) {
	p := &csvParser{separator: separatorOf(header)}
	var names []string
	err := p.split(header, func(_ int, value []byte) { names = append(names, strings.TrimSpace(string(value))) })
	if err != nil {
		return nil, fmt.Errorf("the header of the CSV file: %w", err)
	}
	p.width, p.columns = len(names), make([][]csvTake, len(names))
	r := resolver{mapping: m, what: "the header", names: names}
	for i := range m.fields {
		f := &m.fields[i]
		at, as := csvColumn(names, f.name)
		if at < 0 {
			if i == timeField && f.at == (place{}) { // nobody named it
				return nil, fmt.Errorf("no column of the header is known to be the time; name it by time: in the mapping. The header has %s", quotedList(names))
			}
			r.missing(f)
			continue
		}
		p.columns[at] = append(p.columns[at], csvTake{i, as})
	}
	return p, r.err()
}

// csvColumn finds the column of a field, and what of its values the field is.
func csvColumn(names []string, field string) (at int, as string) {
	for _, name := range knownAs(field) {
		if at = slices.Index(names, name); at >= 0 {
			return at, common(field)
		}
	}
	at = slices.IndexFunc(names, func(name string) bool { return common(name) == common(field) })
	return at, common(field)
}

// separatorOf is what the header has most of.
func separatorOf(header []byte) byte {
	best := byte(',')
	for _, c := range []byte(";\t") {
		if bytes.Count(header, []byte{c}) > bytes.Count(header, []byte{best}) {
			best = c
		}
	}
	return best
}

func (p *csvParser) parse(line []byte, values [][]byte) error {
	n := 0
	err := p.split(line, func(at int, value []byte) {
		n++
		if at >= len(p.columns) {
			return
		}
		for _, take := range p.columns[at] {
			if v := given(value); v != nil {
				values[take.field] = extract(take.name, v)
			}
		}
	})
	if err == nil && n != p.width {
		err = fmt.Errorf("%d values, and the header has %d", n, p.width)
	}
	return err
}

// split calls take for each value of a line.
func (p *csvParser) split(line []byte, take func(at int, value []byte)) error {
	p.unquoted = p.unquoted[:0]
	for at := 0; ; at++ {
		if len(line) == 0 || line[0] != '"' {
			value, rest, more := bytes.Cut(line, []byte{p.separator})
			take(at, value)
			if !more {
				return nil
			}
			line = rest
			continue
		}
		value, rest, err := p.quoted(line[1:])
		if err != nil {
			return err
		}
		take(at, value)
		if len(rest) == 0 {
			return nil
		}
		if rest[0] != p.separator {
			return fmt.Errorf("%s after the quotes of value %d", brief(rest), at+1)
		}
		line = rest[1:]
	}
}

// quoted reads up to the quote that ends a value, in which two are one.
func (p *csvParser) quoted(text []byte) (value, rest []byte, err error) {
	begin := len(p.unquoted)
	for {
		i := bytes.IndexByte(text, '"')
		if i < 0 {
			return nil, nil, errors.New(`no " ends what one begins`)
		}
		p.unquoted = append(p.unquoted, text[:i]...)
		text = text[i+1:]
		if len(text) == 0 || text[0] != '"' {
			return p.unquoted[begin:], text, nil
		}
		p.unquoted = append(p.unquoted, '"')
		text = text[1:]
	}
}
