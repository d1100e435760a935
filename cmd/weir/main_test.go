package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestExitCodesOfWrongUse(t *testing.T) {
	for _, x := range []struct{ remark, args, want string }{
		{"no command", "", "weir: no command"},
		{"an unknown command", "serv", `unknown command "serv"`},
		{"help for one", "help serv", `unknown command "serv"`},
		{"an unknown flag", "serve --nosuch", "unknown flag: --nosuch"},
		{"an argument too many", "serve now", `unexpected argument "now"`},
		{"", "version 1", `unexpected argument "1"`},
		{"check without files", "check", "want a rule file or a folder of them"},
		{"decide without a descriptor", "decide default", "want a domain and one key=value at least"},
		{"explain without a descriptor", "explain default", "want a domain and one key=value at least"},
		{"no key=value", "decide default endpoint", `"endpoint" is not key=value`},
		{"no key", "explain default =1", `"=1" is not key=value`},
		{"a comma at the end", "decide default a=1 ,", "an empty descriptor"},
		{"a comma at the start", "decide default , a=1", "an empty descriptor"},
		{"two descriptors to explain", "explain default a=1 , b=1", "explain takes one descriptor"},
	} {
		r := weir(t, strings.Fields(x.args)...)
		if r.code != exitWrongUse || !strings.Contains(r.stderr, x.want) || !strings.Contains(r.stderr, " -h'.") || r.stdout != "" {
			t.Errorf("%s: weir %s: %+v, want exit code 2 with %q and where to look", x.remark, x.args, r, x.want)
		}
	}
}

