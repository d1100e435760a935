package rules

import (
	"bytes"
	"testing"
)

func TestAGenerationGivesARuleOtherCountersAndItsQueueTheSame(t *testing.T) {
	const text = `
rules:
  - match: {a: "*"}
    limits: [{limit: 1, window: 1h}, {limit: 2, window: 1h}, {limit: 3, window: 1m}]
  - {match: {b: "*"}, limit: 1, window: 1h}
  - {match: {c: x}, limit: 1, window: 1s, algorithm: leaky_bucket, over_limit: queue}
`
	doc, err := Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	in := func(generations map[RuleID]uint64) *Set {
		set, err := CompileWith(Options{Generations: generations}, doc)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	keys := func(set *Set, send string) (keys []string) {
		p := planOf(set, Request{Domain: DefaultDomain, Descriptors: []Descriptor{descriptor(send)}})
		for _, h := range p.Hits {
			keys = append(keys, string(h.Key))
		}
		return keys
	}
	first := in(nil)
	ids := map[string]RuleID{}
	for r := range first.Rules("") {
		ids[r.Path] = r.ID()
	}
	seen := map[string]uint64{}
	for generation := range uint64(4) {
		set := in(map[RuleID]uint64{ids["a=*"]: generation, ids["c=x"]: generation, "another": 7})
		for _, key := range keys(set, "a=1") {
			if g, ok := seen[key]; ok {
				t.Errorf("generations %d and %d share a counter", g, generation)
			}
			seen[key] = generation
		}
		if got, want := keys(set, "b=1"), keys(first, "b=1"); got[0] != want[0] {
			t.Errorf("generation %d of another rule changes the counters of this one", generation)
		}
		if generation == 0 {
			if got, want := keys(set, "a=1"), keys(first, "a=1"); got[0] != want[0] || got[2] != want[2] {
				t.Error("generation 0 is not what it is without generations")
			}
		}
		queue, was := set.Queues()[0], first.Queues()[0]
		if !bytes.Equal(queue.Overflow, was.Overflow) {
			t.Errorf("generation %d has another queue, and what waits is lost", generation)
		}
		if bytes.Equal(queue.QueueCounter(), was.QueueCounter()) != (generation == 0) {
			t.Errorf("generation %d: the queue's bucket is to be another one", generation)
		}
	}
}

func TestGenerationsHoldForRulesInForceAndForThoseToCome(t *testing.T) {
	live := NewLive(LiveOptions{})
	load := func(text string) {
		t.Helper()
		if err := live.Apply("s", ParseSnapshot(map[string][]byte{"r.yaml": []byte(text)})); err != nil {
			t.Fatal(err)
		}
	}
	const one = `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`
	load(one)
	before := live.Current()
	key := func() string { return keyOf(t, live.Current(), DefaultDomain, descriptor("a=1")) }
	first := key()
	var id RuleID
	for r := range before.Rules(DefaultDomain) {
		id = r.ID()
	}
	if err := live.SetGenerations(map[RuleID]uint64{id: 1}); err != nil {
		t.Fatal(err)
	}
	second := key()
	if second == first {
		t.Error("the rule in force has the counters it had")
	}
	if v := live.Current().Version(); v != before.Version() || live.Status().Version != v || live.Status().Reloads != 1 {
		t.Errorf("version %s, status %+v: nothing was reloaded", v, live.Status())
	}
	load(one + "\n# changed")
	if key() != second {
		t.Error("a reload takes the reset back")
	}
	same := live.Current()
	if err := live.SetGenerations(map[RuleID]uint64{id: 1}); err != nil || live.Current() != same {
		t.Errorf("the same generations compile again: %v", err)
	}
	if err := live.SetGenerations(nil); err != nil || key() != first {
		t.Errorf("without generations the counters are not the first ones: %v", err)
	}
}

func TestRulesAreListedByDomainAndThenInFileOrder(t *testing.T) {
	set := compile(t, "domain: b\nrules: [{match: {z: }, limit: 1, window: 1s}, {match: {a: }, limit: 1, window: 1s}]\n---\ndomain: a\nrules: [{match: {k: }, exempt: true}]")
	list := func(domain string) (text string) {
		for r := range set.Rules(domain) {
			text += r.Domain + " " + r.Path + "; "
		}
		return text
	}
	if got, want := list(""), "a k=*; b z=*; b a=*; "; got != want {
		t.Errorf("all: %s, want %s", got, want)
	}
	if got, want := list("b"), "b z=*; b a=*; "; got != want {
		t.Errorf("b: %s, want %s", got, want)
	}
	if got := list("none"); got != "" {
		t.Errorf("a domain that is not there: %s", got)
	}
}
