package xds

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/rules"
)

// everything is a resource in which each field is set somewhere.
func everything(t testing.TB) *pb.RateLimitConfig {
	t.Helper()
	metadata, err := structpb.NewStruct(map[string]any{
		"whole": 1.0, "half": 0.5, "million": 1e6, "huge": 1e300, "negative": -7, "text": "1", "yes": true, "none": nil,
		"list": []any{1, "a", []any{}, map[string]any{}}, "<<": "no merge", "": "no name", "nested": map[string]any{"a": map[string]any{"b": "c"}},
	})
	must(t, err)
	return &pb.RateLimitConfig{Name: "default/eg/http", Domain: "eg", Descriptors: []*pb.RateLimitDescriptor{
		{
			Key: "route", Value: "route", ShadowMode: true, DetailedMetric: true, QuotaMode: true, Metadata: metadata,
			RateLimit: &pb.RateLimitPolicy{
				Name: "all of it", Unit: pb.RateLimitUnit_HOUR, RequestsPerUnit: math.MaxUint32,
				Replaces: []*pb.RateLimitReplace{{Name: "one"}, {Name: "other"}},
			},
			Descriptors: []*pb.RateLimitDescriptor{{Key: "user", RateLimit: &pb.RateLimitPolicy{Unlimited: true}}},
		},
		{Key: "zero", RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_SECOND}},
	}}
}

// converted is what became of resources.
func converted(t testing.TB, configs ...*pb.RateLimitConfig) (map[string][]byte, rules.Faults) {
	t.Helper()
	var list []*anypb.Any
	for _, config := range configs {
		item, err := anypb.New(config)
		must(t, err)
		list = append(list, item)
	}
	return decode(list).convert("xds://cp:1")
}

// compiled is the set of rules of a resource.
func compiled(t testing.TB, config *pb.RateLimitConfig) *rules.Set {
	t.Helper()
	files, faults := converted(t, config)
	snap := rules.ParseSnapshot(files)
	if snap.Faults = append(faults, snap.Faults...); len(snap.Faults) > 0 {
		t.Fatal(snap.Faults)
	}
	set, err := rules.Compile(snap.Documents...)
	must(t, err)
	return set
}

// match is the rule that a descriptor meets; nil: none.
func match(set *rules.Set, domain string, entries ...rules.Entry) *rules.Rule {
	var p rules.Plan
	set.Plan(&rules.Request{Domain: domain, Descriptors: []rules.Descriptor{{Entries: entries}}}, &p)
	return p.Matches[0].Rule
}

func TestEveryFieldBecomesTheYAMLOfTheNestedSpelling(t *testing.T) {
	files, faults := converted(t, everything(t))
	const want = `domain: eg
descriptors:
  - key: route
    value: route
    rate_limit:
      name: all of it
      requests_per_unit: 4294967295
      unit: HOUR
      replaces:
        - name: one
        - name: other
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    metadata:
      "": no name
      "<<": no merge
      half: 0.5
      huge: 1e+300
      list:
        - 1
        - a
        - []
        - {}
      million: 1000000
      negative: -7
      nested:
        a:
          b: c
      none: null
      text: "1"
      whole: 1
      "yes": true
    descriptors:
      - key: user
        rate_limit:
          unlimited: true
  - key: zero
    rate_limit:
      requests_per_unit: 0
      unit: SECOND
`
	if got := string(files["xds://cp:1/default/eg/http"]); got != want || len(faults) > 0 {
		t.Errorf("%s\n%v", got, faults)
	}

	set := compiled(t, everything(t))
	route := rules.Entry{Key: "route", Value: "route"}
	rule := match(set, "eg", route)
	if rule == nil || rule.Name != "all of it" || !rule.Shadow || !rule.Quota || !rule.DetailedMetric || !slices.Equal(rule.Replaces, []string{"one", "other"}) ||
		rule.Limits[0].Requests != math.MaxUint32 || rule.Limits[0].Window.Length.Hours() != 1 {
		t.Errorf("%+v", rule)
	}
	wantMetadata := map[string]any{
		"whole": 1, "half": 0.5, "million": 1000000, "huge": 1e300, "negative": -7, "text": "1", "yes": true, "none": nil,
		"list": []any{1, "a", []any{}, map[string]any{}}, "<<": "no merge", "": "no name", "nested": map[string]any{"a": map[string]any{"b": "c"}},
	}
	if !reflect.DeepEqual(rule.Metadata, wantMetadata) {
		t.Errorf("metadata %#v", rule.Metadata)
	}
	if rule := match(set, "eg", route, rules.Entry{Key: "user", Value: "any"}); rule == nil || !rule.Unlimited {
		t.Errorf("%+v", rule)
	}
	if rule := match(set, "eg", rules.Entry{Key: "zero", Value: "x"}); rule == nil || rule.Limits[0].Requests != 0 {
		t.Errorf("%+v", rule)
	}
}

