package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"weir/internal/testenv"
)

const someSecret = "0123456789abcdef0123456789abcdef"

func TestServersAndExplainAgreeOnNamesWithASecret(t *testing.T) {
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	rules := rulesFile(t, "rules: [{match: {endpoint: /x, client: '*'}, limit: 5, window: 1h}]")
	file := testenv.WriteFile(t, "secret", someSecret+"\n") // as editors leave it
	s := serving(t, "--rules", rules, "--store", "redis://"+redis.Addr, "--store-timeout", "5s", "--key-secret-file", file)
	entries := []string{"default", "endpoint=/x", "client=192.0.2.7"}
	if got := s.codes(t, 1, entries...); got != "A" {
		t.Fatalf("it answers %s", got)
	}
	keys := redis.MustDo(t, "KEYS", "weir:*")
	named := func(args ...string) string {
		r := weir(t, append(append([]string{"explain"}, args...), entries...)...)
		r.want(t, exitDone)
		return regexp.MustCompile(`weir:\S{22}`).FindString(r.stdout)
	}
	remote := named("--addr", s.grpcAddr)
	if !strings.Contains(keys, remote) || remote == "" {
		t.Errorf("the server explains %q, and Redis has\n%s", remote, keys)
	}
	if got := named("--rules", rules, "--key-secret", someSecret); got != remote {
		t.Errorf("with the secret, explain --rules says %s, and the server %s", got, remote)
	}
	t.Setenv("WEIR_KEY_SECRET", someSecret)
	if got := named("--rules", rules); got != remote {
		t.Errorf("with the secret by the environment, explain --rules says %s, and the server %s", got, remote)
	}
	os.Unsetenv("WEIR_KEY_SECRET")
	if got := named("--rules", rules); got == remote || got == "" {
		t.Errorf("without the secret, explain --rules says %q, as with it", got)
	}
	if out := s.stdout.String() + s.stderr.String(); strings.Contains(out, someSecret) {
		t.Errorf("the secret is printed:\n%s", out)
	}
}

func TestAFaultySecretEndsTheStart(t *testing.T) {
	long := testenv.WriteFile(t, "long", strings.Repeat("x", 5000))
	empty := testenv.WriteFile(t, "empty", "\n")
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--key-secret", ""}, exitWrongUse, "has 0 bytes; 16 to 4096"},
		{[]string{"--key-secret", "short"}, exitWrongUse, "openssl rand"},
		{[]string{"--key-secret-file", empty}, exitWrongUse, empty + ": the secret has 0 bytes"},
		{[]string{"--key-secret-file", long}, exitWrongUse, "16 to 4096"},
		{[]string{"--key-secret-file", "/nowhere"}, exitFailed, "open /nowhere"},
		{[]string{"--key-secret-file", ""}, exitFailed, "--key-secret-file"},
		{[]string{"--key-secret-file", long, "--key-secret", someSecret}, exitWrongUse, "both"},
	} {
		weir(t, append([]string{"serve"}, x.args...)...).want(t, x.code, x.want)
	}
}

func TestCommandsReachARedisThatWantsCertificates(t *testing.T) {
	files := testenv.NewAuthority(t).MustIssue(t, t.TempDir(), testenv.Leaf{})
	redis := testenv.StartRedis(t, testenv.RedisOptions{TLS: files, Args: []string{"--tls-auth-clients", "yes"}})
	flags := []string{"--store", "rediss://" + redis.Addr, "--store-ca-file", files.CA, "--store-cert-file", files.Cert, "--store-key-file", files.Key}
	rules := rulesFile(t, "rules: [{name: orders, endpoint: /x, limit: 5, window: 1h, algorithm: leaky_bucket, over_limit: queue}]")
	serving(t, append(flags, "--rules", rules, "--store-timeout", "5s", "--queue-addr", "127.0.0.1:0")...)
	two := serving(t, append(flags, "--rules", rulesFile(t, hourly), "--store-timeout", "5s")...)
	three := serving(t, append(flags, "--rules", rulesFile(t, hourly), "--store-timeout", "5s")...)
	if got := two.codes(t, 3, "default", "endpoint=/x") + three.codes(t, 3, "default", "endpoint=/x"); got != "AAAAAD" {
		t.Errorf("two instances answer %s", got)
	}
	eventually(t, "the queue is announced", func() bool {
		return strings.Contains(weir(t, append([]string{"queue", "ls"}, flags...)...).stdout, "default/orders")
	})
	weir(t, append([]string{"queue", "ls"}, flags[:4]...)...).want(t, exitFailed)
	weir(t, append([]string{"queue", "ls"}, flags[:6]...)...).want(t, exitWrongUse, "go together")
	weir(t, "queue", "ls", "--store", "redis://"+redis.Addr, "--store-ca-file", files.CA).want(t, exitWrongUse, "rediss://")
	weir(t, "worker", "--upstream", "http://127.0.0.1:1", "--store", "rediss://"+redis.Addr, "--store-ca-file", "/nowhere").want(t, exitFailed, "/nowhere")
	weir(t, "serve", "--store-ca-file", files.CA).want(t, exitWrongUse, "--store is memory")
	weir(t, append([]string{"serve", "--store-tls-server-name", ""}, flags...)...).want(t, exitWrongUse, "is empty")
}
