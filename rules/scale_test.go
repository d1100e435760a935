package rules

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// kindsOfRules are rule sets of any size, each of one kind of rules.
var kindsOfRules = []struct {
	name  string
	rule  func(i int) string
	value func(i int) []Entry // that takes the rule
}{
	{
		"exact", func(i int) string {
			return fmt.Sprintf("{match: {endpoint: /api/v1/resource/%d}, limit: %d, window: 60s}", i, i%50+1)
		},
		func(i int) []Entry { return []Entry{{"endpoint", fmt.Sprintf("/api/v1/resource/%d", i)}} },
	},
	{
		"each client of a tenant", func(i int) string {
			return fmt.Sprintf("{match: {tenant: t%d, remote_address: '*'}, limit: %d, window: 60s}", i, i%50+1)
		},
		func(i int) []Entry { return []Entry{{"tenant", fmt.Sprintf("t%d", i)}, {"remote_address", "10.1.2.3"}} },
	},
	{
		"wildcard", func(i int) string {
			return fmt.Sprintf("{match: {endpoint: /api/%d/*}, limit: %d, window: 60s}", i, i%50+1)
		},
		func(i int) []Entry { return []Entry{{"endpoint", fmt.Sprintf("/api/%d/x/y", i)}} },
	},
	{
		"cidr", func(i int) string {
			return fmt.Sprintf("{match: {remote_address: 'cidr:%d.%d.%d.0/24'}, limit: %d, window: 60s}", 1+i>>16, i>>8&255, i&255, i%50+1)
		},
		func(i int) []Entry {
			return []Entry{{"remote_address", fmt.Sprintf("%d.%d.%d.7", 1+i>>16, i>>8&255, i&255)}}
		},
	},
}

// scaled is what many rules take.
type scaled struct {
	parse, compile time.Duration
	source         int64         // bytes a rule, here and below
	set, kept      int64         // the set alone, and with its document, as a Live keeps it
	match, again   time.Duration // of a rule here and there, and of the same one again and again
}

// load parses and compiles n rules, and measures.
func load(t *testing.T, n int, rule func(int) string, value func(int) []Entry) (m scaled) {
	t.Helper()
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, "- %s\n", rule(i))
	}
	src := []byte(text.String())
	text.Reset()
	before, begin := live(), time.Now()
	doc, err := Parse("rules.yaml", src)
	m.parse = time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC() // what parsing leaves is not compiling's
	begin = time.Now()
	set, err := Compile(doc)
	m.compile = time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	m.source = int64(len(src) / n)
	m.kept = (live() - before) / int64(n)
	runtime.KeepAlive(doc)
	m.set = (live() - before) / int64(n)
	rng := rand.New(rand.NewPCG(1, 2))
	m.match = match(t, set, func() []Entry { return value(rng.IntN(n)) })
	m.again = match(t, set, func() []Entry { return value(n / 2) })
	runtime.KeepAlive(src)
	return m
}

// match returns how long one descriptor takes, and fails if planning allocates.
func match(t *testing.T, set *Set, next func() []Entry) time.Duration {
	t.Helper()
	sent := make([]Entry, 0, 20_000) // one after another, as what was just received is near at hand
	for len(sent) < cap(sent)-1 {
		sent = append(sent, next()...)
	}
	entries := len(next())
	req := Request{Domain: DefaultDomain, Descriptors: make([]Descriptor, 1)}
	var p Plan
	round := func() {
		for i := 0; i < len(sent); i += entries {
			req.Descriptors[0].Entries = sent[i : i+entries]
			if set.Plan(&req, &p); len(p.Hits) != 1 {
				t.Fatalf("%v meets %d limits", sent[i:i+entries], len(p.Hits))
			}
		}
	}
	if allocations := testing.AllocsPerRun(1, round); allocations > 0 {
		t.Errorf("a match allocates: %v times in %d", allocations, len(sent)/entries)
	}
	best := time.Hour // of some rounds: in the others, somebody else had the processor
	for range 100 {
		begin := time.Now()
		round()
		best = min(best, time.Since(begin))
	}
	return best / time.Duration(len(sent)/entries)
}

func live() int64 {
	runtime.GC()
	runtime.GC() // what the first one left to sweep
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// Times have a wide margin, for the machine may be busy; memory does not depend on it.
func TestTenThousandRulesTakeLittle(t *testing.T) {
	for _, kind := range kindsOfRules {
		t.Run(kind.name, func(t *testing.T) {
			m := load(t, 10_000, kind.rule, kind.value)
			if m.set > 320 || m.kept > 500+m.source {
				t.Errorf("%d bytes a rule, %d with the document; want 320 and %d at most", m.set, m.kept, 500+m.source)
			}
			if m.parse > 5*time.Second || m.compile > 2*time.Second || m.match > 20*time.Microsecond {
				t.Errorf("parsed in %v, compiled in %v, matched in %v", m.parse, m.compile, m.match)
			}
		})
	}
}

func TestScaleOfRules(t *testing.T) {
	if os.Getenv("WEIR_SCALE") == "" {
		t.Skip("it takes a while: make scale")
	}
	for _, kind := range kindsOfRules {
		t.Run(kind.name, func(t *testing.T) {
			m := load(t, 100_000, kind.rule, kind.value)
			for range 2 { // the best of three, for others may have shared the processor
				again := load(t, 100_000, kind.rule, kind.value)
				m.parse, m.compile, m.match, m.again = min(m.parse, again.parse), min(m.compile, again.compile), min(m.match, again.match), min(m.again, again.again)
			}
			t.Logf("parsed in %v, compiled in %v; %d bytes a rule, %d with the document, of which %d are the file; matched in %v, the same one again in %v",
				m.parse.Round(time.Millisecond), m.compile.Round(time.Millisecond), m.set, m.kept, m.source, m.match, m.again)
			if m.parse > 5*time.Second || m.compile > time.Second || m.set > 300 || m.again > 300*time.Nanosecond {
				t.Error("want 5 s, 1 s, 300 bytes and 300 ns at most")
			}
		})
	}
}
