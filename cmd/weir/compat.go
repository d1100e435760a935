package main

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weir/limiter/redis"
	"weir/server/tracing"
)

// ratelimitArgs are the arguments of a program that is called by the name of one
// of envoyproxy/ratelimit's: whoever starts those (Envoy Gateway has /bin/ratelimit
// in its Deployment) can start Weir by a link of that name.
func ratelimitArgs(argv []string) []string {
	switch filepath.Base(argv[0]) {
	case "ratelimit":
		return append([]string{"serve", "--compat", "envoyproxy"}, argv[1:]...)
	case "ratelimit_config_check":
		args := []string{"check"}
		for _, arg := range argv[1:] {
			name, dir, hasDir := strings.Cut("-"+strings.TrimLeft(arg, "-"), "=")
			switch {
			case name == "-config_dir" && hasDir && strings.HasPrefix(arg, "-"):
				args = append(args, dir)
			case strings.HasPrefix(arg, "-") && (name == "-config_dir" || name == "-merge_domain_configs"): // the value follows, or there is none
			default:
				args = append(args, arg)
			}
		}
		return args
	}
	return argv[1:]
}

// compatEnv reads the environment as envoyproxy/ratelimit does, and sets the
// flags that stand for it, but those that were given: Weir's own are stronger.
type compatEnv struct {
	flags  *pflag.FlagSet
	lookup func(string) (string, bool)
	compatSaid
	err error // the first one
}

// compatSaid is what the environment says beyond flags.
type compatSaid struct {
	notes   []string // what is to be logged: which settings are not heeded, and why
	tracing tracing.Options
}

// applyCompat does so for serve.
func applyCompat(f *pflag.FlagSet, lookup func(string) (string, bool)) (compatSaid, error) {
	e := &compatEnv{flags: f, lookup: lookup}
	e.refuse()
	e.charging()
	e.addresses()
	e.store()
	e.rules()
	e.tls()
	e.answers()
	e.metrics()
	e.logs()
	e.traces()
	e.ignored()
	return e.compatSaid, e.err
}

// get is a setting, or its default there.
func (e *compatEnv) get(name string) string {
	if value, ok := e.lookup(name); ok && value != "" {
		return value
	}
	return compatSettingOf(name).def
}

func (e *compatEnv) given(name string) bool {
	value, ok := e.lookup(name)
	return ok && value != ""
}

func (e *compatEnv) fail(format string, args ...any) {
	e.err = cmp.Or(e.err, usagef(format, args...))
}

func (e *compatEnv) isTrue(name string) bool {
	text := cmp.Or(e.get(name), "false")
	on, err := strconv.ParseBool(text)
	if err != nil {
		e.fail("environment %s is true or false, not %q", name, text)
	}
	return on
}

// setDuration sets a flag to a setting that is a duration.
func (e *compatEnv) setDuration(flag, name string) {
	if e.has(flag) {
		return
	}
	d, err := time.ParseDuration(e.get(name))
	if err != nil || d < 0 {
		e.fail("environment %s is a duration such as 10s, not %q", name, e.get(name))
	}
	e.set(flag, d.String(), name)
}

// has tells whether the flag was given; then the settings that it stands for do
// not count.
func (e *compatEnv) has(flag string) bool { return e.flags.Changed(flag) }

// set sets a flag for what the settings named say.
func (e *compatEnv) set(flag, value, names string) {
	if e.has(flag) || e.err != nil {
		return
	}
	if e.flags.Lookup(flag) == nil {
		e.fail("environment %s: there is no --%s", names, flag)
		return
	}
	if err := e.flags.Set(flag, value); err != nil {
		e.fail("environment %s: %w", names, err)
	}
}

// counts tells whether a setting is heeded there, given the others.
func (e *compatEnv) counts(s compatSetting) bool {
	if s.with == "" {
		return true
	}
	if name, value, ok := strings.Cut(s.with, "="); ok {
		return strings.EqualFold(e.get(name), value)
	}
	return e.isTrue(s.with)
}

// refuse fails for what Weir cannot do and must not leave undone in silence.
func (e *compatEnv) refuse() {
	for _, s := range compatSettings {
		if s.fate == refused && e.get(s.name) != s.def && !e.has(s.flag) && e.counts(s) {
			e.fail("environment %s: %s", s.name, s.note)
		}
	}
}

// ignored notes what says something that nothing heeds.
func (e *compatEnv) ignored() {
	for _, s := range compatSettings {
		if s.fate == ignored && e.get(s.name) != s.def && e.counts(s) {
			e.notes = append(e.notes, s.name+" is not heeded: "+s.note)
		}
	}
}

