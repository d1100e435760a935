package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fiveFaults is a file with a fault on each line that says which.
const fiveFaults = `domain: shop
rules:
  - {endpoint: /a, limt: 5, window: 60s}
  - {endpoint: /b, limit: -1, window: 60s}
  - {endpoint: /c, limit: 5, window: 60}
  - {endpoint: /d, limit: 5, window: 60s, algorithm: tokenbucket}
  - {endpoint: /e, limit: 5, window: 60s, burst: 3}
`

func TestCheckNamesEveryFaultWithItsPlace(t *testing.T) {
	path := rulesFile(t, fiveFaults)
	r := weir(t, "check", path)
	r.want(t, exitFailed, "weir: 5 faults in the rules", `"limt"; did you mean "limit"?`)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d faults:\n%s", len(lines), r.stdout)
	}
	for i, text := range []string{"limt", "limit", "window", "tokenbucket", "burst"} {
		place := regexp.MustCompile("^" + regexp.QuoteMeta(path) + fmt.Sprintf(`:%d:\d+: .*`, i+3) + text)
		if !place.MatchString(lines[i]) {
			t.Errorf("fault %d: %s, want it on line %d, about %s", i+1, lines[i], i+3, text)
		}
	}
}

func TestCheckReadsFilesAndFoldersAsOneRuleSet(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules/a.yaml", "rules: [{endpoint: /a, limit: 1, window: 1s}]")
	write("rules/below/b.yml", "domain: other\nrules: [{endpoint: /a, limit: 1, window: 1s}]")
	write("rules/.hidden.yaml", "not rules")
	write("rules/notes.txt", "not rules")
	extra := write("extra.yaml", "rules: [{endpoint: /b, limit: 1, window: 1s}]")
	folder := filepath.Join(dir, "rules")
	weir(t, "check", folder).want(t, exitDone, "2 rules in 2 domains: no faults")
	weir(t, "check", folder, extra).want(t, exitDone, "3 rules in 2 domains: no faults")
	weir(t, "check", extra, extra).want(t, exitDone, "1 rule in 1 domain: no faults")

	twice := write("twice.yaml", "rules: [{endpoint: /b, limit: 2, window: 1s}]")
	r := weir(t, "check", extra, twice)
	r.want(t, exitFailed, "weir: 1 fault in the rules", extra+":1:", twice+":1:")

	missing := filepath.Join(dir, "missing.yaml")
	r = weir(t, "check", missing, write("bad.yaml", "rules: {}"), folder)
	r.want(t, exitFailed, missing+": no such file", "bad.yaml:1:8", "1 fault in the rules")
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	weir(t, "check", filepath.Join(dir, "empty")).want(t, exitFailed, "no rule files")
}

func TestCheckWarnsOfWhatIsHardlyMeant(t *testing.T) {
	path := rulesFile(t, `
rules:
  - {match: {path: "/a*", user: "*"}, limit: 5, window: 1s}
  - {match: {path: /ab}, limit: 5, window: 1s}
`)
	r := weir(t, "check", path)
	r.want(t, exitDone, path+":4:5: ", "hides the rule", "(warning)", "2 rules in 1 domain: no faults")
}

func TestTheSampleHasNoFaultsAndAllAlgorithms(t *testing.T) {
	weir(t, "check", "sample.yaml").want(t, exitDone, "6 rules in 1 domain: no faults")
	var got []string
	for _, x := range []string{
		"endpoint=/api/posts user=a", "endpoint=/api/signup remote_address=192.0.2.1", "endpoint=/api/rewards device=a",
		"endpoint=/api/tweets user=a", "system=all", "endpoint=/api/orders",
	} {
		r := weir(t, append([]string{"explain", "--rules", "sample.yaml", "default"}, strings.Fields(x)...)...)
		r.want(t, exitDone, "matches")
		if m := regexp.MustCompile(`limit (\d+ per \S+), (\w+)`).FindStringSubmatch(r.stdout); m != nil {
			got = append(got, m[1]+" "+m[2])
		}
	}
	want := []string{"2 per 1s token_bucket", "10 per 24h fixed_window", "5 per 168h sliding_window_log",
		"300 per 3h sliding_window_counter", "1000 per 1s token_bucket", "10 per 1s leaky_bucket"}
	if !slices.Equal(got, want) {
		t.Errorf("the sample limits %q, want %q", got, want)
	}
}
