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
// rule, or an exemption. A way that ends at once, without a rule, is meant to.
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
		if r := w.uncovered(g.to, special.to, false); r != nil {
			w.hiding++
			w.add(special.to.file, special.to.way, "%s=%s hides the rule %s (%s): once taken, it is not left for a more general one",
				readable(special.key), readable(special.text), r.Path, r.Place)
		}
	}
}

// uncovered returns a rule at or below general that special has nothing for. An
// exempt one counts too where special has a rule that says otherwise, but a
// broader one: what is as narrow is meant to come first.
func (w *warner) uncovered(general, special *node, broader bool) *Rule {
	if w.comparisons--; w.comparisons < 0 {
		return nil
	}
	if r := general.rule; r != nil {
		if special == nil || special.rule == nil || broader && r.Exempt && !special.rule.Exempt {
			return r
		}
	}
	for _, key := range slices.Sorted(maps.Keys(general.levels)) {
		for _, e := range general.levels[key].edges {
			var to *node
			cover, broad := special.cover(e)
			if cover != nil {
				to = cover.to
			}
			if r := w.uncovered(e.to, to, broader || broad); r != nil {
				return r
			}
		}
	}
	return nil
}

// cover returns the way that all values take which e takes, or nil; and whether
// it surely takes all of them, and others.
func (n *node) cover(e *edge) (best *edge, broader bool) {
	if n == nil || n.levels[e.key] == nil {
		return nil, false
	}
	edges := n.levels[e.key].edges
	for _, candidate := range edges {
		if candidate.contains(&e.pattern) && (best == nil || candidate.before(best)) {
			best = candidate
		}
	}
	if best == nil || e.contains(&best.pattern) {
		return best, false
	}
	for _, other := range edges {
		if other != best && other.mayTakeFrom(e, best) {
			return best, false
		}
	}
	return best, true
}

// before tells whether e comes before another edge, of an earlier place in the
// file, if a value fits both.
func (e *edge) before(other *edge) bool {
	if e.kind != other.kind {
		return e.kind < other.kind
	}
	return e.kind == network && e.prefix.Bits() > other.prefix.Bits() || e.kind == wildcard && e.literal > other.literal
}

// mayTakeFrom tells whether a value of inner, a single one apart, may take e
// though outer has it too.
func (e *edge) mayTakeFrom(inner, outer *edge) bool {
	switch {
	case inner.kind == exactValue, e.kind == exactValue, e.kind > outer.kind, e.contains(&inner.pattern):
		return false
	case e.kind == network && inner.kind == network:
		return e.prefix.Overlaps(inner.prefix)
	}
	return true
}
