package accesslog

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/limiter"
	"weir/rules"
)

// Mapping says how lines become requests for decisions.
type Mapping struct {
	Domain string

	file    string // "": the rules imply it
	implied bool
	fields  []field // that lines are searched for; the first is the time
	hits    int     // the field with the cost; 0: it is 1

	conditions  conditions
	descriptors []descriptor
}

// field is one that lines are to have.
type field struct {
	name string
	at   place // where the mapping names it first; zero: nowhere
	keys []string
}

type place struct{ line, col int }

func (m *Mapping) fault(at place, format string, args ...any) rules.Fault {
	return rules.Fault{File: m.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)}
}

// descriptor is one that each request has whose line has all of its fields.
type descriptor struct {
	entries    []entry
	conditions conditions
}

// entry is a key, and where its value comes from.
type entry struct {
	key         string
	field       int    // below 0: the value is fixed
	fixed       string // or what to take where the line does not have the field
	hasFallback bool
	templates   []template
	re          *regexp.Regexp // nil: none
	replace     string
}

// conditions must hold for a line, or for a descriptor to be of its request.
type conditions struct{ when, unless []condition }

// condition holds if a field's value fits one of the patterns.
type condition struct {
	field    int
	patterns []rules.Pattern
}

func (c *condition) holds(values [][]byte) bool {
	if values[c.field] == nil {
		return false
	}
	value := string(values[c.field])
	return slices.ContainsFunc(c.patterns, func(p rules.Pattern) bool { return p.Matches(value) })
}

func (c *conditions) hold(values [][]byte) bool {
	for i := range c.when {
		if !c.when[i].holds(values) {
			return false
		}
	}
	for i := range c.unless {
		if c.unless[i].holds(values) {
			return false
		}
	}
	return true
}

// template stands for the paths that it fits, so that they count as one:
// /users/{id}/posts, /files/{rest...}.
type template struct {
	text     string
	segments []string // "": any
	rest     bool     // the last one stands for all that follows
}

func newTemplate(text string) (template, error) {
	if !strings.HasPrefix(text, "/") {
		return template{}, fmt.Errorf("the template %q does not begin with /", text)
	}
	t := template{text: text, segments: strings.Split(text[1:], "/")}
	for i, s := range t.segments {
		inner, opens := strings.CutPrefix(s, "{")
		inner, closes := strings.CutSuffix(inner, "}")
		switch {
		case opens && closes && strings.HasSuffix(inner, "..."):
			if i < len(t.segments)-1 {
				return template{}, fmt.Errorf("the template %q goes on after %s, which stands for all that follows", text, s)
			}
			t.segments, t.rest = t.segments[:i], true
		case opens && closes:
			t.segments[i] = ""
		case strings.ContainsAny(s, "{}"):
			return template{}, fmt.Errorf("the template %q has braces within a part; {name} stands for a whole part, and {name...} for all that follow", text)
		}
	}
	return t, nil
}

func (t *template) fits(path string) bool {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return false
	}
	for i, want := range t.segments {
		segment, after, more := strings.Cut(rest, "/")
		if want != "" && segment != want || want == "" && segment == "" {
			return false
		}
		last := i == len(t.segments)-1
		if last && !t.rest {
			return !more
		}
		if !more && !last {
			return false
		}
		if rest = after; last && !more {
			return false // {rest...} follows a slash
		}
	}
	return t.rest
}

// ImpliedMapping makes a request of each line with the descriptors that rules ask for:
// one for each list of keys. A key that names no field of the log by itself is taken
// by what it usually means, such as endpoint for the path.
func ImpliedMapping(domain string, keys [][]string) *Mapping {
	m := newMapping("")
	m.Domain, m.implied = domain, true
	for _, list := range keys {
		var d descriptor
		for _, key := range list {
			d.entries = append(d.entries, entry{key: key, field: m.field(meaning(key), key, place{})})
		}
		m.descriptors = append(m.descriptors, d)
	}
	return m
}

func newMapping(file string) *Mapping {
	return &Mapping{Domain: rules.DefaultDomain, file: file, fields: []field{{name: "time"}}}
}

// meaning is the field that a key of descriptors usually has.
func meaning(key string) string {
	switch common(key) {
	case "endpoint", "uri", "url", "route", "request_path":
		return path
	case "remote_addr", "client_ip", "client_address", "ip", "ip_address", "client", "source_address", "masked_remote_address":
		return remoteAddress
	case "verb", "http_method", "request_method":
		return method
	case "virtual_host", "domain", "hostname":
		return host
	case "username", "user_id":
		return "user"
	}
	return common(key)
}

