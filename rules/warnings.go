package rules

import (
	"fmt"
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
		w.domain = d
		w.hidden(d.root())
	}
	return sorted(append(warnings, w.warnings...))
}

type warner struct {
	*domain     // that is looked at
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
	for i := range d.rules {
		names[d.rules[i].Name] = true
	}
	for i := range d.rules {
		r := &d.rules[i]
		for _, name := range r.Replaces {
			if !names[name] {
				w.add(r.stated.in.file, r.replacesAt, "replaces %q, which no rule of domain %q is named", name, domain)
			}
		}
	}
}

// hidden finds ways that take values for which only a more general way has a
// rule, or an exemption. A way that ends at once, without a rule, is meant to.
func (w *warner) hidden(n *node) {
	levels := w.levelsOf(n)
	for i := range levels {
		nodes := w.nodesOf(&levels[i])
		var general, longer []*node
		for i := range nodes {
			if nodes[i].kind == exactValue {
				continue
			}
			general = append(general, &nodes[i])
			if nodes[i].levels > 0 {
				longer = append(longer, &nodes[i])
			}
		}
		for i := range nodes {
			special := &nodes[i]
			w.hidden(special)
			switch {
			case special.kind == anyValue:
			case special.levels > 0:
				w.hiddenBy(special, general)
			case special.rule > 0:
				w.hiddenBy(special, longer)
			}
		}
	}
}

// hiddenBy compares a way with the more general ones of its level.
func (w *warner) hiddenBy(special *node, general []*node) {
	for _, g := range general {
		if w.comparisons--; w.comparisons < 0 || w.hiding >= maxHidden {
			return
		}
		if !g.contains(special) || special.contains(g) {
			continue
		}
		if r := w.uncovered(g, special, false); r != nil {
			w.hiding++
			w.add(special.stated.in.file, special.stated.at(), "%s=%s hides the rule %s (%s): once taken, it is not left for a more general one",
				readable(special.key), readable(special.text), r.Path, r.Place())
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
	if r := w.ruleOf(general); r != nil {
		if own := w.ruleOf(special); own == nil || broader && r.Exempt && !own.Exempt {
			return r
		}
	}
	levels := w.levelsOf(general)
	for i := range levels {
		nodes := w.nodesOf(&levels[i])
		for i := range nodes {
			cover, broad := w.cover(special, &nodes[i])
			if r := w.uncovered(&nodes[i], cover, broader || broad); r != nil {
				return r
			}
		}
	}
	return nil
}

// cover returns the way on from n that all values take which e takes, or nil; and
// whether it surely takes all of them, and others.
func (w *warner) cover(n, e *node) (best *node, broader bool) {
	if n == nil {
		return nil, false
	}
	l := w.level(n, e.key)
	if l == nil {
		return nil, false
	}
	nodes := w.nodesOf(l)
	for i := range nodes {
		if nodes[i].contains(e) { // those that are taken first come first
			best = &nodes[i]
			break
		}
	}
	if best == nil || e.contains(best) {
		return best, false
	}
	for i := range nodes {
		if other := &nodes[i]; other != best && other.mayTakeFrom(e, best) {
			return best, false
		}
	}
	return best, true
}

// contains tells whether n surely matches all that other matches.
func (n *node) contains(other *node) bool {
	p, q := n.pattern(), other.pattern()
	return p.contains(&q)
}

// mayTakeFrom tells whether a value of inner, a single one apart, may take e
// though outer has it too.
func (n *node) mayTakeFrom(inner, outer *node) bool {
	switch {
	case inner.kind == exactValue, n.kind == exactValue, n.kind > outer.kind, n.contains(inner):
		return false
	case n.kind == network && inner.kind == network:
		return n.prefix.Overlaps(inner.prefix)
	}
	return true
}
