package main

// fate is what becomes of a setting of envoyproxy/ratelimit.
type fate int

const (
	heeded    fate = iota // by the flag
	otherName             // heeded as OpenTelemetry's variable, which the flag names and which is stronger
	ignored               // with a line in the log, if it says something else than its default
	silent                // ignored, without a word: what it asks for is so, or does not matter
	refused               // fails if it says something else than its default, unless the flag is given
)

// compatSetting is a name in envoyproxy/ratelimit's environment.
type compatSetting struct {
	name string
	fate fate
	def  string // its default there
	flag string // that takes its place
	with string // counts only if this is true, or has this value
	note string // heeded: how; else why not, or what to do instead
}

// compatSettingOf returns the setting of a name; the names are ours to know.
func compatSettingOf(name string) (s compatSetting) {
	for i := range compatSettings {
		if compatSettings[i].name == name {
			return compatSettings[i]
		}
	}
	return s
}

const (
	noStatsd    = "Weir sends nothing to statsd: its metrics are at /metrics of the HTTP address, in the form of Prometheus"
	noDebug     = "nothing listens there: /debug/pprof, /metrics and the versions of the rules in force (/rules) are at the HTTP address"
	oneStore    = "one store holds all counters; a Redis apart for limits by the second is not needed, since counters leave it with their windows"
	noMemcache  = "Weir keeps counters in Redis or in memory"
	streamRetry = "Weir comes back to the control plane by itself, after half a second and up to some seconds"
)

