package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"weir/limiter"
)

// FuzzCountersAreApart looks for two limits of rules, or two rules and what queues of
// theirs are called, that share an identity though they are not the same.
func FuzzCountersAreApart(f *testing.F) {
	f.Add("d", "k", "a_b", "l", "c", uint8(2), "d", "k", "a", "_bl", "c", uint8(2))
	f.Add("d", "k", "*", "", "", uint8(1), "d", "k", "*", "", "", uint8(9))
	f.Add("dk", "", "a", "", "b", uint8(3), "d", "ka", "", "", "b", uint8(3))
	f.Add("d", "rule", "", "", "", uint8(0), "drule", "", "", "", "", uint8(0))
	f.Fuzz(func(t *testing.T, domain1, k1, v1, l1, w1 string, how1 uint8, domain2, k2, v2, l2, w2 string, how2 uint8) {
		type identity struct {
			domain string
			path   []part
			limit  limiter.Limit
			reset  uint64
		}
		build := func(domain, k, v, l, w string, how uint8) identity {
			path := []part{{shape: &shape{key: k, share: how&1 != 0}, text: v}, {shape: &shape{key: l}, text: w}}[:1+how>>1&1]
			windows := []limiter.Window{{Length: time.Hour}, {Length: limiter.DayLength}, limiter.CalendarWindow(limiter.Day, nil), limiter.CalendarWindow(limiter.Day, time.FixedZone("", 3600))}
			return identity{domain, path, limiter.Limit{Window: windows[how>>2&3], Algorithm: limiter.Algorithm(how >> 4 & 3)}, uint64(how >> 6)}
		}
		ids := func(i identity) []counterID {
			return appendCounterIDs(nil, i.domain, i.path, []limiter.Limit{i.limit, i.limit}, i.reset)
		}
		a, b := build(domain1, k1, v1, l1, w1, how1), build(domain2, k2, v2, l2, w2, how2)
		same := fmt.Sprintf("%+q", []any{a.domain, texts(a.path), a.limit.Algorithm.String(), a.limit.Window.String(), a.reset}) ==
			fmt.Sprintf("%+q", []any{b.domain, texts(b.path), b.limit.Algorithm.String(), b.limit.Window.String(), b.reset})
		x, y := ids(a), ids(b)
		if x[0] == x[1] || x[0] == y[1] {
			t.Fatalf("two limits of %+v and %+v share a counter", a, b)
		}
		if (x[0] == y[0]) != same {
			t.Fatalf("%+v and %+v are the same: %t, and share a counter: %t", a, b, same, x[0] == y[0])
		}
		oneRule := fmt.Sprintf("%+q", []any{a.domain, texts(a.path)}) == fmt.Sprintf("%+q", []any{b.domain, texts(b.path)})
		if (ruleID(a.domain, a.path) == ruleID(b.domain, b.path)) != oneRule || (string(queueKey(a.domain, a.path)) == string(queueKey(b.domain, b.path))) != oneRule {
			t.Fatalf("%+v and %+v are one rule: %t, and are named so", a, b, oneRule)
		}
		if overrideID(a.domain) == x[0] || overrideID(a.domain) == y[0] || (overrideID(a.domain) == overrideID(b.domain)) != (a.domain == b.domain) {
			t.Fatalf("overrides of %q and rules share a counter", a.domain)
		}
	})
}

func texts(path []part) []string {
	var all []string
	for _, p := range path {
		all = append(all, p.key, p.text, fmt.Sprint(p.share))
	}
	return all
}

// FuzzCacheFile holds that whatever the file of a rules cache has become is read as
// rules, or said to be unusable.
func FuzzCacheFile(f *testing.F) {
	good, err := json.Marshal(cached{Source: "s", Version: "v", Files: map[string][]byte{"a.yaml": []byte("rules: [{endpoint: /a, unlimited: true}]"), "b": nil}})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{string(good), `{"source":"s"}`, `{"source":"s","files":{"":"!"}}`, `{"source":"s","files":{"..":"","a":"cg=="},"as_of":"9999-12-31T23:59:59Z"}`, "null", string(good[:40]), ""} {
		f.Add([]byte(text))
	}
	c, err := NewCache(nil, CacheOptions{Dir: f.TempDir(), Name: "s"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(c.path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		snap, err := c.read()
		if err != nil {
			return
		}
		if !snap.Cached {
			t.Fatal("what is read from the cache does not say so")
		}
		_, _ = Compile(snap.Documents...)
	})
}
