package rules

import (
	"strings"
	"testing"
)

// entries reads "a=b, c=d". A value cannot have a comma.
func entries(text string) []Entry {
	var list []Entry
	if text == "" {
		return nil
	}
	for pair := range strings.SplitSeq(text, ", ") {
		key, value, _ := strings.Cut(pair, "=")
		list = append(list, Entry{key, value})
	}
	return list
}

func descriptor(text string) Descriptor { return Descriptor{Entries: entries(text)} }

func planOf(set *Set, req Request) *Plan {
	var p Plan
	set.Plan(&req, &p)
	return &p
}

// matched is the path of the rule that one descriptor meets, or "".
func matched(set *Set, domain, descriptors string) string {
	p := planOf(set, Request{Domain: domain, Descriptors: []Descriptor{descriptor(descriptors)}})
	if p.Matches[0].Rule == nil {
		return ""
	}
	return p.Matches[0].Rule.Path
}

func TestWhichRuleMatches(t *testing.T) {
	set := compile(t, `
domain: d
rules:
  - {match: {v: exact}, unlimited: true}
  - {match: {v: e*t}, unlimited: true}
  - {match: {v: ex*}, unlimited: true}
  - {match: {v: "*ct"}, unlimited: true}
  - {match: {v: "exa*b*t"}, unlimited: true}
  - {match: {v: "~e.*"}, unlimited: true}
  - {match: {v: "~[a-f]+"}, unlimited: true}
  - {match: {v: "cidr:10.0.0.0/8"}, unlimited: true}
  - {match: {v: "cidr:10.1.0.0/16"}, unlimited: true}
  - {match: {v: "cidr:2001:db8::/32"}, unlimited: true}
  - {match: {v: "10.1*"}, unlimited: true}
  - {match: {v: "10.1.2.3"}, unlimited: true}
  - {match: {v: "*"}, unlimited: true}
  - {match: {only: "cidr:0.0.0.0/0"}, unlimited: true}
  - {match: {many: a*b*c}, unlimited: true}
  - {match: {many: a*c*}, unlimited: true}
  - {match: {a: b, c: d}, unlimited: true}
  - {match: {a: "*", c: "*"}, unlimited: true}
  - {match: {re: "~a|b"}, unlimited: true}
  - {match: [{k: 1}, {k: 2}], unlimited: true}
descriptors:
  - {key: enabled, value: no, enabled: false, rate_limit: {unlimited: true}}
  - {key: enabled, rate_limit: {unlimited: true}}
  - key: way
    value: x
    enabled: false
    rate_limit: {unlimited: true}
    descriptors: [{key: on, rate_limit: {unlimited: true}}]
  - {key: way, rate_limit: {unlimited: true}}
`)
	for _, row := range []struct{ send, want, remark string }{
		{"v=exact", "v=exact", "the exact value first"},
		{"v=exalt", "v=e*t", "as many literal characters as ex*: file order"},
		{"v=exam", "v=ex*", "a wildcard"},
		{"v=effect", "v=e*t", "as many literal characters as *ct: file order"},
		{"v=act", "v=*ct", "a star in front"},
		{"v=exabbt", "v=exa*b*t", "several stars, most literal characters"},
		{"v=eff", "v=~e.*", "the first regular expression"},
		{"v=abc", "v=~[a-f]+", "the second regular expression"},
		{"v=abcz", "v=*", "a regular expression fits the whole value"},
		{"v=10.2.3.4", "v=cidr:10.0.0.0/8", "a range"},
		{"v=10.1.3.4", "v=cidr:10.1.0.0/16", "the longest range, before the wildcard"},
		{"v=10.1.2.3", "v=10.1.2.3", "the exact value before ranges"},
		{"v=10.1", "v=10.1*", "no address: no range"},
		{"v=::ffff:10.2.3.4", "v=cidr:10.0.0.0/8", "an IPv4-mapped address is IPv4"},
		{"v=2001:db8::1%eth0", "v=cidr:2001:db8::/32", "a zone is nothing"},
		{"v=2001:DB8::1", "v=cidr:2001:db8::/32", "addresses have no case"},
		{"v=", "v=*", "the empty value is any value"},
		{"v=\xff", "v=*", "any byte"},
		{"V=exact", "", "keys have case"},
		{"only=1.2.3.4", "only=cidr:0.0.0.0/0", "every IPv4 address"},
		{"only=::1", "", "no IPv6 address is in 0.0.0.0/0"},
		{"only=1.2.3.4:80", "", "a port makes it no address"},
		{"only=1.2.3", "", "nor is this one"},
		{"many=abc", "many=a*b*c", "stars stand for nothing too"},
		{"many=acb", "many=a*c*", "the parts in order"},
		{"many=aXbYc", "many=a*b*c", "and for anything"},
		{"a=b, c=d", `"a=b, c=d"`, "a path"},
		{"a=b, c=x", "", "no way back once a=b is taken"},
		{"a=x, c=d", `"a=*, c=*"`, "the other path"},
		{"a=b", "", "too short"},
		{"a=b, c=d, e=f", "", "too long"},
		{"c=d, a=b", "", "another order"},
		{"re=a", `"re=~a|b"`, "an alternative is bound to the whole value"},
		{"re=ax", "", "on both sides"},
		{"re=xb", "", "on both sides"},
		{"re=a\n", "", "a line's end is no value's end"},
		{"k=1, k=2", `"k=1, k=2"`, "a key twice"},
		{"k=2, k=1", "", "in its order"},
		{"enabled=no", "enabled=*", "a disabled rule is not there"},
		{"way=x", "", "a disabled node with others below still takes its value"},
		{"way=x, on=1", `"way=x, on=*"`, "and leads to them"},
		{"", "", "a descriptor with no entries"},
	} {
		want := strings.Trim(row.want, `"`)
		if got := matched(set, "d", row.send); got != want {
			t.Errorf("%q meets %q, want %q: %s", row.send, got, want, row.remark)
		}
	}
	if got := matched(set, "other", "v=exact"); got != "" {
		t.Errorf("another domain meets %q", got)
	}
}

