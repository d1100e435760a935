package main

import (
	"cmp"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"weir/limiter"
	"weir/limiter/redis"
	"weir/rules/consul"
	"weir/server"
)

// memoryStore is the --store of counters in this process.
const memoryStore = "memory"

// defaultService is the name that instances are registered under in Consul.
const defaultService = "weir"

// serveConfig is what the flags of serve say.
type serveConfig struct {
	rules          []string
	rulesCache     string
	reloadInterval time.Duration
	remote         remoteFlags

	register, registerService, registerAddr string

	store             string
	storeTLS          redis.TLSFiles
	storeTimeout      time.Duration
	denyCache         time.Duration
	keyPrefix         string
	keySecretOf       keySecretFlags
	keySecret         []byte // as keySecretOf says
	memoryMaxCounters int
	onStoreFailure    choice

	grpcAddr, httpAddr string
	drainDelay         time.Duration
	maxConnectionAge   time.Duration
	reflection         bool
	metricsAt          metricsAddrFlags
	tls                tlsFlags
	admin              adminFlags

	answer      answerFlags
	charge      choice
	countDenied bool
	shadow      bool
	maxHeld     int
	maxInFlight int
	compat      choice
	compatSaid  compatSaid // by the environment that --compat reads

	queue   queueFlags
	metrics metricsFlags
	logs    logFlags
}

func (c *serveConfig) addFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.rules, "rules", nil, "where rules come from: a file or a folder, consul://host:port/PREFIX, etcd://host:port,…/PREFIX or xds://host:port (repeatable; live when they change; default: an embedded sample)")
	f.StringVar(&c.rulesCache, "rules-cache", "", "a folder to keep the last good rules of Consul, etcd and xDS in, for a start without them")
	c.remote.addFlags(f)
	f.DurationVar(&c.reloadInterval, "reload-interval", 10*time.Second, "read rule files again so often, should a change go unnoticed")

	f.StringVar(&c.store, "store", memoryStore, "where counters live: memory, or Redis by redis://, rediss://, unix://, redis+sentinel://host,…/MASTER, redis+cluster://host,…")
	addStoreTLSFlags(f, &c.storeTLS)
	f.DurationVar(&c.storeTimeout, "store-timeout", redis.DefaultTimeout, "the longest wait for Redis; the failure policy answers then")
	f.DurationVar(&c.denyCache, "deny-cache", redis.DefaultDenyCache, "how long a refusal by Redis is remembered at most, so that a hot refused counter costs no Redis (0: not)")
	f.StringVar(&c.keyPrefix, "key-prefix", redis.DefaultKeyPrefix, "what every key in Redis begins with")
	c.keySecretOf.addFlags(f, "")
	f.IntVar(&c.memoryMaxCounters, "memory-max-counters", limiter.DefaultMaxCounters, "counters that the memory store holds at most")
	c.onStoreFailure = choice{limiter.FailurePolicyNames(), limiter.FailLocal.String()}
	f.Var(&c.onStoreFailure, "on-store-failure", "what to answer for a counter that the store cannot reach or has no room for (a full memory store: local allows)")

	f.StringVar(&c.grpcAddr, "grpc-addr", "127.0.0.1:8081", "where to serve gRPC: host:port or unix:PATH")
	f.StringVar(&c.httpAddr, "http-addr", "127.0.0.1:8080", "where to serve HTTP: host:port or unix:PATH")
	c.metricsAt.addFlags(f)
	f.DurationVar(&c.drainDelay, "drain-delay", 500*time.Millisecond, "on stop, how long to say NOT_SERVING and still serve, so that clients turn elsewhere")
	f.DurationVar(&c.maxConnectionAge, "max-connection-age", 0, "close gRPC connections gently at about this age, so that load spreads over instances (0: never)")
	f.BoolVar(&c.reflection, "reflection", false, "let gRPC clients list the services")
	c.tls.addFlags(f)
	c.admin.addFlags(f)

	f.StringVar(&c.register, "register", "", "register this instance in Consul, with its gRPC health check: consul://host:port of the agent")
	f.StringVar(&c.registerService, "register-service", defaultService, "the name of the service to register under")
	f.StringVar(&c.registerAddr, "register-addr", "", "host:port at which others reach this instance's gRPC (default: --grpc-addr)")

	c.answer.addFlags(f)
	c.charge = choice{[]string{"all-or-nothing", "each"}, "all-or-nothing"}
	f.Var(&c.charge, "charge", "a request that one limit refuses charges no limit, or each that lets it pass")
	f.BoolVar(&c.countDenied, "count-denied", false, "refused requests count too, for rules that do not say")
	f.BoolVar(&c.shadow, "shadow", false, "never refuse and never hold; statuses and metadata tell what would have been")
	f.IntVar(&c.maxHeld, "max-held", server.DefaultMaxHeld, "requests that leaky buckets hold at once at most")
	f.IntVar(&c.maxInFlight, "max-in-flight", server.DefaultMaxInFlight, "requests that wait for the store at once at most; more are refused with RESOURCE_EXHAUSTED, and Envoy's failure mode decides (0: any number)")
	c.compat = choice{[]string{"none", "envoyproxy"}, "none"}
	f.Var(&c.compat, "compat", "envoyproxy: charge and count as envoyproxy/ratelimit does (--charge each --count-denied), and read its environment; flags and WEIR_ names win")

	c.queue.addFlags(f)
	c.metrics.addFlags(f)
	c.logs.addFlags(f)
	c.logs.addRefusals(f)
}

