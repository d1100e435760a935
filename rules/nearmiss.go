package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// maxNearMisses is how many an explanation has at most.
const maxNearMisses = 10

// nearMisses finds the rules that would match the entries but for one thing,
// those that miss by least first.
func nearMisses(rules []Rule, matched bool, entries []Entry) []NearMiss {
	type ranked struct {
		NearMiss
		rank int
	}
	var found []ranked
	for i := range rules {
		r := &rules[i]
		rank, why := missedBy(r.path, entries)
		if why == "" || matched && (rank == lostOut || rank >= anotherValue) {
			continue // the choices tell of those that lost to the one that matched, and others are many
		}
		found = append(found, ranked{NearMiss{r.Path, r.Place(), why}, rank})
	}
	slices.SortStableFunc(found, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	var misses []NearMiss
	for _, miss := range found[:min(len(found), maxNearMisses)] {
		misses = append(misses, miss.NearMiss)
	}
	return misses
}

// How near a rule is, the nearest first.
const (
	lostOut = iota
	otherOrder
	nearlySpelled
	longer
	shorter
	anotherValue // from here on: told only where no rule matches
	oneMore
	oneLess
)

// missedBy says why the path, which was not taken, nearly matches; "" if it is
// not near. A lower rank is nearer.
func missedBy(path []part, entries []Entry) (rank int, why string) {
	common := min(len(path), len(entries))
	var differ []int
	for i := range common {
		if !path[i].fits(entries[i]) {
			differ = append(differ, i)
		}
	}
	switch {
	case len(differ) == 0 && len(path) == len(entries):
		return lostOut, "fits too, but an entry took another way, and no way is left once taken"
	case len(differ) == 0 && len(path) > len(entries):
		return longer, "needs further entries: " + pathText(path[common:])
	case len(differ) == 0:
		return shorter, fmt.Sprintf("ends before %s=%s", readable(entries[common].Key), readable(entries[common].Value))
	case len(path) == len(entries)+1:
		return needsOne(path, entries)
	case len(path)+1 == len(entries):
		return hasNot(path, entries)
	case len(path) != len(entries):
		return 0, ""
	case fitsReordered(path, entries):
		return otherOrder, "has the same entries in another order"
	case len(differ) == 1:
		i := differ[0]
		if why := path[i].slip(entries[i]); why != "" {
			return nearlySpelled, why
		}
		if len(path) > 1 {
			return anotherValue, fmt.Sprintf("takes %s in place of %s=%s", pathText(path[i:i+1]), readable(entries[i].Key), readable(entries[i].Value))
		}
	}
	return 0, ""
}

// needsOne tells of a path that would fit, had the entries one more within.
func needsOne(path []part, entries []Entry) (rank int, why string) {
	for skip := range path {
		if fitAll(path[:skip], entries[:skip]) && fitAll(path[skip+1:], entries[skip:]) {
			return oneMore, fmt.Sprintf("needs another entry, as the %s: %s", ordinal(skip+1), pathText(path[skip:skip+1]))
		}
	}
	return 0, ""
}

// hasNot tells of a path that would fit, had the entries one less.
func hasNot(path []part, entries []Entry) (rank int, why string) {
	for skip := range entries {
		if fitAll(path[:skip], entries[:skip]) && fitAll(path[skip:], entries[skip+1:]) {
			return oneLess, fmt.Sprintf("fits without %s=%s", readable(entries[skip].Key), readable(entries[skip].Value))
		}
	}
	return 0, ""
}

// fitAll tells whether each step fits its entry, of which there are as many.
func fitAll(path []part, entries []Entry) bool {
	for i := range path {
		if !path[i].fits(entries[i]) {
			return false
		}
	}
	return true
}

// ordinal is first, second and so on.
func ordinal(n int) string {
	if names := []string{"first", "second", "third"}; n <= len(names) {
		return names[n-1]
	}
	return fmt.Sprintf("%dth", n)
}

func (s *part) fits(entry Entry) bool { return s.key == entry.Key && s.matches(entry.Value) }

// slip says by what little an entry misses a step; "" if it is not little.
func (s *part) slip(entry Entry) string {
	value := s.pattern()
	switch {
	case s.key != entry.Key && alike(s.key, entry.Key):
		return fmt.Sprintf("its key is %s, not %s", readable(s.key), readable(entry.Key))
	case s.key == entry.Key && value.rangeHolds(entry.Value):
		return fmt.Sprintf("its value of %s is the text %s; the address range is written %s", readable(s.key), readable(s.text), value.asRange())
	case s.key == entry.Key && s.kind == exactValue && alike(s.text, entry.Value):
		return fmt.Sprintf("its value of %s is %s, not %s", readable(s.key), readable(s.text), readable(entry.Value))
	}
	return ""
}

// alike tells whether two texts differ only in case, outer spaces or slashes, or
// in a letter.
func alike(a, b string) bool {
	a, b = strings.ToLower(strings.Trim(a, " /")), strings.ToLower(strings.Trim(b, " /"))
	if a == b {
		return true
	}
	least := min(len(a), len(b))
	if least < 3 || max(len(a), len(b)) > least+1 || least > 256 {
		return false
	}
	return levenshtein.ComputeDistance(a, b) <= 1
}

// fitsReordered tells whether each step fits an entry of its own. A first fit is
// taken: with patterns that overlap, an order may be missed.
func fitsReordered(path []part, entries []Entry) bool {
	used := make([]bool, len(entries))
	for i := range path {
		j := 0
		for j < len(entries) && (used[j] || !path[i].fits(entries[j])) {
			j++
		}
		if j == len(entries) {
			return false
		}
		used[j] = true
	}
	return true
}
