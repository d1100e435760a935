package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/internal/testenv"
)

// shop is a folder of rules, and a Consul to push them to.
type shop struct {
	consul *testenv.Consul
	url    string
	dir    string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	c := testenv.StartConsul(t, testenv.ConsulOptions{})
	s := &shop{consul: c, url: "consul://" + c.Addr + "/weir/rules", dir: t.TempDir()}
	s.write(t, "api.yaml", "domain: api\nrules:\n  - {endpoint: /posts, limit: 5, window: 60s}\n")
	s.write(t, "team/login.yaml", "domain: login\nrules:\n  - {match: {remote_address: \"*\"}, limit: 2, window: 1s}\n")
	return s
}

func (s *shop) write(t *testing.T, name, text string) {
	t.Helper()
	writeIn(t, s.dir, name, text)
}

func writeIn(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rules runs weir rules, with an owner that does not change.
func (s *shop) rules(t *testing.T, args ...string) result {
	t.Helper()
	args = append([]string{"rules", args[0], "--rules", s.url}, args[1:]...)
	if args[1] == "push" || args[1] == "rollback" {
		args = append(args, "--by", "alice@example")
	}
	return weir(t, args...)
}

// shown is the output without what differs from run to run.
func (s *shop) shown(r result) string {
	text := strings.ReplaceAll(strings.ReplaceAll(r.stdout, s.url, "URL"), s.dir, "DIR")
	return regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "TIME")
}

func (s *shop) wantShown(t *testing.T, r result, code int, want string) {
	t.Helper()
	if got := s.shown(r); r.code != code || got != want {
		t.Errorf("exit code %d, want %d; stderr %s; it shows\n%s\nwant\n%s", r.code, code, r.stderr, got, want)
	}
}

func TestRulesArePushedComparedLoggedAndRolledBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.wantShown(t, s.rules(t, "log"), 0, "URL has no history: no rules yet\n")
	s.wantShown(t, s.rules(t, "push", s.dir, "-m", "first limits"), 0, `URL: no rules yet
documents:
  + api.yaml
  + team/login.yaml
rules:
  + domain api: endpoint=/posts  (DIR/api.yaml:3:5)
      + limit 5 per 1m, fixed_window
  + domain login: remote_address=*  (DIR/team/login.yaml:3:5)
      + limit 2 per 1s, fixed_window
      + mask of remote_address: {ipv4: 32, ipv6: 64}
pushed version 1: 2 rules added, 0 changed, 0 removed
`)
	s.write(t, "api.yaml", "domain: api\nrules:\n  - {endpoint: /posts, limit: 10, window: 60s}\n")
	const changed = `documents:
  ~ api.yaml
rules:
  ~ domain api: endpoint=/posts  (DIR/api.yaml:3:5)
      - limit 5 per 1m, fixed_window
      + limit 10 per 1m, fixed_window
`
	s.wantShown(t, s.rules(t, "diff", s.dir), 0, changed+"0 rules added, 1 changed, 0 removed\n")
	s.wantShown(t, s.rules(t, "diff", s.dir, "--exit-code"), 1, changed+"0 rules added, 1 changed, 0 removed\n")
	s.wantShown(t, s.rules(t, "push", s.dir, "--dry-run"), 0, "URL: version 1\n"+changed+"not pushed, for it is a dry run: 0 rules added, 1 changed, 0 removed\n")
	s.wantShown(t, s.rules(t, "push", s.dir, "-m", "double"), 0, "URL: version 1\n"+changed+"pushed version 2: 0 rules added, 1 changed, 0 removed\n")
	s.wantShown(t, s.rules(t, "push", s.dir), 0, "URL: version 2\nno difference: nothing to push\n")
	s.wantShown(t, s.rules(t, "diff", s.dir, "--exit-code"), 0, "no difference\n")

	s.write(t, "api.yaml", "# a comment more\ndomain: api\nrules:\n  - {endpoint: /posts, limit: 10, window: 1m}\n")
	s.rules(t, "diff", s.dir).want(t, 0, "  ~ api.yaml\nrules: no difference (comments, spelling or order of files)\n")

	s.rules(t, "rollback", "--dry-run").want(t, 0, "not pushed, for it is a dry run")
	s.rules(t, "rollback").want(t, 0, "      - limit 10 per 1m, fixed_window\n      + limit 5 per 1m, fixed_window\npushed version 3")
	s.wantShown(t, s.rules(t, "log"), 0, `VERSION  WHEN                  WHO            DOCUMENTS  DIGEST        MESSAGE
3 *      TIME  alice@example  2          e77ec20c9691  rollback to version 1: first limits
2        TIME  alice@example  2          b2f83137cc05  double
1        TIME  alice@example  2          e77ec20c9691  first limits
`)
	s.rules(t, "rollback", "2", "-m", "after all").want(t, 0, "pushed version 4")
	s.consul.DeleteTree(t, "weir/rules/")
	s.rules(t, "rollback", "--dry-run").want(t, 0, "no rules yet", "2 rules added")
	s.rules(t, "rollback").want(t, 0, "pushed version 5")
	s.rules(t, "rollback", "9").want(t, 1, "version 9: it is not in the history")
	s.rules(t, "diff", "--from", "1", "--to", "4").want(t, 0, "(version 4: api.yaml:3:5)", "1 changed")
	s.rules(t, "diff", "--from", "4").want(t, 0, "no difference")
	s.rules(t, "log", "-n", "1").want(t, 0, "5 *", "rollback to version 4: after all")
	if value, _ := s.consul.Get(t, "weir/rules/api.yaml"); !strings.Contains(value, "limit: 10") {
		t.Errorf("Consul has %q", value)
	}
}

func TestAPushWithABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.rules(t, "push", s.dir).want(t, 0)
	s.write(t, "api.yaml", "rules: []\n")
	s.write(t, "bad.yaml", "rules:\n  - {endpoint: /x, limit: 5, windw: 60s}\n  - {endpoint: /x, limit: many}\n")
	for _, command := range [][]string{{"push", s.dir}, {"push", s.dir, "--dry-run"}, {"push", filepath.Join(s.dir, "bad.yaml")}, {"diff", s.dir}} {
		s.rules(t, command...).want(t, 1, s.dir+"/bad.yaml:2:30: unknown field \"windw\"", s.dir+"/bad.yaml:3:27: limit is a whole number")
	}
	if value, _ := s.consul.Get(t, "weir/rules/api.yaml"); !strings.Contains(value, "limit: 5") {
		t.Errorf("Consul has %q", value)
	}
	s.rules(t, "log").want(t, 0, "1 *")
}

func TestASingleFileIsAddedToWhatIsThere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.rules(t, "push", s.dir).want(t, 0)
	more := testenv.WriteFile(t, "more.yaml", "rules: [{endpoint: /more, limit: 1, window: 1s}]")
	s.rules(t, "push", more).want(t, 0, "1 rule added, 0 changed, 0 removed")
	twice := testenv.WriteFile(t, "twice.yaml", "domain: api\nrules: [{endpoint: /posts, limit: 1, window: 1s}]")
	s.rules(t, "push", twice).want(t, 1, twice+":2:9", "the path endpoint=/posts has a rule already, at ", s.url+"/api.yaml:3:5")
	s.rules(t, "push", s.dir).want(t, 0, "- more.yaml", "0 rules added, 0 changed, 1 removed")
	s.rules(t, "push", more, "--name", "team/more.yaml").want(t, 0, "+ team/more.yaml")
	s.rules(t, "push", s.dir, "--name", "x").want(t, 2, "--name is for a single file")
	other := t.TempDir()
	writeIn(t, other, "api.yaml", "rules: []")
	s.rules(t, "push", s.dir, other).want(t, 1, "would both be api.yaml")
}

func TestAPulledFolderIsNotPushedOverWhatCameAfter(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.rules(t, "push", s.dir).want(t, 0)
	alice, bob := filepath.Join(t.TempDir(), "alice"), filepath.Join(t.TempDir(), "bob")
	s.rules(t, "pull", alice).want(t, 0, "+ api.yaml", "+ team/login.yaml", s.url+": version 1 is in "+alice)
	s.rules(t, "pull", bob).want(t, 0)
	for i, dir := range []string{alice, bob} {
		writeIn(t, dir, "api.yaml", "domain: api\nrules:\n  - {endpoint: /posts, limit: "+[]string{"7", "8"}[i]+", window: 60s}\n")
	}
	s.rules(t, "push", alice).want(t, 0, "pushed version 2")
	s.rules(t, "push", bob).want(t, 1, "has version 2, and "+bob+" was pulled when it had version 1", "nothing was pushed")
	s.rules(t, "push", filepath.Join(bob, "api.yaml")).want(t, 1, "was pulled when it had version 1")
	s.rules(t, "pull", bob).want(t, 1, "has rule files that were changed here")
	writeIn(t, alice, "api.yaml", "domain: api\nrules: []\n")
	s.rules(t, "push", alice).want(t, 0, "pushed version 3") // its own push is no surprise
	s.rules(t, "pull", alice).want(t, 0)
	s.consul.Put(t, "weir/rules/hot.yaml", "rules: [{endpoint: /hot, limit: 1, window: 1s}]")
	s.rules(t, "push", alice).want(t, 1, "has version 3, changed since by other means")
	s.rules(t, "push", bob, "--base", "1", "--force").want(t, 1, "not version 1 as --base says")
	s.rules(t, "push", bob, "--force").want(t, 0, "what was written by other means is kept as version 4", "pushed version 5")
	s.rules(t, "pull", alice, "--version", "4").want(t, 0, "+ hot.yaml", "version 4 is in")
	s.rules(t, "push", alice).want(t, 0, "pushed version 6") // it was pulled while 5 was in force

	writeIn(t, alice, "team/login.yaml", "domain: login\nrules: []\n")
	s.rules(t, "push", filepath.Join(alice, "team/login.yaml")).want(t, 0, "~ team/login.yaml", "pushed version 7")
	writeIn(t, alice, "api.yaml", "domain: api\n")
	s.rules(t, "push", alice).want(t, 0, "pushed version 8") // what was pushed of it is no surprise either
}

