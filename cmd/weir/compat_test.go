package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"weir/internal/testenv"
)

// compatFlags is what the flags of serve say with --compat, given flags and an
// environment as NAME=value.
func compatFlags(t *testing.T, args []string, env ...string) (f *pflag.FlagSet, notes []string, err error) {
	t.Helper()
	var c serveConfig
	f = pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.addFlags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	said, err := applyCompat(f, func(name string) (string, bool) {
		for _, v := range env {
			if n, value, _ := strings.Cut(v, "="); n == name {
				return value, true
			}
		}
		return "", false
	})
	return f, said.notes, err
}

func TestPorts(t *testing.T) {
	f, notes, err := compatFlags(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"grpc-addr": "0.0.0.0:8081", "http-addr": "0.0.0.0:8080", "max-connection-age": "24h0m0s",
		"rules": "[/srv/runtime_data/current/config]", "headers": "none", "store": "memory", "charge": "each", "count-denied": "true",
	} {
		if got := f.Lookup(flag).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", flag, got, want)
		}
	}
	if len(notes) != 2 || !strings.Contains(notes[0], "in memory") || !strings.Contains(notes[1], "/metrics") {
		t.Errorf("notes %q, want that counters are in memory, and where metrics are", notes)
	}
}

func TestTheirSettingsBecomeFlags(t *testing.T) {
	for _, x := range []struct {
		remark, args, env string
		want              string // --flag=value …
	}{
		{"a socket for gRPC", "", "GRPC_UDS=/run/rl.sock", "grpc-addr=unix:/run/rl.sock"},
		{"IPv6", "", "GRPC_HOST=:: GRPC_PORT=9 HOST=::1 PORT=8", "grpc-addr=[::]:9 http-addr=[::1]:8"},
		{"a flag wins", "--grpc-addr 127.0.0.1:1", "GRPC_UDS=/run/rl.sock", "grpc-addr=127.0.0.1:1"},
		{"one Redis", "", "REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379", "store=redis://redis:6379"},
		{"with a password", "", "REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_AUTH=a@b/c", "store=redis://:a%40b%2Fc@redis:6379"},
		{"with a user", "", "REDIS_URL=redis:6379 REDIS_AUTH=me:a:b", "store=redis://me:a%3Ab@redis:6379"},
		{"with TLS", "", "REDIS_URL=redis:6379 REDIS_TLS=true", "store=rediss://redis:6379"},
		{"a URL", "", "REDIS_URL=redis://u:p@redis:6379/2 REDIS_TLS=1", "store=rediss://u:p@redis:6379/2"},
		{"a URL, and a password apart", "", "REDIS_URL=redis://redis:6379 REDIS_AUTH=p", "store=redis://:p@redis:6379"},
		{"a socket", "", "REDIS_SOCKET_TYPE=unix REDIS_URL=/run/redis.sock", "store=unix:///run/redis.sock"},
		{"sentinels", "", "REDIS_TYPE=sentinel REDIS_URL=main,s1:26379,s2:26379 REDIS_AUTH=p", "store=redis+sentinel://:p@s1:26379,s2:26379/main"},
		{"sentinels with a password of their own", "", "REDIS_TYPE=SENTINEL REDIS_URL=main,s1:26379 REDIS_SENTINEL_AUTH=me:p&q REDIS_TLS=true",
			"store=redis+sentinel://s1:26379/main?sentinel_password=p%26q&sentinel_user=me&tls=true"},
		{"certificates for Redis", "", "REDIS_URL=redis:6379 REDIS_TLS=true REDIS_TLS_CACERT=a REDIS_TLS_CLIENT_CERT=c REDIS_TLS_CLIENT_KEY=k REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
			"store=rediss://redis:6379 store-ca-file=a store-cert-file=c store-key-file=k store-tls-server-name=*"},
		{"certificates for Redis without TLS do not count", "", "REDIS_URL=redis:6379 REDIS_TLS_CACERT=a REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "store-ca-file= store-tls-server-name="},
		{"a cluster", "", "REDIS_TYPE=CLUSTER REDIS_URL=n1:6379,n2:6379 REDIS_TLS=true", "store=redis+cluster://n1:6379,n2:6379?tls=true"},
		{"the flag wins over what it stands for", "--store memory", "REDIS_TYPE=odd REDIS_URL=x REDIS_TLS=true REDIS_TLS_CACERT=f BACKEND_TYPE=memcache", "store=memory"},
		{"the flag wins over what cannot be read", "--store memory --max-connection-age 1m --store-timeout 1s --shadow",
			"REDIS_TLS=odd REDIS_TLS_CACERT=f GRPC_MAX_CONNECTION_AGE=odd REDIS_TIMEOUT=odd SHADOW_MODE=odd", "store=memory max-connection-age=1m0s store-timeout=1s shadow=true"},
		{"times and prefixes", "", "REDIS_TIMEOUT=30ms CACHE_KEY_PREFIX=rl: GRPC_MAX_CONNECTION_AGE=5m", "store-timeout=30ms key-prefix=rl: max-connection-age=5m0s"},
		{"files", "", "RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=rules", "rules=[/data/ratelimit/rules]"},
		{"xDS", "", "CONFIG_TYPE=GRPC_XDS_SOTW", "rules=[xds://localhost:18000] xds-node-id=default"},
		{"xDS with TLS", "", "CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=dns:///gw:18001 CONFIG_GRPC_XDS_SERVER_USE_TLS=true CONFIG_GRPC_XDS_NODE_ID=n " +
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c CONFIG_GRPC_XDS_CLIENT_TLS_KEY=k CONFIG_GRPC_XDS_SERVER_TLS_CACERT=a CONFIG_GRPC_XDS_SERVER_TLS_SAN=s",
			"rules=[xds+tls://gw:18001] xds-node-id=n xds-cert-file=c xds-key-file=k xds-ca-file=a xds-tls-server-name=s"},
		{"certificates without TLS do not count", "", "CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_TLS_CERT=c", "xds-cert-file="},
		{"headers", "", "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X-Reset", "headers=x-ratelimit header-names=limit=RateLimit-Limit,remaining=RateLimit-Remaining,reset=X-Reset,retry-after="},
		{"headers of one's own", "--headers ietf", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "headers=ietf header-names="},
		{"modes", "", "SHADOW_MODE=true RESPONSE_DYNAMIC_METADATA=true", "shadow=true dynamic-metadata=envoyproxy"},
		{"quota mode", "", "QUOTA_MODE=1", "shadow=true"},
		{"refused requests charge only what refuses", "", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "charge=all-or-nothing count-denied=true"},
		{"logs", "", "LOG_LEVEL=WARNING LOG_FORMAT=json", "log-level=warn log-format=json"},
		{"no listener for metrics", "", "USE_STATSD=false PROMETHEUS_ADDR=:9", "metrics=on metrics-addr= near-limit-ratio=0.8"},
		{"metrics where theirs are", "", "USE_STATSD=false USE_PROMETHEUS=true", "metrics-addr=:9090 metrics-path=/metrics"},
		{"metrics elsewhere", "", "USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001 PROMETHEUS_PATH=/m NEAR_LIMIT_RATIO=0.5", "metrics-addr=:19001 metrics-path=/m near-limit-ratio=0.5"},
		{"metrics where the flags say", "--metrics-addr :1 --near-limit-ratio 0.7", "USE_PROMETHEUS=true NEAR_LIMIT_RATIO=odd", "metrics-addr=:1 near-limit-ratio=0.7"},
		{"no metrics", "", "DISABLE_STATS=true USE_PROMETHEUS=true", "metrics=off metrics-addr="},
		{"no metrics, by a flag", "--metrics off", "DISABLE_STATS=odd USE_PROMETHEUS=true", "metrics=off metrics-addr="},
		{"metrics, by a flag", "--metrics on", "DISABLE_STATS=true USE_PROMETHEUS=true", "metrics=on metrics-addr=:9090"},
		{"an empty value is none", "", "LOG_LEVEL= GRPC_PORT=", "log-level=info grpc-addr=0.0.0.0:8081"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			f, _, err := compatFlags(t, strings.Fields(x.args), strings.Fields(x.env)...)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range strings.Fields(x.want) {
				flag, value, _ := strings.Cut(want, "=")
				if got := f.Lookup(flag).Value.String(); got != value {
					t.Errorf("--%s is %s, want %s", flag, got, value)
				}
			}
		})
	}
}