// Whoever takes newer protos learns here of fields that are not converted yet.
func TestTheProtosHaveNoFieldsThatAreNotConverted(t *testing.T) {
	for _, row := range []struct {
		message proto.Message
		fields  []string
	}{
		{&pb.RateLimitConfig{}, []string{"name", "domain", "descriptors"}},
		{&pb.RateLimitDescriptor{}, []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "quota_mode", "metadata"}},
		{&pb.RateLimitPolicy{}, []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}},
		{&pb.RateLimitReplace{}, []string{"name"}},
	} {
		fields := row.message.ProtoReflect().Descriptor().Fields()
		var got []string
		for i := range fields.Len() {
			got = append(got, string(fields.Get(i).Name()))
		}
		if !slices.Equal(got, row.fields) {
			t.Errorf("%T has %q, want %q", row.message, got, row.fields)
		}
	}
}

func TestEveryUnitIsTheWindowOfItsName(t *testing.T) {
	for number, name := range pb.RateLimitUnit_name {
		config := limit("api", "a")
		config.Descriptors[0].RateLimit.Unit = pb.RateLimitUnit(number)
		files, faults := converted(t, config)
		snap := rules.ParseSnapshot(files)
		if name == "UNKNOWN" {
			if len(faults) > 0 || len(snap.Faults) != 1 || !strings.Contains(snap.Faults.Error(), `unknown unit "UNKNOWN"; known are second`) {
				t.Errorf("%v %v", faults, snap.Faults)
			}
			continue
		}
		window := match(compiled(t, config), "api", rules.Entry{Key: "key", Value: "a"}).Limits[0].Window
		want, err := rules.NewOverride(1, strings.ToLower(name), 1)
		if must(t, err); window != want.Limit().Window {
			t.Errorf("%s is %+v", name, window)
		}
	}
	config := limit("api", "a")
	config.Descriptors[0].RateLimit.Unit = 99
	files, _ := converted(t, config)
	if faults := rules.ParseSnapshot(files).Faults; !strings.Contains(faults.Error(), `unknown unit "99"`) {
		t.Errorf("a unit of later protos: %v", faults)
	}
}

