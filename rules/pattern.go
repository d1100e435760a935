package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
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
	kind    kind
	text    string         // as written; "*" for any value
	prefix  netip.Prefix   // network
	parts   []string       // wildcard: what stands between the stars, two at least
	literal int            // wildcard: how many literal characters
	re      *regexp.Regexp // regularExpression: matches whole values only
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
		parts := strings.Split(text, "*")
		compact := []string{parts[0]}
		for _, part := range parts[1 : len(parts)-1] {
			if part != "" { // ** is *
				compact = append(compact, part)
			}
		}
		compact = append(compact, parts[len(parts)-1])
		literal := utf8.RuneCountInString(text) - strings.Count(text, "*")
		return pattern{kind: wildcard, text: text, parts: compact, literal: literal}, nil
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
	return pattern{kind: regularExpression, text: text, re: re}, nil
}

// size is how many instructions the pattern's regular expression compiles to; 0
// without one.
func (p *pattern) size() int {
	if p.re == nil {
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
	return pattern{kind: network, text: text, prefix: prefix}, nil
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

// id is the same for patterns that match the same values in the same way,
// however they are written.
func (p *pattern) id() string {
	switch p.kind {
	case network:
		return "n" + p.prefix.String()
	case wildcard:
		return "w" + strings.Join(p.parts, "*")
	case regularExpression:
		return "r" + p.text
	case anyValue:
		return "*"
	}
	return "=" + p.text
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
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// ends returns what stands before a wildcard's first star and after its last.
func (p *pattern) ends() (prefix, suffix string) { return p.parts[0], p.parts[len(p.parts)-1] }

// contains tells whether p surely matches all that other matches.
func (p *pattern) contains(other *pattern) bool {
	switch {
	case p.kind == anyValue:
		return true
	case other.kind == exactValue:
		return p.matches(other.text)
	case p.kind == network && other.kind == network:
		return p.prefix.Bits() <= other.prefix.Bits() && p.prefix.Contains(other.prefix.Addr())
	case p.kind == wildcard && other.kind == wildcard && len(p.parts) == 2:
		prefix, suffix := p.ends()
		otherPrefix, otherSuffix := other.ends()
		return strings.HasPrefix(otherPrefix, prefix) && strings.HasSuffix(otherSuffix, suffix)
	}
	return p.kind == other.kind && p.id() == other.id()
}
