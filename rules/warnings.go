package rules

import (
	"fmt"
	"maps"
	"slices"
)

// Bounds of what Warnings looks for, since ways can hide each other in pairs.
const (
	maxHidden      = 100
	maxComparisons = 1_000_000
)

// Warnings are what is surely not meant, though it can be done: each at its
// place. They are found anew at each call. Of very many rules, not all pairs are
// compared, so that it takes well under a second.
func (s *Set) Warnings() []Fault {
	warnings := append([]Fault(nil), s.warnings...)
	w := &warner{comparisons: maxComparisons}
	for name, d := range s.domains {
		w.replacesNothing(name, d)
		w.hidden(d.root)
	}
	return sorted(append(warnings, w.warnings...))
}

type warner struct {
	warnings    []Fault
	hiding      int // warnings of hidden
	comparisons int // that may still be made
}

func (w *warner) add(file string, at place, format string, args ...any) {
	w.warnings = append(w.warnings, Fault{File: file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)})
}

// replacesNothing finds names in replaces that no rule of the domain has.
func (w *warner) replacesNothing(domain string, d *domain) {
	names := map[string]bool{}
	for _, r := range d.rules {
		names[r.Name] = true
	}
	for _, r := range d.rules {
		for _, name := range r.Replaces {
			if !names[name] {
				w.add(r.file, r.replacesAt, "replaces %q, which no rule of domain %q is named", name, domain)
			}
		}
	}
}

// hidden finds ways that take values for which only a more general way has a
// rule. A way that ends at once, without a rule, is meant to.
func (w *warner) hidden(n *node) {
	for _, key := range slices.Sorted(maps.Keys(n.levels)) {
		edges := n.levels[key].edges
		general := slices.DeleteFunc(slices.Clone(edges), func(e *edge) bool { return e.kind == exactValue })
		longer := slices.DeleteFunc(slices.Clone(general), func(e *edge) bool { return len(e.to.levels) == 0 })
		for _, special := range edges {
			w.hidden(special.to)
			switch {
			case special.kind == anyValue:
			case len(special.to.levels) > 0:
				w.hiddenBy(special, general)
			case special.to.rule != nil:
				w.hiddenBy(special, longer)
			}
		}
	}
}

// hiddenBy compares a way with the more general ones of its level.
func (w *warner) hiddenBy(special *edge, general []*edge) {
	for _, g := range general {
		if w.comparisons--; w.comparisons < 0 || w.hiding >= maxHidden {
			return
		}
		if !g.contains(&special.pattern) || special.contains(&g.pattern) {
			continue
		}
		if r := w.uncovered(g.to, special.to); r != nil {
			w.hiding++
			w.add(special.to.file, special.to.way, "%s=%s hides the rule %s (%s): once taken, it is not left for a more general one",
				readable(special.key), readable(special.text), r.Path, r.Place)
		}
	}
}

// uncovered returns a rule at or below general that special has nothing for.
func (w *warner) uncovered(general, special *node) *Rule {
	if w.comparisons--; w.comparisons < 0 {
		return nil
	}
	if general.rule != nil && (special == nil || special.rule == nil) {
		return general.rule
	}
	for _, key := range slices.Sorted(maps.Keys(general.levels)) {
		for _, e := range general.levels[key].edges {
			if r := w.uncovered(e.to, special.cover(e)); r != nil {
				return r
			}
		}
	}
	return nil
}

// cover returns where all values lead that e takes, or nil.
func (n *node) cover(e *edge) *node {
	if n == nil || n.levels[e.key] == nil {
		return nil
	}
	var best *edge
	for _, candidate := range n.levels[e.key].edges {
		if candidate.contains(&e.pattern) && (best == nil || candidate.kind < best.kind) {
			best = candidate
		}
	}
	if best == nil {
		return nil
	}
	return best.to
}
