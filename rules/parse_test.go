package rules

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"weir/internal/golden"
	"weir/limiter"
)

var update = flag.Bool("update", false, "write the golden files anew")

// compile makes a set of one file's text, which is sound.
func compile(t testing.TB, text string) *Set {
	t.Helper()
	return compileWith(t, Options{}, text)
}

func compileWith(t testing.TB, options Options, text string) *Set {
	t.Helper()
	doc, err := Parse("rules.yaml", []byte(text))
	if err != nil {
		t.Fatalf("parse:\n%v", err)
	}
	set, err := CompileWith(options, doc)
	if err != nil {
		t.Fatalf("compile:\n%v", err)
	}
	return set
}

// faultsOf returns what is wrong with one file.
func faultsOf(name string, src []byte) Faults {
	doc, _ := Parse(name, src)
	_, err := Compile(doc)
	var faults Faults
	errors.As(err, &faults)
	return faults
}

func fixtures(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures %s: %v", pattern, err)
	}
	return files
}

func TestEveryFaultOfAFileIsReportedAtItsPlace(t *testing.T) {
	for _, file := range fixtures(t, "*.bad.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			faults := faultsOf(filepath.Base(file), src)
			if len(faults) == 0 {
				t.Fatal("no fault")
			}
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".want", faults.Error()+"\n", *update)
		})
	}
}

func TestSoundFilesHaveNoFault(t *testing.T) {
	for _, file := range fixtures(t, "*.good.yaml") {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if faults := faultsOf(file, src); len(faults) > 0 {
			t.Error(faults)
		}
	}
}

