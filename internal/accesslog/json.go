package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// jsonParser reads lines that are JSON objects each. Fields within others are named
// with points: request.host. It is much faster than to decode all of a line, most of
// which no mapping wants.
type jsonParser struct {
	wanted map[string][]jsonWish // by a value's name
	within map[string]bool       // names of objects that have wanted values
	ranks  []int                 // by field: of the value that was taken, plus 1

	text     []byte
	at       int
	name     []byte // of the object that is read, and a point
	unquoted []byte // backs values that had escapes
	open     []byte // what is to end what skip has seen begin
}

// jsonWish is a field that a value may be. Of several values in a line the lowest rank
// is it.
type jsonWish struct {
	field, rank int
	name        string // what of the value
	line        bool   // the value is a request's first line
}

// rankOfLine is of what is taken from a request's first line, where nothing else says it.
const rankOfLine = 1000

func newJSONParser(m *Mapping) parser {
	p := &jsonParser{wanted: map[string][]jsonWish{}, within: map[string]bool{}, ranks: make([]int, len(m.fields))}
	for i := range m.fields {
		name := common(m.fields[i].name)
		for rank, as := range knownAs(m.fields[i].name) {
			p.want(as, jsonWish{field: i, rank: rank, name: name})
		}
		switch name {
		case method, path, query, target:
			p.want("request", jsonWish{field: i, rank: rankOfLine, name: name, line: true})
		}
	}
	return p
}

func (p *jsonParser) want(name string, wish jsonWish) {
	p.wanted[name] = append(p.wanted[name], wish)
	for i := range len(name) {
		if name[i] == '.' {
			p.within[name[:i]] = true
		}
	}
}

func (p *jsonParser) parse(line []byte, values [][]byte) error {
	clear(p.ranks)
	p.text, p.at, p.name, p.unquoted = line, 0, p.name[:0], p.unquoted[:0]
	err := p.object(values, 0)
	if p.blank(); err == nil && p.at < len(p.text) {
		err = p.unexpected()
	}
	if err != nil {
		var whole any
		if better := json.Unmarshal(line, &whole); better != nil {
			return fmt.Errorf("not a JSON object: %w", better)
		}
	}
	return err
}

func (p *jsonParser) blank() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

func (p *jsonParser) unexpected() error {
	if p.at >= len(p.text) {
		return errors.New("not a JSON object: it ends too early")
	}
	return fmt.Errorf("not a JSON object: %s at column %d", brief(p.text[p.at:min(len(p.text), p.at+1)]), p.at+1)
}

// next takes one of the characters.
func (p *jsonParser) next(oneOf string) (byte, error) {
	p.blank()
	if p.at < len(p.text) && bytes.IndexByte([]byte(oneOf), p.text[p.at]) >= 0 {
		p.at++
		return p.text[p.at-1], nil
	}
	return 0, p.unexpected()
}

// maxNested bounds recursion.
const maxNested = 100

// object reads an object whose name p.name has.
func (p *jsonParser) object(values [][]byte, depth int) error {
	if _, err := p.next("{"); err != nil {
		return err
	}
	if depth > maxNested {
		return fmt.Errorf("nested deeper than %d levels", maxNested)
	}
	if p.blank(); p.at < len(p.text) && p.text[p.at] == '}' {
		p.at++
		return nil
	}
	outer := len(p.name)
	for {
		key, err := p.string()
		if err != nil {
			return err
		}
		if _, err := p.next(":"); err != nil {
			return err
		}
		p.name = append(p.name[:outer], key...)
		if err := p.value(values, depth); err != nil {
			return err
		}
		p.name = p.name[:outer]
		c, err := p.next(",}")
		if err != nil {
			return err
		}
		if c == '}' {
			return nil
		}
	}
}

