package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/simulate"
)

const shadowRules = `
rules:
  - {name: trial, match: {user: "*"}, limit: 2, window: 1h, shadow_mode: true}
  - {name: strict, match: {path: "*"}, limit: 1, window: 1h}
  - {name: unmet, match: {other: "*"}, limit: 1, window: 1h, shadow_mode: true}
`

// What weir shadow tells is what the server's rules said, rule by rule.
func TestShadowTellsWhatRulesInShadowWouldHaveRefused(t *testing.T) {
	s := serving(t, "--rules", rulesFile(t, shadowRules))
	if got := s.codes(t, 5, "default", "user=alice"); got != "AAAAA" {
		t.Fatalf("a rule in shadow refused: %s", got)
	}
	s.codes(t, 3, "default", "user=bob")
	s.codes(t, 3, "default", "path=/a")
	r := weir(t, "shadow", "--addr", s.grpcAddr, "--json", "-")
	r.want(t, exitDone)
	var report simulate.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	rules := report.Sets[0].Rules
	if len(rules) != 2 || rules[0].Rule != "trial" || rules[1].Rule != "unmet" {
		t.Fatalf("rules %+v", rules)
	}
	trial := rules[0]
	if trial.Asked != 8 || trial.Refused != 4 || trial.Share != 0.5 || trial.Since == nil || trial.Mode != "shadow" {
		t.Errorf("trial %+v", trial)
	}
	if rules[1].Asked != 0 || rules[1].Since != nil {
		t.Errorf("unmet %+v", rules[1])
	}
	want := []simulate.CounterReport{{Name: "user=alice", Refused: 3, AtMost: 3}, {Name: "user=bob", Refused: 1, AtMost: 1}}
	if len(trial.MostRefused) != 2 || trial.MostRefused[0] != want[0] || trial.MostRefused[1] != want[1] {
		t.Errorf("most refused %+v", trial.MostRefused)
	}
	if top := weir(t, "top", "--addr", s.grpcAddr); strings.Contains(top.stdout, "trial") {
		t.Errorf("weir top has what nobody refused:\n%s", top.stdout)
	}
	page := filepath.Join(t.TempDir(), "shadow.html")
	weir(t, "shadow", "--addr", s.grpcAddr, "--html", page).want(t, exitDone, "trial", "50.00%", "user=alice", "not met")
}

func TestAServerInShadowTellsOfAllItsRules(t *testing.T) {
	s := serving(t, "--shadow", "--rules", rulesFile(t, shadowRules))
	s.codes(t, 3, "default", "path=/a")
	weir(t, "shadow", "--addr", s.grpcAddr).want(t, exitDone, "the whole server is in shadow", "strict", "path=/a")
}

func TestShadowSaysWhatIsWrong(t *testing.T) {
	quiet := serving(t, "--metrics", "off", "--rules", rulesFile(t, shadowRules))
	none := serving(t, "--rules", rulesFile(t, "rules: [{match: {a: b}, limit: 1, window: 1s}]"))
	for _, x := range []struct {
		remark string
		args   []string
		code   int
		text   string
	}{
		{"nothing is counted", []string{"--addr", quiet.grpcAddr}, exitFailed, "--metrics on"},
		{"no rule is in shadow", []string{"--addr", none.grpcAddr}, exitDone, "no rule is in shadow"},
		{"too many", []string{"-n", "101"}, exitWrongUse, "1 to 100"},
		{"an argument", []string{"x"}, exitWrongUse, "unexpected argument"},
		{"both to one file", []string{"--json", "-", "--html", "-"}, exitWrongUse, "both go to"},
	} {
		t.Run(x.remark, func(t *testing.T) { weir(t, append([]string{"shadow"}, x.args...)...).want(t, x.code, x.text) })
	}
}