func TestWhatWeirCannotDoEndsTheStart(t *testing.T) {
	for _, x := range []struct{ env, want string }{
		{"BACKEND_TYPE=memcache", "BACKEND_TYPE"},
		{"REDIS_URL=redis+cluster://r:1 REDIS_TLS=true", "REDIS_TLS"}, // not in plain text
		{"REDIS_URL=r:1 REDIS_TYPE=SENTINEL", "MASTER,host:port"},
		{"REDIS_URL=r:1 REDIS_TYPE=odd", "SINGLE, SENTINEL or CLUSTER"},
		{"REDIS_URL=r:1 REDIS_SOCKET_TYPE=unix", "REDIS_SOCKET_TYPE=tcp"},
		{"CONFIG_TYPE=odd", "FILE or GRPC_XDS_SOTW"},
		{"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:b", "no headers"},
		{"SHADOW_MODE=perhaps", "SHADOW_MODE is true or false"},
		{"REDIS_TIMEOUT=5", "REDIS_TIMEOUT is a duration"},
		{"USE_PROMETHEUS=perhaps", "USE_PROMETHEUS is true or false"},
		{"NEAR_LIMIT_RATIO=most", "NEAR_LIMIT_RATIO"},
		{"LOG_LEVEL=loud", "LOG_LEVEL"},
		{"TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=odd", "http or grpc"},
		{"TRACING_ENABLED=true TRACING_SAMPLING_RATE=NaN", "from 0 to 1"},
	} {
		if _, _, err := compatFlags(t, nil, strings.Fields(x.env)...); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.env, err, x.want)
		}
	}
}