// txn writes or deletes a key whose name a URL would not keep as it is.
func (s *shop) txn(t *testing.T, verb, key string) {
	t.Helper()
	body := fmt.Sprintf(`[{"KV": {"Verb": %q, "Key": %q, "Value": "cnVsZXM6IFtd"}}]`, verb, key)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.consul.URL("/v1/txn"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", verb, key, resp.Status)
	}
}

func TestPullingStaysWithinItsFolder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := filepath.Join(t.TempDir(), "in")
	s.rules(t, "pull", dir).want(t, 1, "has no rules")
	for _, name := range []string{"a//b.yaml", "/etc/out.yaml", "folder/", "two\nlines"} {
		s.txn(t, "set", "weir/rules/"+name)
		s.rules(t, "pull", dir).want(t, 1, "is no path of a file within a folder")
		s.txn(t, "delete", "weir/rules/"+name)
	}
	s.txn(t, "set", "weir/rules/../out.yaml") // a part begins with a dot: no document
	s.consul.Put(t, "weir/rules/plain", "rules: []")
	s.rules(t, "pull", dir, "--dry-run").want(t, 0, "+ plain.yaml", "not written")
	s.consul.Put(t, "weir/rules/plain.yaml", "# another")
	s.rules(t, "pull", dir).want(t, 1, "would both be written to plain.yaml")
	s.consul.Delete(t, "weir/rules/plain.yaml")
	outside := t.TempDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s.consul.Put(t, "weir/rules/link/out.yaml", "rules: []")
	s.rules(t, "pull", dir).want(t, 1, "writing into "+dir)
	if items, _ := os.ReadDir(outside); len(items) > 0 {
		t.Error("it wrote through a link")
	}
	s.consul.Delete(t, "weir/rules/link/out.yaml")
	s.consul.Put(t, "weir/rules/a.yaml/b.yaml", "rules: []")
	s.consul.Put(t, "weir/rules/a.yaml", "rules: []")
	s.rules(t, "pull", dir).want(t, 1, "a.yaml would be both a file and a folder")
	s.consul.DeleteTree(t, "weir/rules/a.yaml")
	victim := testenv.WriteFile(t, "victim", "untouched")
	for _, name := range []string{".weir-pulled", "plain.yaml"} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.rules(t, "pull", dir, "--force").want(t, 0, "+ plain.yaml")
	if text, _ := os.ReadFile(victim); string(text) != "untouched" {
		t.Errorf("it wrote through a link: %q", text)
	}
	writeIn(t, dir, "README.md", "not a rule file")
	s.rules(t, "pull", dir).want(t, 0, "1 document that no push wrote is in")
	s.rules(t, "push", dir).want(t, 0, "- plain\n", "+ plain.yaml", "rules: no difference")
}

func TestAPushThatDiedIsSeenAndPutRight(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.rules(t, "push", s.dir).want(t, 0)
	s.rules(t, "push", "--abort").want(t, 1, "no push is under way")
	s.consul.Put(t, "weir/rules/.weir/push", `{"version": 2, "digest": "d", "by": "bob@example", "at": "2026-12-02T09:00:00Z"}`)
	const whose = "version 2 by bob@example, begun 2026-12-02T09:00:00Z"
	for _, command := range [][]string{{"push", s.dir}, {"rollback", "1"}, {"pull", t.TempDir()}} {
		s.rules(t, command...).want(t, 1, whose, "weir rules push --abort")
	}
	s.rules(t, "status").want(t, 1, "under way: the push of "+whose)
	s.rules(t, "push", "--resume").want(t, 1, "had no document written yet")
	s.rules(t, "push", "--abort", "--dry-run").want(t, 0, whose+" would be taken back")
	s.rules(t, "push", "--abort").want(t, 0, "version 1 is in force")
	s.rules(t, "status").want(t, 0)
	s.consul.Put(t, "weir/rules/.weir/push", "nonsense")
	s.rules(t, "push", s.dir).want(t, 1, "one whose marker is not understood", "--abort")
	s.rules(t, "push", "--abort", "--force").want(t, 0, "left as they stand")
	s.rules(t, "push", s.dir).want(t, 0, "no difference")
}

func TestWrongUseOfRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"rules", "no command"},
		{"rules pish", `unknown command "pish"`},
		{"rules push", "want a folder of rules"},
		{"rules push --resume x", "take no rules"},
		{"rules push --resume --abort", "exclude each other"},
		{"rules push x --keep 0", "--keep 0: it is 1 at least"},
		{"rules push x --rules rules.yaml", "it is consul://host:port/PREFIX"},
		{"rules push x --rules consul://a:1 --rules etcd://b:1", "choose one"},
		{"rules status --wait -1s", "0 at least"},
		{"rules push x --rules xds://h:1", "it is consul://host:port/PREFIX"},
		{"rules push x --rules consul://user:secret@h:1", "no user, password or token"},
		{"rules push x --rules consul://h:1/a//b", "--rules consul://h:1/a//b: "},
		{"rules push x --timeout 0", "--timeout"},
		{"rules pull", "want one folder"},
		{"rules pull a b", "want one folder"},
		{"rules diff", "want a folder of rules"},
		{"rules diff x --to 3", "exclude each other"},
		{"rules log x", `unexpected argument "x"`},
		{"rules log -n -1", "it is 0 at least"},
		{"rules rollback x", `version "x"`},
		{"rules rollback 1 2", "want one version"},
		{"rules status x", `unexpected argument "x"`},
		{"serve --rules consul://user:secret@h:1", "no user, password or token"},
		{"serve --rules consul://h:1/.hidden", "--rules consul://h:1/.hidden"},
		{"serve --rules consul://h:1/a?token=x", "--rules"},
		{"serve --rules xds://h:1/path", "--rules xds://h:1/path"},
		{"serve --rules a.yaml --rules a.yaml", "given twice"},
		{"serve --register h:1", "--register"},
		{"serve --register consul://h:1/path", "--register"},
		{"serve --register consul://h:1 --grpc-addr unix:/x", "--register-addr"},
	} {
		r := weir(t, strings.Fields(c.args)...)
		r.want(t, exitWrongUse, c.want)
		if strings.Contains(r.stderr, "secret") {
			t.Errorf("%s shows a password: %s", c.args, r.stderr)
		}
	}
}

func TestAnUnreachableConsulIsNamed(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	weir(t, "rules", "log", "--rules", "consul://"+addr).want(t, 1, "Consul at http://"+addr, "connection refused")
	weir(t, "rules", "log", "--rules", "etcd://"+addr).want(t, 1, "etcd", addr)
}

func TestTheLeastRightsThatTheDocsNameAreEnough(t *testing.T) {
	t.Parallel()
	c := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	s := &shop{consul: c, url: "consul://" + c.Addr, dir: t.TempDir()}
	s.write(t, "a.yaml", ruleOf("/a", 5))
	instance := testenv.WriteFile(t, "instance", c.ACLToken(t, `key_prefix "weir/rules/" { policy = "read" } service "weir" { policy = "write" }`))
	operator := testenv.WriteFile(t, "operator", c.ACLToken(t, `key_prefix "weir/rules" { policy = "write" } service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }`))

	s.rules(t, "push", s.dir, "--consul-token-file", operator).want(t, 0, "pushed version 1")
	serving(t, "--rules", s.url, "--register", "consul://"+c.Addr, "--consul-token-file", instance)
	eventually(t, "the instance is registered and current", func() bool {
		r := s.rules(t, "status", "--consul-token-file", operator)
		return r.code == 0 && strings.Contains(r.stdout, "current")
	})
	s.write(t, "a.yaml", ruleOf("/a", 6))
	s.rules(t, "push", s.dir, "--consul-token-file", operator).want(t, 0, "pushed version 2")
	s.rules(t, "rollback", "--consul-token-file", operator).want(t, 0, "pushed version 3")

	s.rules(t, "push", s.dir, "--consul-token-file", instance).want(t, 1, `"weir/rules`, "permission denied", "nothing was changed")
	s.rules(t, "log").want(t, 1, `a token (CONSUL_HTTP_TOKEN) with key_prefix "weir/rules/" { policy = "read" }`)
	s.rules(t, "log", "--consul-token", "00000000-0000-4000-8000-00000000abcd").want(t, 1, "a token that this Consul knows")
}
