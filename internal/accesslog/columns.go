package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// What the columns of the combined format and of Envoy's default format are called.
// Several formats have some of them.
const (
	columnTime = iota
	columnAddress
	columnUser
	columnMethod
	columnTarget
	columnProtocol
	columnStatus
	columnBytes
	columnReferer
	columnUserAgent
	columnFlags
	columnReceived
	columnDuration
	columnUpstreamTime
	columnForwardedFor
	columnRequestID
	columnHost
	columnUpstream
	columnCount
)

type column struct {
	name string
	at   int
}

var combinedFields = []column{
	{remoteAddress, columnAddress}, {"user", columnUser}, {"time", columnTime}, {method, columnMethod}, {path, columnTarget}, {query, columnTarget}, {target, columnTarget},
	{"protocol", columnProtocol}, {"status", columnStatus}, {"bytes", columnBytes}, {"referer", columnReferer}, {"user_agent", columnUserAgent},
}

var envoyFields = []column{
	{"time", columnTime}, {method, columnMethod}, {path, columnTarget}, {query, columnTarget}, {target, columnTarget}, {"protocol", columnProtocol}, {"status", columnStatus},
	{"response_flags", columnFlags}, {"bytes_received", columnReceived}, {"bytes", columnBytes}, {"duration", columnDuration}, {"upstream_service_time", columnUpstreamTime},
	{"x_forwarded_for", columnForwardedFor}, {remoteAddress, columnAddress}, {"user_agent", columnUserAgent}, {"x_request_id", columnRequestID}, {host, columnHost}, {"upstream_host", columnUpstream},
}

// columnParser reads formats whose columns are always the same.
type columnParser struct {
	columns
	split func(*columns, []byte, [][]byte) error
	all   [][]byte
	take  []taken // by field
}

// taken is where a field's value comes from.
type taken struct {
	column int // below 0: it is not there
	name   string
}

func newColumnParser(m *Mapping, format string, has []column, split func(*columns, []byte, [][]byte) error) (parser, error) {
	p := &columnParser{split: split, all: make([][]byte, columnCount)}
	r := resolver{mapping: m, what: "the format " + format}
	for _, c := range has {
		r.names = append(r.names, c.name)
	}
	for i := range m.fields {
		f := &m.fields[i]
		name := common(f.name)
		at := slices.IndexFunc(has, func(c column) bool { return c.name == name })
		if at < 0 {
			r.missing(f)
			p.take = append(p.take, taken{-1, name})
			continue
		}
		p.take = append(p.take, taken{has[at].at, name})
	}
	return p, r.err()
}

func (p *columnParser) parse(line []byte, values [][]byte) error {
	clear(p.all)
	if err := p.split(&p.columns, line, p.all); err != nil {
		return err
	}
	for i, t := range p.take {
		if t.column >= 0 && p.all[t.column] != nil {
			values[i] = extract(t.name, p.all[t.column])
		}
	}
	return nil
}

// columns takes lines apart.
type columns struct {
	rest    []byte
	escaped []byte // backs values that had escapes
}

// combined reads
//
//	ADDRESS - USER [TIME] "REQUEST" STATUS BYTES "REFERER" "USER AGENT"
//
// of which the last two may be missing, and others may follow.
func (c *columns) combined(line []byte, all [][]byte) error {
	c.rest, c.escaped = line, c.escaped[:0]
	all[columnAddress] = withoutPort(c.word())
	c.word()
	i := bytes.IndexByte(c.rest, '[')
	if i < 0 {
		return errors.New("no [time] after the address and the user: is this the combined format?")
	}
	all[columnUser] = given(bytes.TrimSpace(c.rest[:i]))
	c.rest = c.rest[i:]
	var err error
	if all[columnTime], err = c.bracketed(); err != nil {
		return err
	}
	if err := c.request(all); err != nil {
		return err
	}
	all[columnStatus], all[columnBytes] = given(c.word()), given(c.word())
	if len(all[columnStatus]) != 3 {
		return fmt.Errorf("%s is no status", brief(all[columnStatus]))
	}
	for _, at := range []int{columnReferer, columnUserAgent} {
		if len(c.rest) == 0 || c.rest[0] != '"' {
			break
		}
		value, err := c.quoted()
		if err != nil {
			return err
		}
		all[at] = given(value)
	}
	return nil
}

