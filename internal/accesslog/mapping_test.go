package accesslog_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/internal/accesslog"
	"weir/rules"
)

func TestAMappingMakesDescriptors(t *testing.T) {
	t.Parallel()
	const line = `{"time":1769860800,"ip":"192.0.2.7","url":"/users/42/posts?q=1","method":"POST","cost":2.5,"h":{"x-tenant":"acme"}}`
	for _, x := range []struct{ remark, mapping, want string }{
		{"a field by its name", "descriptors: [[ip]]", "ip=192.0.2.7"},
		{"a field by what it usually is", "descriptors: [[remote_address, path]]", "remote_address=192.0.2.7, path=/users/42/posts"},
		{"a key of another name", "descriptors: [[{key: endpoint, field: path}]]", "endpoint=/users/42/posts"},
		{"the query and the whole target", "descriptors: [[query, target]]", "query=q=1, target=/users/42/posts?q=1"},
		{"a field within another", "descriptors: [[{key: tenant, field: h.x-tenant}]]", "tenant=acme"},
		{"a template", `descriptors: [[{key: e, field: path, templates: ["/users/{id}", "/users/{id}/posts", "/{rest...}"]}]]`, "e=/users/{id}/posts"},
		{"a template for all that follows", `descriptors: [[{key: e, field: path, templates: ["/users/{rest...}"]}]]`, "e=/users/{rest...}"},
		{"a template that does not fit", `descriptors: [[{key: e, field: path, templates: ["/users", "/users/{id}", "/users/{id}/posts/{id}"]}]]`, "e=/users/42/posts"},
		{"a regular expression", `descriptors: [[{key: e, field: path, regexp: '/\d+', replace: "/{id}"}]]`, "e=/users/{id}/posts"},
		{"a fixed value", "descriptors: [[{key: generic_key, value: all}]]", "generic_key=all"},
		{"a field that is not there leaves the descriptor out", "descriptors: [[ip, nobody], [method]]", "method=POST"},
		{"unless something stands for it", "descriptors: [[{key: nobody, default: none}]]", "nobody=none"},
		{"a descriptor for some lines", "descriptors: [{entries: [ip], when: {method: [GET, POST]}}, {entries: [method], unless: {path: /users/*}}]", "ip=192.0.2.7"},
		{"a cost, rounded up", "hits: cost\ndescriptors: [[ip]]", "3 | ip=192.0.2.7"},
		{"no request", "when: {method: GET}\ndescriptors: [[ip]]", ""},
		{"no request by an expression", "unless: {path: '~/users/\\d+/.*'}\ndescriptors: [[ip]]", ""},
	} {
		t.Run(x.remark, func(t *testing.T) {
			got, stats := readAll(t, accesslog.Options{Mapping: mapping(t, x.mapping)}, line)
			want := []string{"12:00:00 | " + x.want}
			if x.want == "" {
				want = nil
			}
			if !slices.Equal(got, want) || stats.LeftOut != uint64(1-len(want)) {
				t.Errorf("read %q, want %q; %d left out", got, want, stats.LeftOut)
			}
		})
	}
}

func TestAMappingThatIsWrongSaysWhere(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ remark, mapping, want string }{
		{"nothing", "", "m.yaml:1:1: the mapping is empty"},
		{"no YAML", "a: [", "m.yaml:1:1: not YAML"},
		{"two documents", "descriptors: [[ip]]\n---\na: b", "a second document"},
		{"no descriptors", "domain: x", "m.yaml:1:1: the mapping needs descriptors"},
		{"a slip", "descriptors: [[ip]]\nunles: {a: b}", `m.yaml:2:1: unknown field "unles"; the mapping has domain`},
		{"twice", "descriptors: [[ip]]\ndescriptors: [[ip]]", "m.yaml:2:1"},
		{"no list", "descriptors: ip", "m.yaml:1:14: descriptors is a list"},
		{"an entry without a key", "descriptors:\n  - - {field: ip}", "m.yaml:2:7: an entry needs a key"},
		{"replace alone", "descriptors: [[{key: a, replace: b}]]", "replace without regexp"},
		{"a value and a field", "descriptors: [[{key: a, value: b, field: c}]]", "field beside value"},
		{"no regular expression", "descriptors: [[{key: a, regexp: '(', replace: b}]]", "missing closing"},
		{"no pattern", "when: {a: '~('}\ndescriptors: [[ip]]", "m.yaml:1:11: "},
		{"a template within a part", `descriptors: [[{key: a, templates: "/a{id}"}]]`, "braces within a part"},
		{"a template that goes on", `descriptors: [[{key: a, templates: "/{a...}/b"}]]`, "goes on after"},
		{"an empty domain", "domain: ''\ndescriptors: [[ip]]", "m.yaml:1:9: domain is empty"},
		{"a list that contains itself", "descriptors: &a [*a]", "m.yaml:1:"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			_, err := accesslog.ParseMapping("m.yaml", []byte(x.mapping))
			if faults := (rules.Faults)(nil); !errors.As(err, &faults) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

func TestAFieldThatAFormatDoesNotHaveIsAFaultOfTheMapping(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ remark, log, want string }{
		{"combined", combinedLine, `mapping.yaml:1:16: unknown field "hosts"; the format combined has remote_address, user`},
		{"envoy", envoyLine, `mapping.yaml:1:16: unknown field "hosts"; did you mean "host"? the format envoy has`},
		{"CSV", "time,ghosts\n", `mapping.yaml:1:16: unknown field "hosts"; did you mean "ghosts"? the header has time, ghosts`},
	} {
		t.Run(x.remark, func(t *testing.T) {
			_, err := accesslog.Open(accesslog.Options{Files: []string{"-"}, Stdin: strings.NewReader(x.log), Mapping: mapping(t, "descriptors: [[hosts]]")})
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
	_, stats := readAll(t, accesslog.Options{Mapping: mapping(t, "descriptors: [[hosts]]")}, jsonLine(0, "192.0.2.1"))
	if len(stats.Unmet) != 1 || !strings.HasPrefix(stats.Unmet[0], `mapping.yaml:1:16: no line has the field "hosts"`) {
		t.Errorf("of JSON: %q", stats.Unmet)
	}
}

// FuzzLines holds that no line makes the reader stop or panic, and that JSON that is
// taken is JSON.
func FuzzLines(f *testing.F) {
	for _, line := range []string{combinedLine, envoyLine, jsonLine(0, "192.0.2.1"), `{"a":{"b":[1,{"c":"\u0041"}]},"time":1}`, "a,b\n1,2", `"a""b",c`} {
		f.Add(line)
	}
	m, err := accesslog.ParseMapping("m.yaml", []byte("hits: cost\ndescriptors: [[remote_address, path], [{key: e, field: path, templates: '/{a}/{b...}'}]]"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, format := range accesslog.Formats() {
			log, err := accesslog.Open(accesslog.Options{Files: []string{"-"}, Stdin: strings.NewReader(text), Mapping: m, Format: format})
			for err == nil {
				_, err = log.Next()
			}
		}
	})
}

// The mappings that people read are sound.
func TestTheMappingsOfThePageAndTheExampleAreSound(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```text mapping\n")
	text, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("the page has no mapping")
	}
	mapping(t, text)
	if _, err := accesslog.ReadMapping("../../examples/simulate/mapping.yaml"); err != nil {
		t.Error(err)
	}
}
