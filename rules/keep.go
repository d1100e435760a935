package rules

import (
	"reflect"
	"slices"
	"strings"
)

// What a document keeps of its drafts is small, for there may be 100,000 of them:
// what many rules have in common is there once, and what each has for itself stands
// in a few arrays, without the slack that an allocation for each would have.

// stated is a path as a file states it: of a rule, or only a way to others.
type stated struct {
	Path string // such as "endpoint=/a, remote_address=*"; "" of a way, see maxPaths too

	path      []part
	in        *origin
	line, col uint32
}

// origin is where paths are stated.
type origin struct{ file, domain string }

// part is a step as a document keeps it.
type part struct {
	*shape
	text string // of the pattern
	*matching
}

// shape is what steps have in common, whatever their values.
type shape struct {
	key           string
	kind          kind
	defaults, own mask // see step
	share         bool
	toMetric      bool
}

// pattern is the value of the step.
func (s *part) pattern() pattern { return pattern{s.kind, s.text, s.matching} }

func (s *part) matches(value string) bool {
	pattern := s.pattern()
	return pattern.matches(value)
}

// endTexts are the pattern's ends.
func (s *part) endTexts() (prefix, suffix string) {
	pattern := s.pattern()
	return pattern.ends()
}

// statedDraft is what a stated path leads to.
type statedDraft struct {
	name   string
	rule   *ruleDraft // without name, place and limits; nil: the path is only a way
	limits []limitDraft
}

func (s *stated) at() place { return place{int(s.line), int(s.col)} }

// place is file:line:col.
func (s *stated) place() string { return s.fault("").place() }

// fault is one at this place.
func (s *stated) fault(msg string) Fault {
	return Fault{File: s.in.file, Line: int(s.line), Col: int(s.col), Msg: msg}
}

// keeper turns drafts into what the document keeps.
type keeper struct {
	file    string
	parts   []part // of all paths
	origins map[string]*origin
	shapes  map[shape]*shape
	limits  map[limitDraft][]limitDraft // lists of one
	rules   []*ruleDraft                // the last few
}

func (d *Document) keep(drafts []draft) {
	steps := 0
	for i := range drafts {
		steps += len(drafts[i].path)
	}
	k := keeper{file: d.Name, parts: make([]part, 0, steps), origins: map[string]*origin{}, shapes: map[shape]*shape{}, limits: map[limitDraft][]limitDraft{}}
	d.stated, d.drafts = make([]stated, len(drafts)), make([]statedDraft, len(drafts))
	var texts strings.Builder // the paths of rules, one after another
	ends, length := make([]int, len(drafts)), 0
	for i := range drafts {
		s := &d.stated[i]
		*s = k.state(&drafts[i])
		d.drafts[i] = k.draft(drafts[i].rule)
		if drafts[i].rule != nil {
			if length += pathLength(s.path); length <= maxPaths { // else Compile refuses them
				writePath(&texts, s.path)
			}
		}
		ends[i] = texts.Len()
	}
	for i, text, begin := 0, texts.String(), 0; i < len(drafts); i++ {
		d.stated[i].name(text[begin:ends[i]])
		begin = ends[i]
	}
}

func (k *keeper) state(d *draft) stated {
	in := k.origins[d.domain]
	if in == nil {
		in = &origin{k.file, d.domain}
		k.origins[d.domain] = in
	}
	begin := len(k.parts)
	for i := range d.path {
		s := &d.path[i]
		k.parts = append(k.parts, part{shape: k.shape(s), text: s.value.text, matching: s.value.matching})
	}
	return stated{path: slices.Clip(k.parts[begin:]), in: in, line: uint32(d.at.line), col: uint32(d.at.col)}
}

// name sets the text of the path. Values that stand in it as they are need no memory
// of their own.
func (s *stated) name(text string) {
	s.Path = text
	for i := range s.path {
		p := &s.path[i]
		if at := strings.Index(text, p.text); at >= 0 {
			p.text = text[at : at+len(p.text)]
		}
	}
}

func (k *keeper) shape(s *step) *shape {
	of := shape{key: s.key, kind: s.value.kind, defaults: s.defaults, own: s.own, share: s.share, toMetric: s.toMetric}
	kept := k.shapes[of]
	if kept == nil {
		kept = new(shape)
		*kept = of
		k.shapes[of] = kept
	}
	return kept
}

func (k *keeper) draft(rule *ruleDraft) statedDraft {
	if rule == nil {
		return statedDraft{}
	}
	kept := statedDraft{name: rule.name, limits: k.list(rule.limits)}
	rule.at, rule.overLimitAt, rule.accuracyAt, rule.name, rule.limits = place{}, place{}, place{}, "", nil
	kept.rule = k.alike(rule)
	return kept
}

// alike returns one of the last few rules if it says the same.
func (k *keeper) alike(rule *ruleDraft) *ruleDraft {
	const few = 8
	for _, kept := range k.rules {
		if reflect.DeepEqual(kept, rule) {
			return kept
		}
	}
	if len(k.rules) == few {
		k.rules = k.rules[1:]
	}
	k.rules = append(k.rules, rule)
	return rule
}

// list returns the same list for limits that are alike, if it has one.
func (k *keeper) list(limits []limitDraft) []limitDraft {
	if len(limits) != 1 || limits[0].countDenied != nil {
		return slices.Clip(limits)
	}
	kept := k.limits[limits[0]]
	if kept == nil {
		kept = slices.Clip(limits)
		k.limits[limits[0]] = kept
	}
	return kept
}