func TestFiveFaultsAreFiveLines(t *testing.T) {
	src, err := os.ReadFile("testdata/five_faults.bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("f.yaml", src)
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 5 {
		t.Errorf("%d lines:\n%v", lines, err)
	}
}

func TestAFaultyDocumentNeverBecomesRules(t *testing.T) {
	doc, err := Parse("f.yaml", []byte("rules: [{endpoint: /a, limit: 1, window: 1s}, {endpoint: /b, limit: x, window: 1s}]"))
	if err == nil {
		t.Fatal("no fault")
	}
	set, err := Compile(doc)
	if err == nil || set != nil {
		t.Errorf("compiled %v, error %v", set, err)
	}
}

func TestLimitsAndTheirDefaults(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	fixed := func(d time.Duration) limiter.Window { return limiter.Window{Length: d} }
	for _, row := range []struct {
		fields string
		want   limiter.Limit
	}{
		{"limit: 5, window: 60s", limiter.Limit{Requests: 5, Window: fixed(time.Minute)}},
		{"limit: 5, window: minute", limiter.Limit{Requests: 5, Window: fixed(time.Minute)}},
		{"requests_per_unit: 5, unit: MINUTE", limiter.Limit{Requests: 5, Window: fixed(time.Minute)}},
		{"requests_per_unit: 5, unit: minute, unit_multiplier: 5", limiter.Limit{Requests: 5, Window: fixed(5 * time.Minute)}},
		{"limit: 5, window: Minute, unit_multiplier: 5", limiter.Limit{Requests: 5, Window: fixed(5 * time.Minute)}},
		{"rate_limit: {requests_per_unit: 5, unit: second}", limiter.Limit{Requests: 5, Window: fixed(time.Second)}},
		{"limit: 1, window: 100ms", limiter.Limit{Requests: 1, Window: fixed(100 * time.Millisecond)}},
		{"limit: 0, window: 1h30m", limiter.Limit{Window: fixed(90 * time.Minute)}},
		{"limit: 4294967295, window: 8784h", limiter.Limit{Requests: 1<<32 - 1, Window: fixed(366 * 24 * time.Hour)}},
		{"limit: 1, window: day", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Day, nil)}},
		{"limit: 1, window: day, timezone: UTC", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Day, nil)}},
		{"limit: 1, window: day, timezone: Asia/Tokyo", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Day, tokyo)}},
		{"limit: 1, unit: week", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Week, nil)}},
		{"limit: 1, unit: month, unit_multiplier: 1", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Month, nil)}},
		{"limit: 1, unit: month, unit_multiplier: 2", limiter.Limit{Requests: 1, Window: fixed(1440 * time.Hour)}},
		{"limit: 1, unit: year", limiter.Limit{Requests: 1, Window: limiter.CalendarWindow(limiter.Year, nil)}},
		{"limit: 1, unit: year, algorithm: sliding_window_counter", limiter.Limit{Requests: 1, Window: fixed(8760 * time.Hour), Algorithm: limiter.SlidingWindowCounter}},
		{"limit: 3, window: month, algorithm: token_bucket", limiter.Limit{Requests: 3, Window: fixed(720 * time.Hour), Algorithm: limiter.TokenBucket, Burst: 3}},
		{"limit: 3, window: 1s, algorithm: token_bucket, burst: 9", limiter.Limit{Requests: 3, Window: fixed(time.Second), Algorithm: limiter.TokenBucket, Burst: 9}},
		{"limit: 3, window: 1s, algorithm: leaky_bucket", limiter.Limit{Requests: 3, Window: fixed(time.Second), Algorithm: limiter.LeakyBucket, Queue: 3}},
		{"limit: 3, window: 1s, algorithm: leaky_bucket, queue: 0", limiter.Limit{Requests: 3, Window: fixed(time.Second), Algorithm: limiter.LeakyBucket}},
		{"limit: 3, window: 1s, algorithm: sliding_window_log", limiter.Limit{Requests: 3, Window: fixed(time.Second), Algorithm: limiter.SlidingWindowLog, CountDenied: true}},
		{"limit: 3, window: 1s, algorithm: sliding_window_log, count_denied: false", limiter.Limit{Requests: 3, Window: fixed(time.Second), Algorithm: limiter.SlidingWindowLog}},
		{"limit: 3, window: 1s, count_denied: true", limiter.Limit{Requests: 3, Window: fixed(time.Second), CountDenied: true}},
		{"limit: 3000, window: 1s, accuracy: {lease: 100}", limiter.Limit{Requests: 3000, Window: fixed(time.Second), Lease: 100}},
		{"limits: [{limit: 3000, window: 1s}], accuracy: {lease: 100}", limiter.Limit{Requests: 3000, Window: fixed(time.Second), Lease: 100}},
		{"rate_limit: {requests_per_unit: 3000, unit: second}, accuracy: {lease: 100}", limiter.Limit{Requests: 3000, Window: fixed(time.Second), Lease: 100}},
	} {
		for spelling, text := range map[string]string{
			"flat":   "rules: [{match: {k: v}, " + row.fields + "}]",
			"nested": "descriptors: [{key: k, value: v, " + row.fields + "}]",
		} {
			p := planOf(compile(t, text), Request{Domain: "default", Descriptors: []Descriptor{descriptor("k=v")}})
			if len(p.Hits) != 1 || !reflect.DeepEqual(p.Hits[0].Limit, row.want) {
				t.Errorf("%s %s: got %+v, want %+v", spelling, row.fields, p.Hits, row.want)
			}
		}
	}
}

func TestTheServersDefaultsHoldWhereARuleIsSilent(t *testing.T) {
	const text = `rules:
  - {endpoint: /silent, limit: 1, window: 1s}
  - {endpoint: /says, limit: 1, window: 1s, count_denied: false, on_store_failure: local}`
	set := compileWith(t, Options{OnFailure: limiter.FailDeny, CountDenied: true}, text)
	override, err := NewOverride(1, "HOUR", 1)
	if err != nil {
		t.Fatal(err)
	}
	overridden := descriptor("x=y")
	overridden.Override = override
	p := planOf(set, Request{Domain: "default", Descriptors: []Descriptor{descriptor("endpoint=/silent"), descriptor("endpoint=/says"), overridden}})
	for i, want := range []struct {
		policy limiter.FailurePolicy
		counts bool
	}{{limiter.FailDeny, true}, {limiter.FailLocal, false}, {limiter.FailDeny, true}} {
		if h := p.Hits[i]; h.OnFailure != want.policy || h.Limit.CountDenied != want.counts {
			t.Errorf("hit %d: policy %v, count_denied %v, want %+v", i, h.OnFailure, h.Limit.CountDenied, want)
		}
	}
}