func TestABadValueNamesItsFlagAndWhatIsAllowed(t *testing.T) {
	path := rulesFile(t, "rules: []")
	for _, x := range []struct{ args, flag, want string }{
		{"serve --rules=", "--rules", "a file or a folder"},
		{"serve --rules ftp://host/x", "--rules", "a file or a folder"},
		{"serve --reload-interval 5", "--reload-interval", "duration"},
		{"serve --reload-interval 1us", "--reload-interval", "1ms at least"},
		{"serve --store mysql", "--store", "redis://"},
		{"serve --store-timeout x", "--store-timeout", "duration"},
		{"serve --store-timeout 0s", "--store-timeout", "over 0"},
		{"serve --deny-cache -1s", "--deny-cache", "0 at least"},
		{"serve --memory-max-counters many", "--memory-max-counters", "integer"},
		{"serve --memory-max-counters 0", "--memory-max-counters", "1 at least"},
		{"serve --on-store-failure panic", "--on-store-failure", "local, allow, deny, error"},
		{"serve --grpc-addr 8081", "--grpc-addr", "host:port or unix:PATH"},
		{"serve --grpc-addr unix:", "--grpc-addr", "host:port or unix:PATH"},
		{"serve --http-addr 127.0.0.1:99999", "--http-addr", "host:port or unix:PATH"},
		{"serve --http-addr 127.0.0.1:", "--http-addr", "host:port or unix:PATH"},
		{"serve --drain-delay soon", "--drain-delay", "duration"},
		{"serve --drain-delay -1s", "--drain-delay", "0 at least"},
		{"serve --max-connection-age -1s", "--max-connection-age", "0 at least"},
		{"serve --queue-addr 127.0.0.1:0", "--queue-addr", "queues are kept in Redis"},
		{"serve --queue-addr 8082 --store redis://127.0.0.1:1", "--queue-addr", "host:port or unix:PATH"},
		{"serve --queue-secret s", "--queue-secret", "--queue-addr"},
		{"serve --queue-addr 127.0.0.1:0 --store redis://127.0.0.1:1 --queue-max-body 0", "--queue-max-body", "1 at least"},
		{"worker --store redis://127.0.0.1:1", "--upstream", "http://host:port"},
		{"worker --store redis://127.0.0.1:1 --upstream ftp://host", "--upstream", "http://host:port"},
		{"worker --upstream http://127.0.0.1:1", "--store", "redis://host:6379"},
		{"worker --upstream http://127.0.0.1:1 --store memory", "--store", "redis://host:6379"},
		{"worker --upstream http://127.0.0.1:1 --store redis://127.0.0.1:1 --max-deliveries 0", "--max-deliveries", "1 at least"},
		{"queue peek --store redis://127.0.0.1:1", "a queue", "DOMAIN/RULE"},
		{"queue drop --store redis://127.0.0.1:1 d/r", "--all", "give IDs"},
		{"queue retry --store redis://127.0.0.1:1 d/r x --all", "--all", "give IDs"},
		{"queue ls --store mysql", "--store", "redis://"},
		{"serve --reflection=maybe", "--reflection", "true or false"},
		{"serve --headers all", "--headers", "x-ratelimit, ietf, ietf-pk, draft-03, none"},
		{"serve --headers api=all", "--headers", "for one domain as DOMAIN=STYLE"},
		{"serve --headers =ietf", "--headers", "no domain before the ="},
		{"serve --headers ietf,", "--headers", "allowed: x-ratelimit"},
		{"serve --headers x-ratelimit,draft-03", "--headers", "exclude each other"},
		{"serve --headers ietf --headers api=draft-03,x-ratelimit", "--headers", `domain "api": x-ratelimit and draft-03 exclude each other`},
		{"serve --headers none,ietf", "--headers", "none stands alone"},
		{"serve --header-names limit=X-A,rest=X-B", "--header-names", "limit=NAME, remaining=NAME, retry-after=NAME, reset=NAME"},
		{"serve --header-names limit=X-A,limit=X-B", "--header-names", "each once"},
		{"serve --header-names limit", "--header-names", "limit=NAME"},
		{"serve --header-names limit=X:A", "--header-names", "no name of a header"},
		{"serve --header-names retry-after=Retry-After", "--header-names", "Retry-After is sent anyway"},
		{"serve --retry-after-jitter 500ms", "--retry-after-jitter", "whole seconds, such as 5, 5s or 1m"},
		{"serve --retry-after-jitter -1", "--retry-after-jitter", "whole seconds"},
		{"serve --retry-after-jitter 25h", "--retry-after-jitter", "to 24h"},
		{"serve --denied-body sorry", "--denied-body", "none, text:TEXT, @FILE and problem+json"},
		{"serve --denied-body api=sorry", "--denied-body", "for one domain as DOMAIN=BODY"},
		{"serve --denied-body =none", "--denied-body", "no domain before the ="},
		{"serve --denied-body text:", "--denied-body", "is empty"},
		{"serve --denied-body @/nowhere/x", "--denied-body", "no such file"},
		{"serve --denied-body none --denied-body problem+json", "--denied-body", "a body for this already"},
		{"serve --denied-body a=none --denied-body a=none", "--denied-body", "a body for this already"},
		{"serve --dynamic-metadata some", "--dynamic-metadata", "off, weir, envoyproxy, all"},
		{"serve --upstream-headers=2x", "--upstream-headers", "true or false"},
		{"serve --charge some", "--charge", "all-or-nothing, each"},
		{"serve --count-denied=1.5", "--count-denied", "true or false"},
		{"serve --shadow=dark", "--shadow", "true or false"},
		{"serve --max-held -1", "--max-held", "0 at least"},
		{"serve --compat nginx", "--compat", "none, envoyproxy"},
		{"serve --log-level loud", "--log-level", "debug, info, warn, error"},
		{"serve --log-format xml", "--log-format", "text, json"},
		{"decide default a=1 --addr 8081", "--addr", "host:port or unix:PATH"},
		{"decide default a=1 --hits -1", "--hits", "non-negative integer"},
		{"decide default a=1 --times 0", "--times", "1 at least"},
		{"decide default a=1 --timeout 0s", "--timeout", "over 0"},
		{"explain default a=1 --addr 8081", "--addr", "host:port or unix:PATH"},
	} {
		args := strings.Fields(x.args)
		if !strings.Contains(x.args, "--rules") && args[0] == "serve" {
			args = append(args, "--rules", path)
		}
		r := weir(t, args...)
		if r.code != exitWrongUse || !strings.Contains(r.stderr, x.flag) || !strings.Contains(r.stderr, x.want) {
			t.Errorf("weir %s: %+v, want exit code 2 with %s and %q", x.args, r, x.flag, x.want)
		}
	}
}

