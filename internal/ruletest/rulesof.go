package ruletest

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"weir/rules"
	"weir/rules/file"
)

// inlineRules reads rules that stand in the test file: a mapping as a rule file is, a
// list of rules of the domain, or the text of a rule file.
func (r *reader) inlineRules(n *yaml.Node, domain string) []*rules.Document {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	var doc *rules.Document
	switch {
	case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
		doc, _ = rules.Parse(r.path, r.inPlace(n)) // the document has its faults
	case n.Kind == yaml.SequenceNode:
		word := func(text string) *yaml.Node {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: n.Line, Column: n.Column}
		}
		n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column, Content: []*yaml.Node{word("domain"), word(domain), word("rules"), n}}
		doc, _ = rules.ParseNode(r.path, r.src, n)
	case n.Kind == yaml.MappingNode:
		doc, _ = rules.ParseNode(r.path, r.src, n)
	default:
		r.fault(n, "rules are a list of rules, or what a rule file has, as a mapping or as text, not %s", kindOf(n))
		return nil
	}
	return []*rules.Document{doc}
}

// inPlace moves a text to its place in the file, so that what is wrong with it is
// found there.
func (r *reader) inPlace(n *yaml.Node) []byte {
	lines := strings.SplitAfter(n.Value, "\n")
	if n.Style != yaml.LiteralStyle {
		return []byte(strings.Repeat("\n", n.Line-1) + n.Value)
	}
	source := bytes.Split(r.src, []byte("\n"))
	indent := ""
	for i, line := range lines {
		if at := n.Line + i; strings.TrimSpace(line) != "" && at < len(source) {
			indent = strings.Repeat(" ", max(0, leading(string(source[at]))-leading(line)))
			break
		}
	}
	if slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "---") || strings.HasPrefix(line, "...") }) {
		indent = "" // what parts documents stands at the beginning of its line
	}
	var text strings.Builder
	text.WriteString(strings.Repeat("\n", n.Line))
	for _, line := range lines {
		if strings.TrimSpace(line) != "" {
			text.WriteString(indent)
		}
		text.WriteString(line)
	}
	return []byte(text.String())
}

func leading(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// ruleFiles reads rule files, folders of them and patterns, relative to the test
// file.
func (r *reader) ruleFiles(n *yaml.Node) (documents []*rules.Document) {
	files := map[string][]byte{}
	r.list(n, "rules_files", true, func(item *yaml.Node) {
		name, ok := r.scalar(item, "each of rules_files")
		if !ok {
			return
		}
		path := name
		if !filepath.IsAbs(name) {
			path = filepath.Join(filepath.Dir(r.path), name)
		}
		paths := []string{path}
		if strings.ContainsAny(name, "*?[") {
			var err error
			if paths, err = filepath.Glob(path); err != nil || len(paths) == 0 {
				r.fault(item, "no rule file fits %s", name)
			}
		}
		for _, path := range paths {
			read, err := file.Read(path)
			if err != nil {
				r.fault(item, "rules_files: %v", err)
			}
			for name, src := range read {
				files[name] = src
			}
		}
	})
	return rules.ParseSnapshot(files).Documents
}