// complete checks what flags alone cannot, and applies --compat, than which the
// flags that it stands for are stronger.
func (c *serveConfig) complete(f *pflag.FlagSet) error {
	if c.compat.value == "envoyproxy" {
		var err error
		if c.compatSaid, err = applyCompat(f, os.LookupEnv); err != nil {
			return err
		}
	}
	if err := cmp.Or(c.checkRules(), c.checkRegister(), c.answer.complete(), c.tls.complete(f), c.admin.complete(f), c.queue.complete(c.store), checkStoreTLS(f, c.store), c.metrics.complete()); err != nil {
		return err
	}
	var err error
	if c.keySecret, err = c.keySecretOf.secret(f); err != nil {
		return err
	}
	if err := cmp.Or(checkAddr("--grpc-addr", c.grpcAddr), checkAddr("--http-addr", c.httpAddr), c.metricsAt.complete(f)); err != nil {
		return err
	}
	switch {
	case c.memoryMaxCounters < 1:
		return usagef("--memory-max-counters %d: it is 1 at least", c.memoryMaxCounters)
	case c.reloadInterval < time.Millisecond:
		return usagef("--reload-interval %v: it is 1ms at least", c.reloadInterval)
	case c.storeTimeout <= 0:
		return usagef("--store-timeout %v: it is over 0", c.storeTimeout)
	case c.denyCache < 0:
		return usagef("--deny-cache %v: it is 0 at least", c.denyCache)
	case c.keyPrefix == "":
		return usagef("--key-prefix is empty; give one, such as %s", redis.DefaultKeyPrefix)
	case c.drainDelay < 0:
		return usagef("--drain-delay %v: it is 0 at least", c.drainDelay)
	case c.maxConnectionAge < 0:
		return usagef("--max-connection-age %v: it is 0 at least", c.maxConnectionAge)
	case c.maxInFlight < 0:
		return usagef("--max-in-flight %d: it is 0 at least", c.maxInFlight)
	case c.logs.refused < 0:
		return usagef("--log-refused %d: it is 0 at least", c.logs.refused)
	case c.maxHeld < 0:
		return usagef("--max-held %d: it is 0 at least", c.maxHeld)
	}
	return nil
}

func (c *serveConfig) checkRules() error {
	seen := map[string]bool{}
	for _, name := range c.rules {
		switch {
		case name == "":
			return usagef("--rules is empty; give a file or a folder, consul://host:port/PREFIX, etcd://host:port/PREFIX or xds://host:port")
		case seen[name]:
			return usagef("--rules %s is given twice", name)
		case strings.Contains(name, "://"):
			if err := checkRemote(name); err != nil {
				return usagef("--rules %s: %w", redis.Redact(name), err)
			}
		}
		seen[name] = true
	}
	return nil
}

func (c *serveConfig) checkRegister() error {
	if c.register == "" {
		return nil
	}
	_, rest, _ := strings.Cut(c.register, "://")
	_, _, err := consul.ParseURL(c.register)
	if err == nil && strings.Contains(rest, "/") {
		err = errors.New("no path belongs to it; the service's name is --register-service")
	}
	if err != nil {
		return usagef("--register %s: it is consul://host:port or consul+https://host:port of the agent on this machine: %w", redis.Redact(c.register), err)
	}
	if strings.HasPrefix(c.grpcAddr, "unix:") && c.registerAddr == "" {
		return usagef("--register: others cannot reach --grpc-addr %s; give --register-addr host:port", c.grpcAddr)
	}
	if c.registerAddr != "" {
		return checkAddr("--register-addr", c.registerAddr)
	}
	return nil
}

// checkAddr says what is wrong with an address. Its host is looked up only when
// it is used.
func checkAddr(flag, addr string) error {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok && path != "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(addr); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return nil
		}
	}
	return usagef("%s %q: it is host:port or unix:PATH", flag, addr)
}

// failurePolicy cannot fail: the flag took only names of policies.
func (c *serveConfig) failurePolicy() limiter.FailurePolicy {
	p, _ := limiter.ParseFailurePolicy(c.onStoreFailure.value)
	return p
}
