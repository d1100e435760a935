package redis

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Schemes lists the URLs that Open takes.
func Schemes() []string {
	return []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"}
}

// dial returns a client for a URL:
//
//	redis://[user:password@]host[:port][/db]      rediss:// with TLS
//	unix://[user:password@]/path/to/socket[?db=N]
//	redis+sentinel://[user:password@]host[:port],…/MASTER[/db]
//	redis+cluster://[user:password@]host[:port],…      both: ?tls=true with TLS
//
// It does not connect yet. Timeouts and retries of the URL give way to ours.
func dial(text string, timeout time.Duration) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, fmt.Errorf("%q is no URL such as redis://host:6379", Redact(text))
	}
	switch scheme {
	case "redis", "rediss", "unix":
		o, err := redis.ParseURL(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Redact(text), err)
		}
		return redis.NewClient(tune(o, timeout)), nil
	case "redis+sentinel", "redis+cluster":
		return dialMany(scheme, rest, timeout)
	}
	return nil, fmt.Errorf("scheme %s:// is unknown; allowed: %s", scheme, strings.Join(Schemes(), "://, ")+"://")
}

// dialMany reads the URLs that name several hosts, which net/url cannot: all but
// the first host are cut out, and the rest is read as a plain URL.
func dialMany(scheme, rest string, timeout time.Duration) (redis.UniversalClient, error) {
	authority, path, _ := strings.Cut(rest, "/")
	userinfo := ""
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		userinfo, authority = authority[:i+1], authority[i+1:]
	}
	authority, query, hasQuery := strings.Cut(authority, "?")
	if hasQuery {
		path = "?" + query
	} else {
		path = "/" + path
	}
	u, err := url.Parse("redis://" + userinfo + "host" + path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(scheme+"://"+rest), err)
	}
	secure := "redis"
	if u.Query().Get("tls") == "true" {
		secure = "rediss"
	}
	hosts := strings.Split(authority, ",")
	for i, h := range hosts {
		if h == "" {
			return nil, fmt.Errorf("%s: a host is empty", Redact(scheme+"://"+rest))
		}
		if !strings.Contains(h, ":") || strings.HasSuffix(h, "]") {
			hosts[i] = h + ":" + map[string]string{"redis+sentinel": "26379", "redis+cluster": "6379"}[scheme]
		}
	}
	master, db, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	if scheme == "redis+cluster" {
		if master != "" {
			return nil, fmt.Errorf("%s: a cluster has no %q: its only database is 0", Redact(scheme+"://"+rest), master)
		}
		db = ""
	} else if master == "" {
		return nil, fmt.Errorf("%s: the master's name is missing: redis+sentinel://host:26379/MASTER", Redact(scheme+"://"+rest))
	}
	first, err := redis.ParseURL(secure + "://" + userinfo + hosts[0] + "/" + db)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(scheme+"://"+rest), err)
	}
	tune(first, timeout)
	all := &redis.UniversalOptions{
		Addrs: hosts, DB: first.DB, Username: first.Username, Password: first.Password, TLSConfig: first.TLSConfig,
		DialTimeout: first.DialTimeout, ReadTimeout: first.ReadTimeout, WriteTimeout: first.WriteTimeout, PoolTimeout: first.PoolTimeout,
		MaxRetries: first.MaxRetries, DisableIdentity: true, Protocol: first.Protocol,
		IsClusterMode: scheme == "redis+cluster",
	}
	if scheme == "redis+sentinel" {
		all.MasterName = master
	}
	return redis.NewUniversalClient(all), nil
}

// tune gives a client our care: nothing waits longer than the store's timeout,
// and nothing is sent twice, since a charge whose answer was lost may have been
// made.
func tune(o *redis.Options, timeout time.Duration) *redis.Options {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.MaxRetries = -1
	o.DisableIdentity = true
	o.ContextTimeoutEnabled = false
	return o
}

// Redact hides the password of a URL.
func Redact(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	i := strings.LastIndex(rest, "@")
	if i < 0 {
		return text
	}
	user, _, _ := strings.Cut(rest[:i], ":")
	return scheme + "://" + user + ":…@" + rest[i+1:]
}