func TestWhatFilesMayNotSayResourcesMayNotEither(t *testing.T) {
	deep := func(levels int) *pb.RateLimitConfig {
		config := limit("api", "a")
		for range levels - 1 {
			config.Descriptors = []*pb.RateLimitDescriptor{{Key: "k", Value: "v", Descriptors: config.Descriptors}}
		}
		return config
	}
	withMetadata := func(value any) *pb.RateLimitConfig {
		config := limit("api", "a")
		v, ok := value.(*structpb.Value)
		if !ok {
			var err error
			v, err = structpb.NewValue(value)
			must(t, err)
		}
		config.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"m": v}}
		return config
	}
	nested := func(levels int) any {
		var value any = "x"
		for i := range levels {
			if i%2 == 0 {
				value = []any{value}
			} else {
				value = map[string]any{"a": value}
			}
		}
		return value
	}
	policy := func(p *pb.RateLimitPolicy) *pb.RateLimitConfig {
		config := limit("api", "a")
		config.Descriptors[0].RateLimit = p
		return config
	}
	for _, row := range []struct {
		remark string
		config *pb.RateLimitConfig
		want   string // "": it is fine
	}{
		{"nothing but a domain", &pb.RateLimitConfig{Domain: "api"}, ""},
		{"no domain", limit("", "a"), "xds://cp:1/: the resource has no domain"},
		{"no domain but a name", &pb.RateLimitConfig{Name: "a\nb"}, `xds://cp:1/a\nb: the resource has no domain`},
		{"no key", &pb.RateLimitConfig{Domain: "api", Descriptors: []*pb.RateLimitDescriptor{{}}}, "xds://cp:1/api:3:"},
		{"a policy that says nothing", policy(&pb.RateLimitPolicy{}), `unknown unit "UNKNOWN"`},
		{"no policy", policy(nil), ""},
		{"unlimited", policy(&pb.RateLimitPolicy{Unlimited: true}), ""},
		{"unlimited with a unit", policy(&pb.RateLimitPolicy{Unlimited: true, Unit: pb.RateLimitUnit_DAY}), "unit beside unlimited"},
		{"unlimited with a number, which envoyproxy/ratelimit takes", policy(&pb.RateLimitPolicy{Unlimited: true, RequestsPerUnit: 3}), ""},
		{"it replaces itself", policy(&pb.RateLimitPolicy{Unlimited: true, Name: "x", Replaces: []*pb.RateLimitReplace{{Name: "x"}}}), "replaces itself"},
		{"it replaces no name", policy(&pb.RateLimitPolicy{Unlimited: true, Replaces: []*pb.RateLimitReplace{{}}}), "empty name"},
		{"a value that is no pattern", limit("api", "~["), "missing closing ]"},
		{"64 levels", deep(64), ""},
		{"65 levels", deep(65), "deeper than 64 levels"},
		{"more levels than would fit as YAML", deep(3000), "descriptors are deeper than 64 levels"},
		{"metadata of 22 levels", withMetadata(nested(22)), ""},
		{"metadata of 24 levels", withMetadata(nested(24)), "deeper than 24 levels"},
		{"metadata of 64 levels", withMetadata(nested(64)), "deeper than 64 levels"},
		{"metadata of 3000 levels", withMetadata(nested(3000)), "metadata is deeper than 64 levels"},
		{"no number", withMetadata(math.NaN()), "no place in JSON"},
		{"endless", withMetadata(math.Inf(-1)), "no place in JSON"},
		{"a value of no kind", withMetadata(&structpb.Value{}), ""},
	} {
		files, faults := converted(t, row.config)
		faults = append(faults, rules.ParseSnapshot(files).Faults...)
		if (len(faults) == 0) != (row.want == "") || !strings.Contains(faults.Error(), row.want) {
			t.Errorf("%s: %.300v, want %q", row.remark, faults.Error(), row.want)
		}
	}
}

func TestNumbersOfMetadataStayWhatTheyAre(t *testing.T) {
	for _, n := range []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e6, 1e15, 1 << 53, 1<<53 + 2, -(1 << 53), 1e21, 1.5e-9, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		config := limit("api", "a")
		config.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(n)}}
		got := match(compiled(t, config), "api", rules.Entry{Key: "key", Value: "a"}).Metadata["n"]
		back, err := structpb.NewValue(got)
		if must(t, err); back.GetNumberValue() != n {
			t.Errorf("%v became %#v", n, got)
		}
	}
}

func TestTwoResourcesOfOneNameAreToldApart(t *testing.T) {
	a, b, c := limit("one", "a"), limit("two", "b"), limit("three", "c")
	a.Name, b.Name, c.Name = "same", "same", "same#2"
	names := []string{"xds://cp:1/same", "xds://cp:1/same#2", "xds://cp:1/same#2#2"}
	first, _ := converted(t, a, b, c)
	for range 10 { // servers send them in any order
		configs := []*pb.RateLimitConfig{a, b, c}
		rand.Shuffle(3, func(i, j int) { configs[i], configs[j] = configs[j], configs[i] })
		files, faults := converted(t, configs...)
		if len(files) != 3 || len(faults) > 0 || !reflect.DeepEqual(files, first) {
			t.Fatalf("%q, %v", files, faults)
		}
		for _, name := range names {
			if files[name] == nil {
				t.Fatalf("no %s in %q", name, files)
			}
		}
	}
}

func TestTooMuchYAMLIsRefused(t *testing.T) {
	config := limit("api", "a")
	config.Descriptors[0].Value = strings.Repeat("x", 1<<20)
	texts := &texts{left: 1 << 20}
	texts.add(config)
	texts.add(limit("web", "b"))
	if got := texts.list[0]; got.yaml != nil || len(got.problems) != 1 || !strings.Contains(got.problems[0], "over 128 MiB as YAML") {
		t.Errorf("%q", got.problems)
	}
	if got := texts.list[1]; got.yaml == nil {
		t.Errorf("%q", got.problems)
	}
}

