package metrics

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"weir/limiter"
	"weir/rules"
)

// FuzzLabels holds that whatever rules are called and clients send, a scrape can be
// read, and has no more series than are allowed.
func FuzzLabels(f *testing.F) {
	f.Add("name", "a", "b", "key")
	f.Add("\"\n\\", "\xff", strings.Repeat("é", 200), "a=b")
	f.Add("\u2028", "", "\x00", "{")
	f.Fuzz(func(t *testing.T, name, first, second, key string) {
		if !utf8.ValidString(name) || !utf8.ValidString(key) {
			return
		}
		text, err := json.Marshal(map[string]any{"domain": name + "d", "rules": []any{
			map[string]any{"name": name, "match": []any{map[string]any{"key": key, "value": "*"}}, "limit": 5, "window": "1m", "value_to_metric": true},
			map[string]any{"name": name, "match": []any{map[string]any{"key": "k", "value": "*"}, map[string]any{"key": key, "value": "*"}}, "limit": 5, "window": "1m", "detailed_metric": true},
		}})
		if err != nil {
			t.Fatal(err)
		}
		snap := rules.ParseSnapshot(map[string][]byte{"rules.yaml": text})
		if _, err := rules.Compile(snap.Documents...); err != nil || len(snap.Faults) > 0 {
			return
		}
		c := newCounting(t, string(text), Options{MaxValues: 2})
		for _, d := range []limiter.Decision{passed, {}} {
			for _, entries := range [][]rules.Entry{{{Key: key, Value: first}}, {{Key: key, Value: second}}, {{Key: "k", Value: second}, {Key: key, Value: first}}, {{Key: key, Value: "third"}}} {
				c.count(c.live.Current(), &rules.Request{Domain: name + "d", Descriptors: []rules.Descriptor{{Entries: entries}}}, d)
			}
		}
		c.count(c.live.Current(), &rules.Request{Domain: first, Descriptors: []rules.Descriptor{{Entries: []rules.Entry{{Key: key, Value: first}}}}}, passed)
		each := 0
		for series := range c.series("weir_descriptor_hits_total") {
			if !strings.Contains(series, "other") {
				each++
			}
		}
		const outcomes = 8 // more than there are
		if each > 2*outcomes {
			t.Fatalf("%d series of 2 values", each)
		}
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK || !utf8.Valid(w.Body.Bytes()) {
			t.Fatalf("%d, %q", w.Code, w.Body)
		}
	})
}