func (e *compatEnv) charging() {
	charge := "each"
	if e.isTrue("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
		charge = "all-or-nothing"
	}
	e.set("charge", charge, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	e.set("count-denied", "true", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT")
	for _, name := range []string{"SHADOW_MODE", "QUOTA_MODE"} {
		if !e.has("shadow") && e.isTrue(name) {
			e.set("shadow", "true", name)
		}
	}
}

func (e *compatEnv) addresses() {
	e.set("http-addr", net.JoinHostPort(e.get("HOST"), e.get("PORT")), "HOST, PORT")
	grpc := net.JoinHostPort(e.get("GRPC_HOST"), e.get("GRPC_PORT"))
	if e.given("GRPC_UDS") {
		grpc = "unix:" + e.get("GRPC_UDS")
	}
	e.set("grpc-addr", grpc, "GRPC_HOST, GRPC_PORT, GRPC_UDS")
	e.setDuration("max-connection-age", "GRPC_MAX_CONNECTION_AGE")
}

func (e *compatEnv) store() {
	if e.given("CACHE_KEY_PREFIX") {
		e.set("key-prefix", e.get("CACHE_KEY_PREFIX"), "CACHE_KEY_PREFIX")
	}
	if e.given("REDIS_TIMEOUT") {
		e.setDuration("store-timeout", "REDIS_TIMEOUT")
	}
	switch {
	case e.has("store"):
	case !e.given("REDIS_URL"):
		e.notes = append(e.notes, "there is no REDIS_URL: counters are in memory, and each instance counts by itself")
	default:
		e.set("store", e.redisURL(), "REDIS_URL")
		e.storeTLS()
	}
}

func (e *compatEnv) storeTLS() {
	if !e.isTrue("REDIS_TLS") {
		return
	}
	for name, flag := range map[string]string{
		"REDIS_TLS_CACERT":      "store-ca-file",
		"REDIS_TLS_CLIENT_CERT": "store-cert-file",
		"REDIS_TLS_CLIENT_KEY":  "store-key-file",
	} {
		if e.given(name) {
			e.set(flag, e.get(name), name)
		}
	}
	if e.isTrue("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
		e.set("store-tls-server-name", redis.AnyName, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION")
	}
}

// redisURL is --store for REDIS_URL, which is an address, a socket, a list of
// addresses, or a URL, as the other settings say.
func (e *compatEnv) redisURL() string {
	at, user := e.get("REDIS_URL"), ""
	if name, password, ok := strings.Cut(e.get("REDIS_AUTH"), ":"); ok {
		user = url.UserPassword(name, password).String() + "@"
	} else if name != "" {
		user = url.UserPassword("", name).String() + "@"
	}
	encrypted := e.isTrue("REDIS_TLS")
	query := ""
	if encrypted {
		query = "?tls=true"
	}
	switch kind := strings.ToUpper(e.get("REDIS_TYPE")); kind {
	case "SENTINEL":
		master, hosts, ok := strings.Cut(at, ",")
		if !ok {
			e.fail("environment REDIS_URL: for REDIS_TYPE=SENTINEL it is MASTER,host:port,… of the sentinels")
		}
		return "redis+sentinel://" + user + hosts + "/" + master + e.sentinelQuery(encrypted)
	case "CLUSTER":
		return "redis+cluster://" + user + at + query
	case "SINGLE":
	default:
		e.fail("environment REDIS_TYPE is SINGLE, SENTINEL or CLUSTER, not %q", kind)
	}
	switch {
	case strings.Contains(at, "://"):
		scheme, rest, _ := strings.Cut(at, "://")
		switch {
		case encrypted && scheme == "redis":
			scheme = "rediss"
		case encrypted && scheme != "rediss":
			e.fail("environment REDIS_TLS: REDIS_URL of %s:// says by itself whether it is encrypted; give --store", scheme)
		}
		if strings.Contains(rest, "@") {
			user = ""
		}
		return scheme + "://" + user + rest
	case strings.HasPrefix(at, "/"):
		return "unix://" + user + at
	case strings.EqualFold(e.get("REDIS_SOCKET_TYPE"), "unix") && e.given("REDIS_SOCKET_TYPE"):
		e.fail("environment REDIS_URL: for REDIS_SOCKET_TYPE=unix it is the path of a socket; for an address say REDIS_SOCKET_TYPE=tcp")
	case encrypted:
		return "rediss://" + user + at
	}
	return "redis://" + user + at
}

// sentinelQuery says TLS, and how sentinels let Weir in.
func (e *compatEnv) sentinelQuery(encrypted bool) string {
	query := url.Values{}
	if encrypted {
		query.Set("tls", "true")
	}
	if name, password, ok := strings.Cut(e.get("REDIS_SENTINEL_AUTH"), ":"); ok {
		query.Set("sentinel_user", name)
		query.Set("sentinel_password", password)
	} else if name != "" {
		query.Set("sentinel_password", name)
	}
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func (e *compatEnv) rules() {
	switch kind := e.get("CONFIG_TYPE"); {
	case e.has("rules"):
	case kind == "FILE":
		dir := filepath.Join(e.get("RUNTIME_ROOT"), e.get("RUNTIME_SUBDIRECTORY"), e.get("RUNTIME_APPDIRECTORY"))
		e.set("rules", dir, "RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_APPDIRECTORY")
		e.unread(dir)
	case kind == "GRPC_XDS_SOTW":
		e.xds()
	default:
		e.fail("environment CONFIG_TYPE is FILE or GRPC_XDS_SOTW, not %q", kind)
	}
}

// unread notes files that are read there and not here, so that no rule goes
// missing unseen. A folder that cannot be read is told of when it is loaded.
func (e *compatEnv) unread(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		ext := filepath.Ext(entry.Name())
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") && ext != ".yaml" && ext != ".yml" {
			e.notes = append(e.notes, fmt.Sprintf("%s is not read: rules are in files called *.yaml or *.yml", filepath.Join(dir, entry.Name())))
		}
	}
}

func (e *compatEnv) xds() {
	scheme := "xds://"
	if e.isTrue("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
		scheme = "xds+tls://"
		for name, flag := range map[string]string{
			"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":   "xds-cert-file",
			"CONFIG_GRPC_XDS_CLIENT_TLS_KEY":    "xds-key-file",
			"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "xds-ca-file",
			"CONFIG_GRPC_XDS_SERVER_TLS_SAN":    "xds-tls-server-name",
		} {
			if e.given(name) {
				e.set(flag, e.get(name), name)
			}
		}
	}
	e.set("rules", scheme+strings.TrimPrefix(e.get("CONFIG_GRPC_XDS_SERVER_URL"), "dns:///"), "CONFIG_GRPC_XDS_SERVER_URL")
	e.set("xds-node-id", e.get("CONFIG_GRPC_XDS_NODE_ID"), "CONFIG_GRPC_XDS_NODE_ID")
}

// tls concerns gRPC alone: HTTP is plain there.
func (e *compatEnv) tls() {
	if !e.isTrue("GRPC_SERVER_USE_TLS") {
		return
	}
	e.set("http-tls", "off", "GRPC_SERVER_USE_TLS")
	for name, flag := range map[string]string{
		"GRPC_SERVER_TLS_CERT":   "tls-cert",
		"GRPC_SERVER_TLS_KEY":    "tls-key",
		"GRPC_CLIENT_TLS_CACERT": "tls-client-ca",
		"GRPC_CLIENT_TLS_SAN":    "tls-client-san",
	} {
		if e.given(name) {
			e.set(flag, e.get(name), name)
		}
	}
}

func (e *compatEnv) answers() {
	if e.isTrue("RESPONSE_DYNAMIC_METADATA") {
		e.set("dynamic-metadata", "envoyproxy", "RESPONSE_DYNAMIC_METADATA")
	}
	if !e.isTrue("LIMIT_RESPONSE_HEADERS_ENABLED") {
		e.set("headers", "none", "LIMIT_RESPONSE_HEADERS_ENABLED")
		return
	}
	if e.has("headers") {
		return
	}
	e.set("header-names", fmt.Sprintf("limit=%s,remaining=%s,reset=%s,retry-after=",
		e.get("LIMIT_LIMIT_HEADER"), e.get("LIMIT_REMAINING_HEADER"), e.get("LIMIT_RESET_HEADER")),
		"LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER, LIMIT_RESET_HEADER")
}

func (e *compatEnv) logs() {
	if e.given("LOG_LEVEL") {
		level := strings.ToLower(e.get("LOG_LEVEL"))
		switch level {
		case "trace":
			level = "debug"
		case "warning":
			level = "warn"
		case "fatal", "panic":
			level = "error"
		}
		e.set("log-level", level, "LOG_LEVEL")
	}
	if strings.EqualFold(e.get("LOG_FORMAT"), "json") {
		e.set("log-format", "json", "LOG_FORMAT")
	}
}