func TestWhatIsNotHeededIsLoggedOnce(t *testing.T) {
	for _, x := range []struct {
		env  string
		want []string // beginnings
	}{
		{"REDIS_URL=r:1 USE_STATSD=false DEBUG_PORT=6070 NEAR_LIMIT_RATIO=0.8 MERGE_DOMAIN_CONFIG=true RUNTIME_IGNOREDOTFILES=true", nil},
		{"REDIS_URL=r:1 USE_STATSD=false REDIS_PERSECOND=true REDIS_PERSECOND_URL=r:2 REDIS_PERSECOND_SOCKET_TYPE=tcp", []string{"REDIS_PERSECOND is"}},
		{"REDIS_URL=r:1 STATSD_HOST=s STATSD_PORT=1 EXTRA_TAGS=a:b", []string{"USE_STATSD", "EXTRA_TAGS"}},
		{"REDIS_URL=r:1 USE_PROMETHEUS=true PROMETHEUS_ADDR=:9 PROMETHEUS_MAPPER_YAML=f", []string{"PROMETHEUS_MAPPER_YAML"}},
		{"REDIS_URL=r:1 DISABLE_STATS=true", nil},
		{"REDIS_URL=r:1 USE_STATSD=false USE_DOG_STATSD=true DEBUG_PORT=1", []string{"DEBUG_PORT", "USE_DOG_STATSD is"}},
		{"REDIS_URL=r:1 USE_STATSD=false MEMCACHE_HOST_PORT=m:1 XDS_CLIENT_BACKOFF_JITTER=false", nil}, // of what is not asked for
		{"REDIS_URL=r:1 USE_STATSD=false LOCAL_CACHE_SIZE_IN_BYTES=1", []string{"LOCAL_CACHE_SIZE_IN_BYTES"}},
	} {
		_, notes, err := compatFlags(t, nil, strings.Fields(x.env)...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(notes, x.want, strings.HasPrefix) {
			t.Errorf("%s: notes %q, want %q", x.env, notes, x.want)
		}
	}
}

// TestEverySettingOfTheirsIsKnown reads them, with their defaults, out of the
// program itself.
func TestEverySettingOfTheirsIsKnown(t *testing.T) {
	path, err := testenv.FindRatelimit()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// What its statsd client reads by itself, and parts of the names of others.
	libraries := []string{"STATSD_PROTOCOL", "GOSTATS_FLUSH_INTERVAL_SECONDS", "GOSTATS_LOGGING_SINK_DISABLED", "TAGS", "NAME", "PATTERN"}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`envconfig:"([A-Z_]+)"(?: default:"([^"]*)")?`).FindAllSubmatch(binary, -1) {
		name, def := string(m[1]), string(m[2])
		if slices.Contains(libraries, name) {
			continue
		}
		known[name] = true
		s := compatSettingOf(name)
		if s.name == "" || s.def != def {
			t.Errorf("%s, by default %q, is %+v here", name, def, s)
		}
	}
	var c serveConfig
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.addFlags(f)
	for _, s := range compatSettings {
		if !known[s.name] {
			t.Errorf("%s is no setting of theirs", s.name)
		}
		if (s.fate == heeded || s.fate == otherName || s.fate == refused) != (s.flag != "") || s.note == "" && s.fate != heeded && s.fate != otherName {
			t.Errorf("%s: %+v lacks a flag or a note", s.name, s)
		}
		if s.flag != "" && f.Lookup(s.flag) == nil && s.fate != otherName {
			t.Errorf("%s: there is no --%s", s.name, s.flag)
		}
	}
	if len(known) < 100 {
		t.Errorf("found %d settings", len(known))
	}
}