// value reads the value of the name.
func (p *jsonParser) value(values [][]byte, depth int) error {
	p.blank()
	if p.at >= len(p.text) {
		return p.unexpected()
	}
	switch p.text[p.at] {
	case '{':
		if !p.within[string(p.name)] {
			return p.skip()
		}
		p.name = append(p.name, '.')
		return p.object(values, depth+1)
	case '[':
		return p.array(values)
	}
	value, err := p.scalar()
	if err == nil {
		p.offer(value, values)
	}
	return err
}

// array offers the first value of a list.
func (p *jsonParser) array(values [][]byte) error {
	if len(p.wanted[string(p.name)]) > 0 {
		begin := p.at
		p.at++
		if p.blank(); p.at < len(p.text) && bytes.IndexByte([]byte("[{]"), p.text[p.at]) < 0 {
			value, err := p.scalar()
			if err != nil {
				return err
			}
			p.offer(value, values)
		}
		p.at = begin
	}
	return p.skip()
}

// offer gives a value to the fields that want it; null is none.
func (p *jsonParser) offer(value []byte, values [][]byte) {
	wishes := p.wanted[string(p.name)]
	if len(wishes) == 0 || given(value) == nil {
		return
	}
	for i := range wishes {
		w := &wishes[i]
		if p.ranks[w.field] > 0 && p.ranks[w.field] <= w.rank+1 {
			continue
		}
		part := value
		if w.line {
			method, target, _ := requestLine(value)
			if part = target; w.name == "method" {
				part = method
			}
			if part == nil {
				continue
			}
		}
		values[w.field], p.ranks[w.field] = extract(w.name, part), w.rank+1
	}
}

// scalar reads a string, a number, true, false or null, which is nil.
func (p *jsonParser) scalar() ([]byte, error) {
	if p.text[p.at] == '"' {
		return p.string()
	}
	begin := p.at
	for p.at < len(p.text) && bytes.IndexByte([]byte(",}] \t"), p.text[p.at]) < 0 {
		p.at++
	}
	word := p.text[begin:p.at]
	switch {
	case string(word) == "null":
		return nil, nil
	case string(word) == "true", string(word) == "false":
		return word, nil
	case isNumber(word):
		return word, nil
	}
	p.at = begin
	return nil, p.unexpected()
}

// isNumber tells of a number as JSON has it.
func isNumber(word []byte) bool {
	if len(word) == 0 || word[0] != '-' && (word[0] < '0' || word[0] > '9') {
		return false
	}
	digits := true
	for _, c := range word {
		digits = digits && '0' <= c && c <= '9'
	}
	if digits {
		return word[0] != '0' || len(word) == 1
	}
	return json.Valid(word)
}

// string reads a string. What is neither escaped nor wrong in it is not copied.
func (p *jsonParser) string() ([]byte, error) {
	if _, err := p.next(`"`); err != nil {
		return nil, err
	}
	begin, plain := p.at, true
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			if plain {
				return p.text[begin : p.at-1], nil
			}
			return p.unquote(p.text[begin-1 : p.at])
		case c == '\\':
			plain = false
			p.at++
		case c < ' ':
			return nil, p.unexpected()
		}
	}
	return nil, p.unexpected()
}

func (p *jsonParser) unquote(quoted []byte) ([]byte, error) {
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	begin := len(p.unquoted)
	p.unquoted = append(p.unquoted, text...)
	return p.unquoted[begin:], nil
}

// skip passes over an object or a list, of which nothing is wanted. That brackets
// match is looked at; a log that has them otherwise is not JSON at its end.
func (p *jsonParser) skip() error {
	open := p.open[:0]
	defer func() { p.open = open }()
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case '"':
			if _, err := p.string(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if len(open) == maxNested {
				return fmt.Errorf("nested deeper than %d levels", maxNested)
			}
			open = append(open, c+2) // in ASCII
		case '}', ']':
			last := len(open) - 1
			if last < 0 || open[last] != c {
				return p.unexpected()
			}
			if open = open[:last]; last == 0 {
				p.at++
				return nil
			}
		}
		p.at++
	}
	return p.unexpected()
}