// compatSettings are all of them, as its src/settings/settings.go has them.
var compatSettings = [...]compatSetting{
	{"HOST", heeded, "0.0.0.0", "http-addr", "", "with PORT"},
	{"PORT", heeded, "8080", "http-addr", "", "with HOST"},
	{"DEBUG_HOST", ignored, "0.0.0.0", "", "", noDebug},
	{"DEBUG_PORT", ignored, "6070", "", "", noDebug},

	{"GRPC_UDS", heeded, "", "grpc-addr", "", "as `unix:PATH`"},
	{"GRPC_HOST", heeded, "0.0.0.0", "grpc-addr", "", "with GRPC_PORT"},
	{"GRPC_PORT", heeded, "8081", "grpc-addr", "", "with GRPC_HOST"},
	{"GRPC_MAX_CONNECTION_AGE", heeded, "24h", "max-connection-age", "", ""},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", ignored, "1h", "", "", "calls on a connection that closes have half a minute to end"},
	{"GRPC_SERVER_USE_TLS", heeded, "false", "http-tls", "", "`off`: HTTP stays plain, as there"},
	{"GRPC_SERVER_TLS_CERT", heeded, "", "tls-cert", "GRPC_SERVER_USE_TLS", ""},
	{"GRPC_SERVER_TLS_KEY", heeded, "", "tls-key", "GRPC_SERVER_USE_TLS", ""},
	{"GRPC_CLIENT_TLS_CACERT", heeded, "", "tls-client-ca", "GRPC_SERVER_USE_TLS", ""},
	{"GRPC_CLIENT_TLS_SAN", heeded, "", "tls-client-san", "GRPC_SERVER_USE_TLS", ""},

	{"LOG_LEVEL", heeded, "WARN", "log-level", "", "`trace` is `debug`; `fatal` and `panic` are `error`. Left out: `info`"},
	{"LOG_FORMAT", heeded, "text", "log-format", "", ""},

	{"CONFIG_TYPE", heeded, "FILE", "rules", "", "FILE: the folder of the RUNTIME names; GRPC_XDS_SOTW: the control plane"},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", ignored, "false", "", "", "gRPC is served when rules are loaded; --rules-cache lets an instance start without the control plane"},
	{"CONFIG_GRPC_XDS_NODE_ID", heeded, "default", "xds-node-id", "CONFIG_TYPE=GRPC_XDS_SOTW", ""},
	{"CONFIG_GRPC_XDS_NODE_METADATA", ignored, "", "", "CONFIG_TYPE=GRPC_XDS_SOTW", "Weir sends the control plane a node id and no metadata"},
	{"CONFIG_GRPC_XDS_SERVER_URL", heeded, "localhost:18000", "rules", "CONFIG_TYPE=GRPC_XDS_SOTW", "as `xds://host:port`"},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", ignored, "3s", "", "CONFIG_TYPE=GRPC_XDS_SOTW", streamRetry},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", refused, "", "rules", "CONFIG_TYPE=GRPC_XDS_SOTW", "Weir sends the control plane no headers; have it know this client by its certificate, or give --rules"},
	{"CONFIG_GRPC_XDS_SERVER_USE_TLS", heeded, "false", "rules", "CONFIG_TYPE=GRPC_XDS_SOTW", "as `xds+tls://host:port`"},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", heeded, "", "xds-cert-file", "CONFIG_GRPC_XDS_SERVER_USE_TLS", ""},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", heeded, "", "xds-key-file", "CONFIG_GRPC_XDS_SERVER_USE_TLS", ""},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", heeded, "", "xds-ca-file", "CONFIG_GRPC_XDS_SERVER_USE_TLS", "the system's certificates are not trusted beside it"},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", heeded, "", "xds-tls-server-name", "CONFIG_GRPC_XDS_SERVER_USE_TLS", ""},
	{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", ignored, "10s", "", "CONFIG_TYPE=GRPC_XDS_SOTW", streamRetry},
	{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", ignored, "60s", "", "CONFIG_TYPE=GRPC_XDS_SOTW", streamRetry},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", ignored, "0.5", "", "CONFIG_TYPE=GRPC_XDS_SOTW", streamRetry},
	{"XDS_CLIENT_BACKOFF_JITTER", ignored, "true", "", "CONFIG_TYPE=GRPC_XDS_SOTW", streamRetry},
	{"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", ignored, "", "", "CONFIG_TYPE=GRPC_XDS_SOTW", "Weir takes large messages without being told"},

	{"USE_DOG_STATSD", ignored, "false", "", "", noStatsd},
	{"USE_DOG_STATSD_MOGRIFIERS", ignored, "", "", "USE_DOG_STATSD", noStatsd},
	{"USE_STATSD", silent, "true", "", "", noStatsd + "; the log says so unless it is false, or USE_PROMETHEUS is true"},
	{"STATSD_HOST", silent, "localhost", "", "", noStatsd},
	{"STATSD_PORT", silent, "8125", "", "", noStatsd},
	{"EXTRA_TAGS", ignored, "", "", "", "Prometheus adds labels to what it fetches, by its own configuration"},
	{"STATS_FLUSH_INTERVAL", silent, "10s", "", "", "metrics are of the moment in which they are fetched"},
	{"DISABLE_STATS", heeded, "false", "metrics", "", "true: `off`"},
	{"USE_PROMETHEUS", heeded, "false", "metrics-addr", "", "true: PROMETHEUS_ADDR; metrics have [names of their own](metrics.md), so dashboards and alerts change"},
	{"PROMETHEUS_ADDR", heeded, ":9090", "metrics-addr", "USE_PROMETHEUS", ""},
	{"PROMETHEUS_PATH", heeded, "/metrics", "metrics-path", "USE_PROMETHEUS", ""},
	{"PROMETHEUS_MAPPER_YAML", ignored, "", "", "USE_PROMETHEUS", "metrics have names and labels without a mapping"},
	{"NEAR_LIMIT_RATIO", heeded, "0.8", "near-limit-ratio", "", ""},

	{"RUNTIME_ROOT", heeded, "/srv/runtime_data/current", "rules", "", "the folder is RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY; of it, `*.yaml` and `*.yml`"},
	{"RUNTIME_SUBDIRECTORY", heeded, "", "rules", "", "with RUNTIME_ROOT"},
	{"RUNTIME_APPDIRECTORY", heeded, "config", "rules", "", "with RUNTIME_ROOT"},
	{"RUNTIME_IGNOREDOTFILES", silent, "false", "", "", "files and folders whose names begin with a dot are never read"},
	{"RUNTIME_WATCH_ROOT", silent, "true", "", "", "files and links are watched, wherever they change, and read again every --reload-interval"},

	{"EXPIRATION_JITTER_MAX_SECONDS", ignored, "300", "", "", "a key leaves Redis when it says nothing any more"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", ignored, "0", "", "", "the cache of refusals is --deny-cache, on by default; it never answers for limits that count refused requests, as all do here"},
	{"CACHE_KEY_PREFIX", heeded, "", "key-prefix", "", "left out: `weir:`"},
	{"BACKEND_TYPE", refused, "redis", "store", "", noMemcache + ": set BACKEND_TYPE=redis and REDIS_URL, or give --store"},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", heeded, "false", "charge", "", "`all-or-nothing`: a refused request charges the limits that refuse it, and no others"},

	{"LIMIT_RESPONSE_HEADERS_ENABLED", heeded, "false", "headers", "", "false: `none`"},
	{"LIMIT_LIMIT_HEADER", heeded, "RateLimit-Limit", "header-names", "LIMIT_RESPONSE_HEADERS_ENABLED", "its `limit`"},
	{"LIMIT_REMAINING_HEADER", heeded, "RateLimit-Remaining", "header-names", "LIMIT_RESPONSE_HEADERS_ENABLED", "its `remaining`"},
	{"LIMIT_RESET_HEADER", heeded, "RateLimit-Reset", "header-names", "LIMIT_RESPONSE_HEADERS_ENABLED", "its `reset`"},

	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", silent, "false", "", "", "an instance is never ready before its rules are loaded"},

	{"REDIS_SOCKET_TYPE", heeded, "unix", "store", "", "`tcp` or `unix`; left out, REDIS_URL tells"},
	{"REDIS_TYPE", heeded, "SINGLE", "store", "", "`redis://`, `redis+sentinel://`, `redis+cluster://`"},
	{"REDIS_URL", heeded, "/var/run/nutcracker/ratelimit.sock", "store", "", "left out: `memory`"},
	{"REDIS_POOL_SIZE", ignored, "10", "", "", "calls share connections; --store takes pool_size=N in its query"},
	{"REDIS_AUTH", heeded, "", "store", "", "`PASSWORD` or `USER:PASSWORD`"},
	{"REDIS_TLS", heeded, "false", "store", "", "`rediss://`, or `tls=true`"},
	{"REDIS_TLS_CLIENT_CERT", heeded, "", "store-cert-file", "REDIS_TLS", ""},
	{"REDIS_TLS_CLIENT_KEY", heeded, "", "store-key-file", "REDIS_TLS", ""},
	{"REDIS_TLS_CACERT", heeded, "", "store-ca-file", "REDIS_TLS", "the system's certificates are not trusted beside it"},
	{"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", heeded, "false", "store-tls-server-name", "REDIS_TLS", "`*`: its authority is verified, and not its name"},
	{"REDIS_PIPELINE_WINDOW", ignored, "0", "", "", "calls that come at the same time share a round trip anyway"},
	{"REDIS_PIPELINE_LIMIT", ignored, "0", "", "", "calls that come at the same time share a round trip anyway"},
	{"REDIS_SENTINEL_AUTH", heeded, "", "store", "REDIS_TYPE=SENTINEL", "`PASSWORD` or `USER:PASSWORD`"},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", ignored, "false", "", "", "an instance without Redis still decides, by --on-store-failure; gRPC health tells of Redis as weir.store"},
	{"REDIS_TIMEOUT", heeded, "10s", "store-timeout", "", "left out: `10ms`, half of what Envoy waits"},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", ignored, "WAIT", "", "", "calls wait for a connection as long as --store-timeout lets them"},

	{"REDIS_PERSECOND", ignored, "false", "", "", oneStore},
	{"REDIS_PERSECOND_SOCKET_TYPE", silent, "unix", "", "", oneStore},
	{"REDIS_PERSECOND_TYPE", silent, "SINGLE", "", "", oneStore},
	{"REDIS_PERSECOND_URL", silent, "/var/run/nutcracker/ratelimitpersecond.sock", "", "", oneStore},
	{"REDIS_PERSECOND_POOL_SIZE", silent, "10", "", "", oneStore},
	{"REDIS_PERSECOND_AUTH", silent, "", "", "", oneStore},
	{"REDIS_PERSECOND_TLS", silent, "false", "", "", oneStore},
	{"REDIS_PERSECOND_SENTINEL_AUTH", silent, "", "", "", oneStore},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", silent, "0", "", "", oneStore},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", silent, "0", "", "", oneStore},
	{"REDIS_PERSECOND_TIMEOUT", silent, "10s", "", "", oneStore},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", silent, "WAIT", "", "", oneStore},

	{"MEMCACHE_HOST_PORT", ignored, "", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_MAX_IDLE_CONNS", ignored, "2", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_SRV", ignored, "", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_SRV_REFRESH", ignored, "0", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_TLS", ignored, "false", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_TLS_CLIENT_CERT", ignored, "", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_TLS_CLIENT_KEY", ignored, "", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_TLS_CACERT", ignored, "", "", "BACKEND_TYPE=memcache", noMemcache},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", ignored, "false", "", "BACKEND_TYPE=memcache", noMemcache},

	{"SHADOW_MODE", heeded, "false", "shadow", "", ""},
	{"QUOTA_MODE", heeded, "false", "shadow", "", "nothing is refused; statuses say OVER_LIMIT where theirs say OK"},
	{"RESPONSE_DYNAMIC_METADATA", heeded, "false", "dynamic-metadata", "", "`envoyproxy`"},
	{"MERGE_DOMAIN_CONFIG", silent, "false", "", "", "files of the same domain always merge"},

	{"TRACING_ENABLED", otherName, "false", "OTEL_TRACES_EXPORTER", "", "`otlp`"},
	{"TRACING_SERVICE_NAME", otherName, "RateLimit", "OTEL_SERVICE_NAME", "TRACING_ENABLED", ""},
	{"TRACING_SERVICE_NAMESPACE", otherName, "", "OTEL_RESOURCE_ATTRIBUTES", "TRACING_ENABLED", "its `service.namespace`"},
	{"TRACING_SERVICE_INSTANCE_ID", otherName, "", "OTEL_RESOURCE_ATTRIBUTES", "TRACING_ENABLED", "its `service.instance.id`"},
	{"TRACING_EXPORTER_PROTOCOL", otherName, "http", "OTEL_EXPORTER_OTLP_PROTOCOL", "TRACING_ENABLED", "`http` is `http/protobuf`"},
	{"TRACING_SAMPLING_RATE", otherName, "1", "OTEL_TRACES_SAMPLER", "TRACING_ENABLED", "`parentbased_traceidratio`"},
}