func TestTheirProgramsNamesRunWeir(t *testing.T) {
	for _, x := range []struct{ argv, want string }{
		{"/bin/weir serve --shadow", "serve --shadow"},
		{"/bin/ratelimit", "serve --compat envoyproxy"},
		{"ratelimit --shadow", "serve --compat envoyproxy --shadow"},
		{"/bin/ratelimit_config_check -config_dir /rules", "check /rules"},
		{"/bin/ratelimit_config_check --config_dir=/rules -merge_domain_configs", "check /rules"},
		{"/bin/ratelimit_config_check -h", "check -h"},
	} {
		if got := strings.Join(ratelimitArgs(strings.Fields(x.argv)), " "); got != x.want {
			t.Errorf("%s: %s, want %s", x.argv, got, x.want)
		}
	}
}

const migrationPage = "../../docs/migration.md"

// TestTheMigrationPageIsUpToDate holds the table of names against the code. After
// a change: go test ./cmd/weir -run MigrationPage -update
func TestTheMigrationPageIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(migrationPage)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- names: begin -->\n", "<!-- names: end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", migrationPage, begin, end)
	}
	want := before + begin + settingsTable() + end + after
	if *update {
		if err := os.WriteFile(migrationPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is not what the code does; write it anew with -update", migrationPage)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("\n| name there | default there | Weir | |\n|---|---|---|---|\n")
	for _, s := range compatSettings {
		def, does := s.def, "`--"+s.flag+"`"
		if def != "" {
			def = "`" + def + "`"
		}
		switch s.fate {
		case ignored, silent:
			does = "not heeded"
		case otherName:
			does = "`" + s.flag + "`"
		case refused:
			does = "refused, unless " + does + " is given"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.name, def, does, s.note)
	}
	b.WriteString("\n")
	return b.String()
}