func TestMetadataIsPlain(t *testing.T) {
	set := compile(t, `rules: [{endpoint: /a, unlimited: true, metadata: {n: 1, f: 1.5, b: true, s: x, t: 2020-01-01, z: null, l: [1, {a: b}]}}]`)
	p := planOf(set, Request{Domain: "default", Descriptors: []Descriptor{descriptor("endpoint=/a")}})
	want := map[string]any{"n": 1, "f": 1.5, "b": true, "s": "x", "t": "2020-01-01", "z": nil, "l": []any{1, map[string]any{"a": "b"}}}
	if got := p.Matches[0].Rule.Metadata; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOverridesOfAnyUnit(t *testing.T) {
	for _, row := range []struct {
		unit       string
		multiplier uint32
		want       string // the window; "": an error
	}{
		{"SECOND", 1, "1s"},
		{"minute", 5, "5m0s"},
		{"Hour", 1, "1h0m0s"},
		{"DAY", 1, "24h0m0s"},
		{"DAY", 2, "48h0m0s"},
		{"week", 1, "week UTC"},
		{"month", 1, "month UTC"},
		{"YEAR", 1, "year UTC"},
		{"month", 12, "8640h0m0s"},
		{"second", 31_622_400, "8784h0m0s"},
		{"second", 31_622_401, ""},
		{"year", 2, ""},
		{"second", 0, ""},
		{"second", 1<<32 - 1, ""},
		{"year", 1<<32 - 1, ""},
		{"UNKNOWN", 1, ""},
		{"", 1, ""},
	} {
		o, err := NewOverride(7, row.unit, row.multiplier)
		if (err != nil) != (row.want == "") {
			t.Errorf("%s × %d: error %v", row.unit, row.multiplier, err)
		} else if err == nil && (o.Limit().Window.String() != row.want || o.Limit().Validate() != nil || o.Limit().Requests != 7) {
			t.Errorf("%s × %d: %+v", row.unit, row.multiplier, o.Limit())
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = NewOverride(1, "MINUTE", 1) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// The server prefixes "limit: ".
func TestTheErrorOfAnOverrideNamesTheUnitsOfEnvoy(t *testing.T) {
	_, err := NewOverride(1, "UNKNOWN", 1)
	if want := `unknown unit "UNKNOWN"; known are second, minute, hour, day, month, year`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestASmallFileDoesNotTakeMuchMemory(t *testing.T) {
	long := strings.Repeat("x", 150_000)
	var aliased, regexps, parents strings.Builder
	aliased.WriteString("rules:\n- {match: {a: &v " + long + "}, limit: 1, window: 1s}\n")
	for range 8500 {
		aliased.WriteString("- {match: {a: *v}, limit: 1, window: 1s}\n")
	}
	regexps.WriteString("rules:\n")
	for i := range 6000 {
		fmt.Fprintf(&regexps, "- {match: {a: '~(x%d){1,500}'}, limit: 1, window: 1s}\n", i)
	}
	parents.WriteString("descriptors:\n- key: a\n  value: " + long + "\n  descriptors:\n")
	for i := range 8500 {
		fmt.Fprintf(&parents, "  - {key: b, value: v%d, unlimited: true}\n", i)
	}
	for _, c := range []struct{ remark, text, want string }{
		{"a long value that aliases repeat", aliased.String(), "aliases repeat too much"},
		{"regular expressions that repeat much", regexps.String(), "too large together"},
		{"a long value above many rules", parents.String(), "the paths of all rules take over 64 MiB"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		doc, _ := Parse("f.yaml", []byte(c.text))
		_, err := Compile(doc)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 100_000 {
			t.Errorf("%s: no %q in the error", c.remark, c.want)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1500<<20 {
			t.Errorf("%s: %d MiB", c.remark, used>>20)
		}
	}
}