// field is the place of a field among those that lines are searched for.
func (m *Mapping) field(name, key string, at place) int {
	i := slices.IndexFunc(m.fields, func(f field) bool { return f.name == name })
	if i < 0 {
		i = len(m.fields)
		m.fields = append(m.fields, field{name: name, at: at})
	}
	if f := &m.fields[i]; !slices.Contains(f.keys, key) {
		f.keys = append(f.keys, key)
	}
	return i
}

// unmet says that no line had a field.
func (m *Mapping) unmet(i int) string {
	f := &m.fields[i]
	if m.implied {
		return fmt.Sprintf("no line has a field for the key %s, so rules with it were not asked; a mapping says which it is", strings.Join(f.keys, ", "))
	}
	return m.fault(f.at, "no line has the field %s", strconv.Quote(f.name)).Error()
}

// Describe lists the descriptors as entries and the fields that they are of.
func (m *Mapping) Describe() []string {
	var out []string
	for i := range m.descriptors {
		var words []string
		for _, e := range m.descriptors[i].entries {
			word := e.key
			switch {
			case e.field < 0:
				word += "=" + strconv.Quote(e.fixed)
			case m.fields[e.field].name != e.key:
				word += " (" + m.fields[e.field].name + ")"
			}
			words = append(words, word)
		}
		out = append(out, strings.Join(words, ", "))
	}
	return out
}

// mapper makes requests.
type mapper struct {
	*Mapping
	text []byte // the values of a request
	ends []int  // of each in text
}

func newMapper(m *Mapping) mapper { return mapper{Mapping: m} }

// fill makes the request of a line's values; false if the line is none.
func (m *mapper) fill(r *Request, values [][]byte) bool {
	if !m.conditions.hold(values) {
		return false
	}
	r.Domain, r.Hits = m.Domain, 0
	r.entries, r.Descriptors = r.entries[:0], r.Descriptors[:0]
	m.text, m.ends = m.text[:0], m.ends[:0]
	if m.hits > 0 {
		hits, ok := cost(values[m.hits])
		if !ok {
			return false
		}
		r.Hits = hits
	}
	for i := range m.descriptors {
		m.describe(r, &m.descriptors[i], values)
	}
	whole := string(m.text) // one for all of a request's values
	begin := 0
	for i, end := range m.ends {
		r.entries[i].Value = whole[begin:end]
		begin = end
	}
	begin = 0
	for i := range r.Descriptors {
		end := begin + len(r.Descriptors[i].Entries)
		r.Descriptors[i].Entries = r.entries[begin:end:end] // r.entries may have moved
		begin = end
	}
	return true
}

// describe appends a descriptor, unless the line has not all that belongs into it.
func (m *mapper) describe(r *Request, d *descriptor, values [][]byte) {
	if !d.conditions.hold(values) {
		return
	}
	begin, text := len(r.entries), len(m.text)
	for i := range d.entries {
		e := &d.entries[i]
		if !m.append(e, values) {
			r.entries, m.ends, m.text = r.entries[:begin], m.ends[:begin], m.text[:text]
			return
		}
		r.entries = append(r.entries, rules.Entry{Key: e.key})
		m.ends = append(m.ends, len(m.text))
	}
	r.Descriptors = append(r.Descriptors, rules.Descriptor{Entries: r.entries[begin:]})
}

// append appends an entry's value.
func (m *mapper) append(e *entry, values [][]byte) bool {
	if e.field < 0 {
		m.text = append(m.text, e.fixed...)
		return true
	}
	value := values[e.field]
	if value == nil {
		m.text = append(m.text, e.fixed...)
		return e.hasFallback
	}
	if len(e.templates) > 0 {
		path := string(value)
		for i := range e.templates {
			if e.templates[i].fits(path) {
				m.text = append(m.text, e.templates[i].text...)
				return true
			}
		}
	}
	if e.re != nil {
		value = e.re.ReplaceAll(value, []byte(e.replace))
	}
	m.text = append(m.text, value...)
	return true
}

// cost reads a whole number, or one with a fraction, which rounds up. What costs nothing
// is no request. A line that does not say costs 1, as a request that names no cost.
func cost(value []byte) (uint64, bool) {
	if value == nil {
		return 1, true
	}
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(n > 0) {
		return 0, false
	}
	if n >= limiter.MaxCost {
		return limiter.MaxCost, true
	}
	whole := uint64(n)
	if float64(whole) < n {
		whole++
	}
	return whole, true
}