func TestRulesOfADomainMergeAcrossDocuments(t *testing.T) {
	a, _ := Parse("a.yaml", []byte("descriptors: [{key: k, value: v, descriptors: [{key: x, rate_limit: {unlimited: true}}]}]"))
	b, _ := Parse("b.yaml", []byte("rules: [{match: {k: v, y: z}, unlimited: true}]\n---\ndomain: other\nrules: [{match: {k: v}, unlimited: true}]"))
	set, err := Compile(b, a)
	if err != nil {
		t.Fatal(err)
	}
	for send, want := range map[string]string{"k=v, x=1": "k=v, x=*", "k=v, y=z": "k=v, y=z", "k=v": ""} {
		if got := matched(set, "default", send); got != want {
			t.Errorf("%s meets %q, want %q", send, got, want)
		}
	}
	if domains, rules := set.Size(); domains != 2 || rules != 3 {
		t.Errorf("%d domains, %d rules", domains, rules)
	}
}

func TestTheSamePathInTwoFilesNamesBothPlaces(t *testing.T) {
	a, _ := Parse("a.yaml", []byte("rules: [{endpoint: /a, unlimited: true}]"))
	b, _ := Parse("b.yaml", []byte("\ndescriptors: [{key: endpoint, value: /a, rate_limit: {unlimited: true}}]"))
	_, err := Compile(b, a)
	if err == nil || err.Error() != "b.yaml:2:15: the path endpoint=/a has a rule already, at a.yaml:1:9" {
		t.Error(err)
	}
}

func TestTheVersionIsOfTheContentAlone(t *testing.T) {
	version := func(files map[string]string) string {
		var docs []*Document
		for name, text := range files {
			doc, _ := Parse(name, []byte(text))
			docs = append(docs, doc)
		}
		set, err := Compile(docs...)
		if err != nil {
			t.Fatal(err)
		}
		return set.Version()
	}
	a, b := "rules: [{endpoint: /a, unlimited: true}]", "rules: [{endpoint: /b, unlimited: true}]"
	v := version(map[string]string{"1": a, "2": b})
	if len(v) != 12 || v != version(map[string]string{"1": b, "3": a}) {
		t.Errorf("version %s changes with the files' names", v)
	}
	if v == version(map[string]string{"1": a}) || v == version(map[string]string{"1": a + "\n" + "#", "2": b}) {
		t.Error("version stays though the content changes")
	}
}

// One that tries every way would not end in a lifetime.
func TestAValueCostsARegularExpressionNoMoreThanItsLength(t *testing.T) {
	doc, err := Parse("r.yaml", []byte(`rules: [{match: {path: "~(x+x+)+y"}, limit: 1, window: 1s}, {match: {path: "~(a|aa)+"}, limit: 1, window: 1s}]`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	var plan Plan
	for _, value := range []string{strings.Repeat("x", 100_000), strings.Repeat("a", 100_000) + "b"} {
		set.Plan(&Request{Domain: DefaultDomain, Descriptors: []Descriptor{{Entries: []Entry{{Key: "path", Value: value}}}}}, &plan)
		if len(plan.Hits) > 0 {
			t.Errorf("%.3s… is taken for a match", value)
		}
	}
}
