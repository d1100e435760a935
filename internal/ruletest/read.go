package ruletest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"weir/rules"
)

// common is what a file says for all of its tests, and a test for itself.
type common struct {
	domain   string
	start    time.Time
	align    time.Duration
	patience time.Duration
	flags    []string
	rules    []*rules.Document // nil: none are said
}

// defaultPatience is the timeout of a caller that says none.
const defaultPatience = 10 * time.Second

// Read reads a test file. All that is wrong with it is in the error, which is
// rules.Faults.
func Read(path string, configure Configure) (*File, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, rules.Faults{{File: path, Msg: unread(err)}}
	}
	return parse(path, src, configure)
}

func parse(path string, src []byte, configure Configure) (*File, error) {
	r := &reader{path: path, src: src, left: mostNodes}
	f := &File{Path: path}
	if root := r.root(); root != nil {
		r.file(f, root, configure)
	}
	if len(r.faults) > 0 {
		slices.SortStableFunc(r.faults, func(a, b rules.Fault) int {
			return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
		})
		return nil, slices.Compact(r.faults)
	}
	return f, nil
}

func unread(err error) string {
	if of := new(os.PathError); errors.As(err, &of) {
		err = of.Err
	}
	return "reading the test file: " + err.Error()
}

// root is the file's one document. A panic of the YAML library, of which it had some,
// is a fault.
func (r *reader) root() (root *yaml.Node) {
	defer func() {
		if p := recover(); p != nil {
			r.fault(&yaml.Node{}, "not understood as YAML: %v", p)
			root = nil
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(r.src))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF) || err == nil && document.Content[0].ShortTag() == "!!null":
		r.fault(&document, "the file has no tests")
		return nil
	case err != nil:
		problem := strings.TrimPrefix(err.Error(), "yaml: ")
		var at yaml.Node
		if n, err := fmt.Sscanf(problem, "line %d:", &at.Line); n == 1 && err == nil {
			_, problem, _ = strings.Cut(problem, ": ")
		}
		r.fault(&at, "not YAML: %s", problem)
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.fault(&second, "a test file is one YAML document, and a second one begins here")
	}
	return document.Content[0]
}

// file reads the file: tests, or the steps of a single one.
func (r *reader) file(f *File, root *yaml.Node, configure Configure) {
	c := common{domain: rules.DefaultDomain, start: defaultStart(), patience: defaultPatience}
	var tests, steps *yaml.Node
	var stores []string
	one := Test{Line: 1}
	var why string
	known := r.commonFields(&c, root, configure)
	known["name"] = r.text(&one.Name, "name")
	known["why"] = r.text(&why, "why")
	known["stores"] = r.texts(&stores, "stores")
	known["tests"] = func(n *yaml.Node) { tests = n }
	known["steps"] = func(n *yaml.Node) { steps = n }
	r.mapping(root, "a test file", known)
	switch {
	case tests != nil && steps != nil:
		r.fault(steps, "a file has tests, each with steps, or the steps of one test, not both")
	case tests != nil:
		r.list(tests, "tests", false, func(n *yaml.Node) { f.Tests = append(f.Tests, r.test(n, c, configure)) })
		r.unique(tests, f.Tests)
	case steps != nil:
		one.Name = cmp.Or(one.Name, strings.TrimSuffix(filepath.Base(r.path), filepath.Ext(r.path)))
		r.complete(&one, c, steps, root)
		if len(stores) > 0 && !slices.Contains(stores, "memory") {
			one.unplayed = cmp.Or(one.unplayed, "it is for the stores "+strings.Join(stores, ", ")+", and weir test has counters in memory")
		}
		f.Tests = []*Test{&one}
	}
	if len(f.Tests) == 0 && len(r.faults) == 0 {
		r.fault(root, "the file has no tests: they are in its list tests, each with a name and steps")
	}
}

func (r *reader) unique(n *yaml.Node, tests []*Test) {
	lines := map[string]int{}
	for _, t := range tests {
		if line, twice := lines[t.Name]; twice && t.Name != "" {
			r.fault(&yaml.Node{Line: t.Line, Column: n.Column}, "two tests have the name %q, the first on line %d", t.Name, line)
		}
		lines[t.Name] = t.Line
	}
}

