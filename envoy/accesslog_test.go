package envoy_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What a rule in shadow mode would have done, and who refused, can be read in
// Envoy's access log; and whose rule it was, by the rule's own metadata.
func TestTheAccessLogTellsVerdictsAndShadowVerdicts(t *testing.T) {
	t.Parallel()
	const path, status, flags, rule, limit, remaining, refusedBy, shadow, owner = "path", "status", "flags", "rule", "limit", "remaining", "refused_by", "shadow", "owner"
	acme := []string{"X-Tenant", "acme"}
	for _, c := range []struct {
		flags string
		code  int              // of the fourth request
		want  []map[string]any // of the requests; what is not named is null
	}{
		{"--dynamic-metadata weir", 429, []map[string]any{
			{path: "/1", status: 200., flags: "-", rule: "address", limit: 3., remaining: 2., owner: "edge-team"},
			{path: "/2", status: 200., flags: "-", rule: "address", limit: 3., remaining: 1., owner: "edge-team", shadow: []any{"tenant-trial"}},
			{path: "/3", status: 200., flags: "-", rule: "address", limit: 3., remaining: 0., owner: "edge-team"},
			{path: "/4", status: 429., rule: "address", limit: 3., remaining: 0., refusedBy: []any{"address"}, flags: "RL"},
		}},
		{"--dynamic-metadata off", 429, []map[string]any{
			{path: "/1", status: 200., flags: "-", owner: "edge-team"},
			{path: "/2", status: 200., flags: "-", owner: "edge-team", shadow: []any{"tenant-trial"}},
			{path: "/3", status: 200., flags: "-", owner: "edge-team"},
			{path: "/4", status: 429., flags: "RL"},
		}},
		{"--shadow", 200, []map[string]any{ // the whole server
			{path: "/1", status: 200., flags: "-", owner: "edge-team"},
			{path: "/2", status: 200., flags: "-", owner: "edge-team", shadow: []any{"tenant-trial"}},
			{path: "/3", status: 200., flags: "-", owner: "edge-team"},
			{path: "/4", status: 200., flags: "-", shadow: []any{"address"}},
		}},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			r := startRecipe(t, "access-log", recipeOptions{weirArgs: strings.Fields(c.flags)})
			r.play(t, "HTTP/1.1", []step{
				{remark: "the first", path: "/1", header: acme, code: 200, want: left("3", "2")},
				{remark: "the rule on trial would refuse", path: "/2", header: acme, code: 200, want: left("3", "1")},
				{remark: "without it", path: "/3", code: 200, want: left("3", "0")},
				{remark: "over", path: "/4", code: c.code, want: over("3")},
			})
			logged := map[any]map[string]any{} // by path: a request is logged at its end, maybe after the next one
			for _, line := range r.accessLog(t, len(c.want)) {
				var got map[string]any
				if err := json.Unmarshal([]byte(line), &got); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				logged[got[path]] = got
			}
			for _, want := range c.want {
				got := logged[want[path]]
				for _, key := range []string{path, status, rule, limit, remaining, refusedBy, shadow, owner, flags} {
					if _, told := got[key]; !told {
						t.Errorf("the log of %s lacks %s: %v", want[path], key, got)
					}
					if !reflect.DeepEqual(got[key], want[key]) {
						t.Errorf("%s is %v, want %v, in %v", key, got[key], want[key], got)
					}
				}
			}
		})
	}
}

// accessLog waits for so many lines.
func (r *recipe) accessLog(t *testing.T, n int) (lines []string) {
	t.Helper()
	eventually(t, "the requests are in the access log", func() bool {
		lines = nil
		for line := range strings.Lines(r.envoy.Output()) {
			if strings.HasPrefix(line, "{") && strings.HasSuffix(line, "\n") {
				lines = append(lines, line)
			}
		}
		return len(lines) >= n
	})
	return lines
}

func TestTheAccessLogTellsARefusalForWantOfAnAnswer(t *testing.T) {
	t.Parallel()
	r := startRecipe(t, "access-log", recipeOptions{replace: map[string]string{"domain: log\n": "domain: log\n                      failure_mode_deny: true\n"}})
	r.weir.Stop(t)
	r.send(t, "HTTP/1.1", step{path: "/"}).want(t, 500, nil)
	if line := r.accessLog(t, 1)[0]; !strings.Contains(line, `"flags":"RLSE"`) {
		t.Error(line)
	}
}