func TestTheEnvironmentSetsFlagsThatAreNotGiven(t *testing.T) {
	one := rulesFile(t, `rules: [{name: one, endpoint: /a, limit: 1, window: 1h}]`)
	two := rulesFile(t, `rules: [{name: two, endpoint: /a, limit: 1, window: 1h}]`)
	t.Setenv("WEIR_RULES", one)
	weir(t, "explain", "default", "endpoint=/a").want(t, exitDone, "rule one matches")
	weir(t, "explain", "default", "endpoint=/a", "--rules", two).want(t, exitDone, "rule two matches")

	three := rulesFile(t, `rules: [{name: three, endpoint: /b, limit: 1, window: 1h}]`)
	t.Setenv("WEIR_RULES", one+","+three)
	weir(t, "explain", "default", "endpoint=/b").want(t, exitDone, "rule three matches")

	t.Setenv("WEIR_MAX_HELD", "many")
	r := weir(t, "serve", "--rules", one)
	r.want(t, exitWrongUse, "WEIR_MAX_HELD", "--max-held", "integer")
	t.Setenv("WEIR_MAX_HELD", "-5")
	weir(t, "serve", "--rules", one).want(t, exitWrongUse, "--max-held -5")
	t.Setenv("WEIR_HEADERS", "all")
	weir(t, "serve", "--max-held", "1", "--rules", one).want(t, exitWrongUse, "WEIR_HEADERS", "x-ratelimit, ietf")
	weir(t, "version").want(t, exitDone) // has no such flag
}

func TestHelpListsAllCommandsAndFlags(t *testing.T) {
	for _, args := range []string{"help", "-h", "--help"} {
		r := weir(t, args)
		r.want(t, exitDone, "WEIR_GRPC_ADDR", "Exit codes: 0 done, 1 it failed, 2 wrong use")
		for _, name := range []string{"serve", "check", "decide", "explain", "version"} {
			if !strings.Contains(r.stdout, "\n  "+name+" ") {
				t.Errorf("weir %s does not list %s", args, name)
			}
		}
	}
	for _, cmd := range newRoot().Commands() {
		for _, args := range [][]string{{cmd.Name(), "-h"}, {"help", cmd.Name()}} {
			r := weir(t, args...)
			r.want(t, exitDone, "Usage:\n  weir "+cmd.Name())
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if !strings.Contains(r.stdout, "--"+f.Name) || f.Usage == "" {
					t.Errorf("weir %s does not tell of --%s", strings.Join(args, " "), f.Name)
				}
			})
		}
	}
	r := weir(t, "serve", "-h")
	for _, name := range []string{"--rules", "--store", "--grpc-addr", "--http-addr", "--headers", "--header-names", "--retry-after-jitter", "--denied-body", "--dynamic-metadata", "--upstream-headers", "--charge", "--count-denied", "--shadow",
		"--on-store-failure", "--memory-max-counters", "--max-held", "--drain-delay", "--compat", "--log-level", "--log-format", "--reload-interval",
		"--max-connection-age", "--reflection"} {
		if !strings.Contains(r.stdout, name+" ") && !strings.Contains(r.stdout, name+"[") {
			t.Errorf("weir serve -h does not list %s", name)
		}
	}
}

func TestVersionSaysWhatItIs(t *testing.T) {
	r := weir(t, "version")
	r.want(t, exitDone)
	if words := strings.Fields(r.stdout); len(words) != 4 || words[0] != "weir" || !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "go1.") }) {
		t.Errorf("printed %q", r.stdout)
	}
}
