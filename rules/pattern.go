package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// kind says how a pattern matches. Of several that match, the lowest wins.
type kind uint8

const (
	exactValue kind = iota
	network
	wildcard
	regularExpression
	anyValue
)

var kindNames = [...]string{"exact value", "address range", "wildcard", "regular expression", "any value"}

func (k kind) String() string { return kindNames[k] }

// pattern is the value of a step. Values are bytes, of any encoding.
type pattern struct {
	kind kind
	text string // as written; "*" for any value
	*matching
}

// matching is what its text alone does not tell of a network or a regular
// expression; nil for other kinds.
type matching struct {
	prefix netip.Prefix   // network
	re     *regexp.Regexp // regularExpression: matches whole values only
}

// parsePattern reads a value of a rule: "", "*", a*z, cidr:10.0.0.0/8, ~regex or
// an exact value.
func parsePattern(text string) (pattern, error) {
	switch {
	case strings.Trim(text, "*") == "":
		return pattern{kind: anyValue, text: "*"}, nil
	case strings.HasPrefix(text, "~"):
		return parseRegexp(text)
	case strings.HasPrefix(text, "cidr:"):
		return parseNetwork(text)
	case strings.Contains(text, "*"):
		return pattern{kind: wildcard, text: text}, nil
	}
	return pattern{kind: exactValue, text: text}, nil
}

func parseRegexp(text string) (pattern, error) {
	source := text[1:]
	if source == "" {
		return pattern{}, errors.New(`an empty regular expression after "~"`)
	}
	// Compiled alone first: "a)|(b" is sound only within the parentheses that
	// bind it to the whole value.
	if _, err := syntax.Parse(source, syntax.Perl); err != nil {
		return pattern{}, fmt.Errorf("value %s: %w", brief(text), err)
	}
	re, err := regexp.Compile(`\A(?:` + source + `)\z`)
	if err != nil {
		return pattern{}, fmt.Errorf("value %s: %w", brief(text), err)
	}
	return pattern{kind: regularExpression, text: text, matching: &matching{re: re}}, nil
}

// size is how many instructions the pattern's regular expression compiles to; 0
// without one.
func (p *pattern) size() int {
	if p.kind != regularExpression {
		return 0
	}
	parsed, err := syntax.Parse(p.re.String(), syntax.Perl)
	if err != nil {
		return 0 // it was compiled
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}

func parseNetwork(text string) (pattern, error) {
	source := strings.TrimPrefix(text, "cidr:")
	prefix, err := netip.ParsePrefix(source)
	if err != nil {
		if addr, isAddr := parseAddress(source); isAddr {
			return pattern{}, fmt.Errorf("%s has no length; write cidr:%v/%d for the one address", brief(text), addr, addr.BitLen())
		}
		return pattern{}, fmt.Errorf("%s is no address range like cidr:10.0.0.0/8 or cidr:2001:db8::/32", brief(text))
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if prefix != prefix.Masked() {
		return pattern{}, fmt.Errorf("%s has bits set past its length; the range is cidr:%v", brief(text), prefix.Masked())
	}
	return pattern{kind: network, text: text, matching: &matching{prefix: prefix}}, nil
}

// asRange is how to write the address range that an exact value looks like; ""
// if it looks like none.
func (p *pattern) asRange() string {
	if p.kind != exactValue || !strings.Contains(p.text, "/") {
		return ""
	}
	prefix, err := netip.ParsePrefix(p.text)
	if err != nil {
		return ""
	}
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return "cidr:" + prefix.Masked().String()
}

// rangeHolds tells whether an exact value looks like a range that holds the
// address.
func (p *pattern) rangeHolds(value string) bool {
	text := p.asRange()
	if text == "" {
		return false
	}
	meant, err := parseNetwork(text)
	return err == nil && meant.matches(value)
}

// canonical is the same text for patterns of one kind that match the same values in
// the same way, however they are written.
func (p *pattern) canonical() string {
	switch {
	case p.kind == network:
		return p.prefix.String()
	case p.kind == wildcard && strings.Contains(p.text, "**"):
		first, last := p.stars()
		if p.simple() {
			return p.text[:first] + p.text[last:]
		}
		return p.text[:first] + "*" + strings.Join(p.middle(first, last), "*") + p.text[last:]
	}
	return p.text
}

// matches tells whether the pattern fits a value alone, whatever else is there.
func (p *pattern) matches(value string) bool {
	switch p.kind {
	case exactValue:
		return value == p.text
	case network:
		addr, ok := parseAddress(value)
		return ok && p.prefix.Contains(addr)
	case wildcard:
		return p.matchesStars(value)
	case regularExpression:
		return p.re.MatchString(value)
	}
	return true
}

func (p *pattern) matchesStars(value string) bool {
	prefix, suffix := p.ends()
	if len(value) < len(prefix)+len(suffix) || !strings.HasPrefix(value, prefix) || !strings.HasSuffix(value, suffix) {
		return false
	}
	return p.matchesMiddle(value[len(prefix) : len(value)-len(suffix)])
}

// matchesMiddle looks for the parts between the first star and the last, each
// as early as it can be.
func (p *pattern) matchesMiddle(rest string) bool {
	first, last := p.stars()
	if first == last {
		return true
	}
	for middle := p.text[first+1 : last]; middle != ""; {
		var part string
		part, middle, _ = strings.Cut(middle, "*")
		i := strings.Index(rest, part) // 0 of "": ** is *
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// stars returns where a wildcard's first star is, and its last.
func (p *pattern) stars() (first, last int) {
	return strings.IndexByte(p.text, '*'), strings.LastIndexByte(p.text, '*')
}

// middle returns the texts between a wildcard's stars, of which none is empty.
func (p *pattern) middle(first, last int) []string {
	if first == last {
		return nil
	}
	return slices.DeleteFunc(strings.Split(p.text[first+1:last], "*"), func(part string) bool { return part == "" })
}

// ends returns what stands before a wildcard's first star and after its last.
func (p *pattern) ends() (prefix, suffix string) {
	first, last := p.stars()
	return p.text[:first], p.text[last+1:]
}

// literals is how many characters of a wildcard are no stars.
func (p *pattern) literals() int {
	return utf8.RuneCountInString(p.text) - strings.Count(p.text, "*")
}

// simple tells whether a wildcard has nothing between its stars.
func (p *pattern) simple() bool {
	first, last := p.stars()
	return strings.Trim(p.text[first:last], "*") == ""
}

// contains tells whether p surely matches all that other matches.
func (p *pattern) contains(other *pattern) bool {
	switch {
	case p.kind == anyValue:
		return true
	case other.kind == exactValue:
		return p.matches(other.text)
	case p.kind == network && other.kind == network:
		return p.prefix.Bits() <= other.prefix.Bits() && p.prefix.Contains(other.prefix.Addr())
	case p.kind == wildcard && other.kind == wildcard && p.simple():
		prefix, suffix := p.ends()
		otherPrefix, otherSuffix := other.ends()
		return strings.HasPrefix(otherPrefix, prefix) && strings.HasSuffix(otherSuffix, suffix)
	}
	return p.kind == other.kind && p.canonical() == other.canonical()
}