// envoy reads Envoy's default format:
//
//	[START_TIME] "METHOD PATH PROTOCOL" STATUS FLAGS RECEIVED SENT DURATION UPSTREAM_TIME
//	"X-FORWARDED-FOR" "USER-AGENT" "X-REQUEST-ID" "AUTHORITY" "UPSTREAM_HOST"
func (c *columns) envoy(line []byte, all [][]byte) (err error) {
	c.rest, c.escaped = line, c.escaped[:0]
	if all[columnTime], err = c.bracketed(); err != nil {
		return err
	}
	if err := c.request(all); err != nil {
		return err
	}
	for _, at := range []int{columnStatus, columnFlags, columnReceived, columnBytes, columnDuration, columnUpstreamTime} {
		word := c.word()
		if len(word) == 0 || word[0] == '"' {
			return errors.New("fewer columns than Envoy's default format has")
		}
		all[at] = given(word)
	}
	for _, at := range []int{columnForwardedFor, columnUserAgent, columnRequestID, columnHost, columnUpstream} {
		value, err := c.quoted()
		if err != nil {
			return err
		}
		all[at] = given(value)
	}
	if all[columnForwardedFor] != nil {
		all[columnAddress] = given(withoutPort(lastOf(all[columnForwardedFor])))
	}
	return nil
}

// request reads "METHOD TARGET PROTOCOL". What is none, such as the bytes of another
// protocol, has neither.
func (c *columns) request(all [][]byte) error {
	line, err := c.quoted()
	if err != nil {
		return err
	}
	all[columnMethod], all[columnTarget], all[columnProtocol] = requestLine(line)
	for _, at := range []int{columnMethod, columnTarget, columnProtocol} {
		all[at] = given(all[at])
	}
	return nil
}

// word reads up to a blank.
func (c *columns) word() []byte {
	i := bytes.IndexByte(c.rest, ' ')
	if i < 0 {
		i = len(c.rest)
	}
	word := c.rest[:i]
	c.rest = c.rest[i:]
	c.blank()
	return word
}

func (c *columns) blank() {
	for len(c.rest) > 0 && c.rest[0] == ' ' {
		c.rest = c.rest[1:]
	}
}

// bracketed reads [TEXT].
func (c *columns) bracketed() ([]byte, error) {
	end := bytes.IndexByte(c.rest, ']')
	if len(c.rest) == 0 || c.rest[0] != '[' || end < 0 {
		return nil, errors.New("no [time] where one is wanted")
	}
	text := c.rest[1:end]
	c.rest = c.rest[end+1:]
	c.blank()
	return text, nil
}

// quoted reads "TEXT", with its escapes.
func (c *columns) quoted() ([]byte, error) {
	if len(c.rest) == 0 || c.rest[0] != '"' {
		return nil, fmt.Errorf(`no "…" where one is wanted, at %s`, brief(c.rest))
	}
	text := c.rest[1:]
	end := bytes.IndexByte(text, '"')
	if end < 0 {
		return nil, errors.New(`no " ends what one begins`)
	}
	escapes := bytes.IndexByte(text[:end], '\\') >= 0
	if escapes {
		if end = closing(text); end < 0 {
			return nil, errors.New(`no " ends what one begins`)
		}
	}
	c.rest = text[end+1:]
	c.blank()
	text = text[:end]
	if !escapes {
		return text, nil
	}
	begin := len(c.escaped)
	c.escaped = appendUnescaped(c.escaped, text)
	return c.escaped[begin:], nil
}

// closing is where the first quote is that no backslash is before.
func closing(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// appendUnescaped appends a text without the escapes of nginx and Apache: \xHH, \",
// \\ and those of C.
func appendUnescaped(to, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			to = append(to, text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'n':
			to = append(to, '\n')
		case 'r':
			to = append(to, '\r')
		case 't':
			to = append(to, '\t')
		case 'x':
			if i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
				to = append(to, hexValue(text[i+1])<<4|hexValue(text[i+2]))
				i += 2
				continue
			}
			to = append(to, '\\', 'x')
		default:
			to = append(to, c)
		}
	}
	return to
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c >= 'a':
		return c - 'a' + 10
	}
	return c - 'A' + 10
}
