package rules

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParse holds that no file ends the process, that every fault has a place in
// the file, and that what has none can be used.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"*.bad.yaml", "*.good.yaml"} {
		for _, file := range fixtures(f, pattern) {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		doc, err := Parse("f", src)
		set, compileErr := Compile(doc)
		if err != nil && compileErr == nil {
			t.Fatalf("compiled in spite of %v", err)
		}
		lines := 1
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // as YAML has them
			lines += strings.Count(string(src), end)
		}
		for _, fault := range faultsOf("f", src) {
			if fault.File != "f" || fault.Line < 1 || fault.Col < 1 || fault.Msg == "" || fault.Line > lines+1 {
				t.Fatalf("%+v", fault)
			}
		}
		if compileErr != nil {
			return
		}
		set.Warnings()
		again, _ := Parse("f", src)
		if other, err := Compile(again); err != nil || other.Version() != set.Version() || len(Diff(set, other)) > 0 {
			t.Fatalf("read again it is something else: %v", err)
		}
		for _, c := range Diff(&Set{}, set) { // all of it is new
			_ = c.String()
		}
		for _, s := range doc.stated {
			var list []Entry
			for _, p := range s.path {
				list = append(list, Entry{p.key, p.text})
			}
			planOf(set, Request{Domain: s.in.domain, Descriptors: []Descriptor{{Entries: list}}})
			_ = set.Explain(s.in.domain, list).String()
		}
	})
}

// naive is one level of rules as the design says it, with no table at all.
func naive(values []string, value string) string {
	best := func(is func(string) bool, better func(a, b string) bool) string {
		found, taken := "", false
		for _, v := range values {
			if is(v) && (!taken || better(v, found)) {
				found, taken = v, true
			}
		}
		if !taken {
			return "none"
		}
		return found
	}
	first := func(_, _ string) bool { return false }
	isRange := func(v string) bool { return strings.HasPrefix(v, "cidr:") }
	isRegexp := func(v string) bool { return strings.HasPrefix(v, "~") }
	isAny := func(v string) bool { return strings.Trim(v, "*") == "" }
	prefix := func(v string) netip.Prefix { return netip.MustParsePrefix(strings.TrimPrefix(v, "cidr:")) }
	literals := func(v string) int { return utf8.RuneCountInString(strings.ReplaceAll(v, "*", "")) }
	addr, addrErr := netip.ParseAddr(value)
	addr = addr.Unmap().WithZone("")
	for _, found := range []string{
		best(func(v string) bool {
			return v == value && !isAny(v) && !isRange(v) && !isRegexp(v) && !strings.Contains(v, "*")
		}, first),
		best(func(v string) bool { return isRange(v) && addrErr == nil && prefix(v).Contains(addr) },
			func(a, b string) bool { return prefix(a).Bits() > prefix(b).Bits() }),
		best(func(v string) bool {
			if isAny(v) || isRange(v) || isRegexp(v) || !strings.Contains(v, "*") {
				return false
			}
			return naiveStars(v, value)
		}, func(a, b string) bool { return literals(a) > literals(b) }),
		best(func(v string) bool {
			if !isRegexp(v) {
				return false
			}
			loc := regexp.MustCompile(`^(?:` + v[1:] + `)$`).FindStringIndex(value)
			return loc != nil
		}, first),
		best(isAny, first),
	} {
		if found != "none" {
			return found
		}
	}
	return "none"
}

// naiveStars tries every length for every star.
func naiveStars(pattern, value string) bool {
	if pattern == "" {
		return value == ""
	}
	if pattern[0] == '*' {
		for i := range len(value) + 1 {
			if naiveStars(pattern[1:], value[i:]) {
				return true
			}
		}
		return false
	}
	return value != "" && value[0] == pattern[0] && naiveStars(pattern[1:], value[1:])
}

// FuzzMatch holds the tables against naive, with rules and values of few letters
// so that they meet often.
func FuzzMatch(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed, "ab")
	}
	f.Add(uint64(1), "10.1.2.3")
	f.Add(uint64(2), "::ffff:10.0.0.1")
	f.Add(uint64(3), "\xff\x00")
	f.Fuzz(func(t *testing.T, seed uint64, value string) {
		if len(value) > 20 {
			return
		}
		random := rand.New(rand.NewPCG(seed, 1))
		pick := func(list ...string) string { return list[random.IntN(len(list))] }
		seen := map[string]bool{}
		var values []string
		for range random.IntN(30) {
			v := pick("", "*", "a*", "*b", "a*b", "*a*", "a*b*", "*ab", "b**a", "ab", "a", "b", "é*", "*é",
				"~a+", "~[ab]*", "~.b", "~(?s).*", "cidr:10.0.0.0/8", "cidr:10.1.0.0/16", "cidr:0.0.0.0/0", "cidr:::/0", "cidr:2001:db8::/32",
				"1*", "10.1.2.3", pick("a", "b", "*")+pick("a", "b", "*")+pick("a", "b", "*"))
			p, err := parsePattern(v)
			if err != nil {
				t.Fatal(err)
			}
			if id := p.kind.String() + p.canonical(); !seen[id] {
				seen[id] = true
				values = append(values, v)
			}
		}
		tree := treeOf(t, values)
		for _, value := range []string{value, pick("a", "ab", "aab", "bba", "abab", "aéb", "10.1.9.9", "::1", "2001:db8::1", "")} {
			got, want := "none", naive(values, value)
			if n := tree.find([]Entry{{"k", value}}); n != nil {
				got = n.text
			}
			if strings.Trim(want, "*") == "" {
				want = "*"
			}
			if got != want {
				t.Fatalf("%q among %q: got %q, want %q", value, values, got, want)
			}
		}
	})
}

// treeOf is one level of rules for the key k.
func treeOf(t *testing.T, values []string) *tree {
	t.Helper()
	var drafts []draft
	for _, v := range values {
		p, err := parsePattern(v)
		if err != nil {
			t.Fatal(err)
		}
		drafts = append(drafts, draft{path: []step{{key: "k", value: p}}, rule: &ruleDraft{}})
	}
	doc := &Document{Name: "f"}
	doc.keep(drafts)
	b := newBuilder()
	for i := range doc.stated {
		b.reach(&doc.stated[i])
	}
	return b.finish()
}
