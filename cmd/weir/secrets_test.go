package main

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"weir/internal/testenv"
)

// shownBy is what a server shows to who has no token.
func shownBy(t *testing.T, addr string) map[string]string {
	t.Helper()
	shown := map[string]string{}
	for _, path := range []string{"/", "/readyz", "/rules", "/metrics", "/healthz", "/v1/stats", "/v1/rules", "/debug/pprof/cmdline", "/v1/openapi.json"} {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		_ = resp.Write(&text)
		resp.Body.Close()
		shown[path] = text.String()
	}
	return shown
}

// noSecret looks for it everywhere.
func noSecret(t *testing.T, secret string, shown map[string]string) {
	t.Helper()
	for where, text := range shown {
		if at := strings.Index(text, secret); at >= 0 {
			t.Errorf("%s has a secret: …%s…", where, text[max(0, at-100):min(len(text), at+40)])
		}
	}
	if !strings.Contains(shown["what it printed"], "level=DEBUG") {
		t.Error("there is nothing for who debugs: this test sees too little")
	}
}

// Nothing that serve prints at the finest level, and nothing that it shows without a
// token, has a secret in it, though all that it talks to is away or refuses it.
func TestNoSecretIsToldAnywhere(t *testing.T) {
	const secret = "s3cr3t-"
	t.Setenv("WEIR_KEY_SECRET", secret+"of-keys-0123456789")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+testenv.FreeAddr(t))
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+secret+"of-traces")
	admin := []string{"--admin-token", secret + "of-operators", "--log-level", "debug", "--log-values"}

	r := testenv.StartRedis(t, testenv.RedisOptions{Password: "another"})
	s := serving(t, append(admin, "--rules", rulesFile(t, hourly), "--store", "redis://user:"+secret+"of-redis@"+r.Addr, "--store-timeout", "1s",
		"--queue-addr", "127.0.0.1:0", "--queue-secret", secret+"of-the-queue")...)
	s.codes(t, 7, "default", "endpoint=/x")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.httpAddr+"/v1/stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret+"that-is-wrong")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token: %s", resp.Status)
	}
	shown := shownBy(t, s.httpAddr)
	s.stop()
	shown["what it printed"] = s.stdout.String() + s.stderr.String()
	noSecret(t, secret, shown)

	t.Setenv("CONSUL_HTTP_TOKEN", secret+"of-consul")
	t.Setenv("CONSUL_HTTP_AUTH", "user:"+secret+"of-consuls-proxy")
	t.Setenv("ETCDCTL_USER", "root:"+secret+"of-etcd")
	httpAddr := testenv.FreeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := new(output)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append(append([]string{"serve"}, admin...), "--rules", "consul://"+testenv.FreeAddr(t)+"/r", "--rules", "etcd://"+testenv.FreeAddr(t)+"/r",
			"--rules-cache", t.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", httpAddr), out, out)
	}()
	eventually(t, "both are away", func() bool {
		resp, err := http.Get("http://" + httpAddr + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var text strings.Builder
		_ = resp.Write(&text)
		return strings.Count(text.String(), "failing since") == 2
	})
	shown = shownBy(t, httpAddr)
	cancel()
	<-code
	shown["what it printed"] = out.String() + "level=DEBUG"
	noSecret(t, secret, shown)
}