func TestAnyTextSurvives(t *testing.T) {
	hard := []string{
		" ", "\n", " a", "a ", "\na", "a\n", "\n\n", "a\n b\n", " \n a", "\ta", "a\tb", "\r", "a\r\nb", "\x00", "\x01\x02", "\x7f", "\u0080\u009f", "\u0085", "\u2028a\u2029",
		"\ufeff", "\ufffe", "\U0001f600", "null", "~", "true", "no", "1", "1.0", "0x1f", "1_000", "1:30", ".inf", "2001-01-01", "<<", "=", "-", "- a", "a: b", "a #b", "#", "'", "\"", "\\",
		"&a", "!b", "|", ">", "%", "@", "`", "{", "}", "[", "]", ",", "?", ":", "---", "...", "a\n---\nb", "a\n...\nb", strings.Repeat("long ", 100), "\n\t\x00 \u2028",
	}
	runes := []rune(" \n\r\t\x00\x7f\u0085\u2028\ufeffa1é😀#:-'\"\\|>&*!%@`{}[],?~<=.")
	for range 3000 {
		text := make([]rune, rand.IntN(8))
		for i := range text {
			text[i] = runes[rand.IntN(len(runes))]
		}
		hard = append(hard, string(text))
	}
	for _, text := range hard {
		config := &pb.RateLimitConfig{Domain: "d" + text, Descriptors: []*pb.RateLimitDescriptor{{
			Key: "k", Value: "v",
			RateLimit: &pb.RateLimitPolicy{Name: text, Unit: pb.RateLimitUnit_DAY, Replaces: []*pb.RateLimitReplace{{Name: "r" + text}}},
			Metadata:  &structpb.Struct{Fields: map[string]*structpb.Value{text: structpb.NewStringValue(text)}},
			Descriptors: []*pb.RateLimitDescriptor{
				{Key: text + "k", Value: strings.ReplaceAll("v"+text, "*", ""), RateLimit: &pb.RateLimitPolicy{Unlimited: true}},
			},
		}}}
		set := compiled(t, config)
		kv := rules.Entry{Key: "k", Value: "v"}
		rule := match(set, config.Domain, kv)
		if rule == nil || rule.Name != text || rule.Replaces[0] != "r"+text || !reflect.DeepEqual(rule.Metadata, map[string]any{text: text}) {
			t.Fatalf("%q became %+v", text, rule)
		}
		inner := config.Descriptors[0].Descriptors[0]
		rule = match(set, config.Domain, kv, rules.Entry{Key: inner.Key, Value: inner.Value})
		if rule == nil || !rule.Unlimited {
			t.Fatalf("%q became %+v", text, rule)
		}
	}
}

// FuzzConvert holds that whatever a server sends becomes YAML that says the same,
// or a fault, and never a panic.
func FuzzConvert(f *testing.F) {
	for _, config := range []*pb.RateLimitConfig{everything(f), limit("api", "a\nb"), faulty("x"), {}} {
		data, err := proto.Marshal(config)
		must(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set := decode([]*anypb.Any{{TypeUrl: typeURL, Value: data}})
		files, faults := set.convert("xds://cp:1")
		if len(files)+len(faults) == 0 {
			t.Fatal("nothing became of it")
		}
		for name, text := range files {
			var doc document
			if err := yaml.Unmarshal(text, &doc); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			want := set.configs[0]
			c := &converter{}
			same := document{Domain: str(want.GetDomain()), Descriptors: c.descriptors(want.GetDescriptors(), 0)}
			if got, wanted := fmt.Sprintf("%#v", plain(doc)), fmt.Sprintf("%#v", plain(same)); got != wanted {
				t.Fatalf("%s\nbecame %s\nby\n%s", wanted, got, text)
			}
			snap := rules.ParseSnapshot(map[string][]byte{name: text})
			if _, err := rules.Compile(snap.Documents...); err == nil && len(snap.Faults) > 0 {
				t.Fatalf("it compiles with %v", snap.Faults)
			}
		}
	})
}

// plain is a document as values that print alike if they are alike.
func plain(doc document) any {
	text, err := yaml.Marshal(doc)
	if err != nil {
		return err
	}
	var value any
	_ = yaml.Unmarshal(text, &value)
	return []any{doc.Domain, len(doc.Descriptors), value}
}