// commonFields are the fields of what stands in a file, in root or in one of its
// tests.
func (r *reader) commonFields(c *common, root *yaml.Node, configure Configure) fields {
	flags := func(n *yaml.Node) {
		c.flags = r.flags(n)
		if _, err := configure(c.flags); err != nil {
			r.fault(n, "flags: %v", err)
		}
	}
	said := false
	setRules := func(n *yaml.Node, documents []*rules.Document) {
		if said {
			r.fault(n, "rules and rules_files exclude each other; put all rules into files, or all here")
		}
		said, c.rules = true, documents
		if _, err := rules.Compile(documents...); err != nil {
			r.addFaults(err)
		}
	}
	return fields{
		"domain": r.text(&c.domain, "domain"),
		"start": func(n *yaml.Node) {
			if text, ok := r.scalar(n, "start"); ok {
				at, err := parseTime(text)
				if err != nil {
					r.fault(n, "start: %v", err)
				}
				c.start = at
			}
		},
		"align":       r.duration(&c.align, "align", time.Nanosecond),
		"timeout":     r.duration(&c.patience, "timeout", time.Nanosecond),
		"flags":       flags,
		"args":        flags,
		"rules":       func(n *yaml.Node) { setRules(n, r.inlineRules(n, domainOf(root, c.domain))) },
		"rules_files": func(n *yaml.Node) { setRules(n, r.ruleFiles(n)) },
	}
}

// flags reads flags of serve: a text, or a list in which a flag and its value may be
// one item or two.
func (r *reader) flags(n *yaml.Node) (flags []string) {
	if n.Kind == yaml.ScalarNode {
		text, _ := r.scalar(n, "flags")
		return strings.Fields(text)
	}
	r.list(n, "flags", false, func(item *yaml.Node) {
		flag, _ := r.scalar(item, "each of flags")
		name, value, two := strings.Cut(flag, " ")
		if two && strings.HasPrefix(name, "--") && !strings.Contains(name, "=") {
			flags = append(flags, name)
			flag = strings.TrimSpace(value)
		}
		flags = append(flags, flag)
	})
	return flags
}

// domainOf is what a mapping says is its domain, or the one that holds around it:
// it may come after the rules.
func domainOf(n *yaml.Node, around string) string {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "domain" && n.Content[i+1].Kind == yaml.ScalarNode {
				return n.Content[i+1].Value
			}
		}
	}
	return around
}

func (r *reader) addFaults(err error) {
	var faults rules.Faults
	if errors.As(err, &faults) {
		r.faults = append(r.faults, faults...)
	}
}

// test reads one of the tests.
func (r *reader) test(n *yaml.Node, c common, configure Configure) *Test {
	t := &Test{Line: n.Line}
	var steps *yaml.Node
	var why string
	known := r.commonFields(&c, n, configure)
	known["name"] = r.text(&t.Name, "name")
	known["why"] = r.text(&why, "why")
	known["steps"] = func(n *yaml.Node) { steps = n }
	faults := len(r.faults)
	r.mapping(n, "a test", known)
	switch {
	case len(r.faults) > faults:
	case t.Name == "":
		r.fault(n, "the test has no name")
	case steps == nil:
		r.fault(n, "the test has no steps")
	}
	if steps != nil {
		r.complete(t, c, steps, n)
	}
	return t
}

// complete reads a test's steps, for what holds in it.
func (r *reader) complete(t *Test, c common, steps, at *yaml.Node) {
	t.start, t.flags, t.documents = aligned(c.start, c.align), c.flags, c.rules
	if c.rules == nil && len(r.faults) == 0 {
		r.fault(at, "there are no rules to test: say them in rules, or their files in rules_files")
	}
	r.list(steps, "steps", false, func(n *yaml.Node) {
		s, unplayed := r.step(n, &c)
		t.steps = append(t.steps, s)
		t.unplayed = cmp.Or(t.unplayed, unplayed)
	})
	if len(t.steps) == 0 {
		r.fault(steps, "the test has no steps")
	}
}

// aligned is the first time from start on that is a multiple of the duration since
// 1970.
func aligned(start time.Time, to time.Duration) time.Time {
	if to <= 0 {
		return start
	}
	if past := time.Duration(start.UnixNano() % int64(to)); past > 0 {
		return start.Add(to - past)
	}
	return start
}
