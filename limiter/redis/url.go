package redis

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Schemes lists the URLs that Open takes.
func Schemes() []string {
	return []string{"redis", "rediss", "unix", "redis+sentinel", "redis+cluster"}
}

// address is a URL in its parts. net/url cannot read several hosts, and puts
// passwords into its errors.
type address struct {
	scheme         string
	user, password string
	hosts          string // all of them, as written
	path           string
	query          string
}

// DialOptions are what a client needs beside the URL.
type DialOptions struct {
	Timeout time.Duration // for each answer, and for a connection; required
	TLS     TLSFiles      // for a URL that says TLS
}

// Dial returns a client for a URL, which waits for each answer up to the timeout
// and retries nothing:
//
//	redis://[user:password@][host[:port]][/db]      rediss:// with TLS
//	unix://[user:password@]/path/to/socket[?db=N]
//	redis+sentinel://[user:password@]host[:port],…/MASTER[/db]
//	redis+cluster://[user:password@]host[:port],…      both: ?tls=true with TLS
//
// With TLS, ?skip_verify=true takes any certificate. Sentinels that want a password
// of their own get it by ?sentinel_password= and ?sentinel_user=. The others of
// go-redis's options go with the first two lines, but timeouts and retries give way
// to ours. It does not connect yet. It fails with ErrURL if the URL is malformed or
// does not go with the TLS files, else if those cannot be used.
func Dial(text string, opts DialOptions) (redis.UniversalClient, error) {
	a, err := split(text)
	if err == nil {
		var client redis.UniversalClient
		switch a.scheme {
		case "redis", "rediss", "unix":
			client, err = a.one(opts)
		default:
			client, err = a.many(opts)
		}
		if err == nil {
			return client, nil
		}
		if errors.Is(err, errTLSFiles) {
			return nil, err
		}
	}
	if text == "" {
		text = "an empty text"
	}
	return nil, fmt.Errorf("%w: %s: %w", ErrURL, Redact(text), err)
}

var (
	errNoURL   = errors.New("a URL such as redis://host:6379 is wanted")
	errEscape  = errors.New("user and password are to be percent-encoded, such as %2F for a slash")
	errTooMany = errors.New("several hosts are for redis+cluster://host,… and redis+sentinel://host,…/MASTER")
	errPort    = errors.New("a port is a number from 1 to 65535")
)

func split(text string) (a address, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || strings.ContainsAny(scheme, ":@/") {
		return a, errNoURL
	}
	known := false
	for _, s := range Schemes() {
		known = known || s == scheme
	}
	if !known {
		return a, fmt.Errorf("scheme %s:// is unknown; allowed: %s", scheme, strings.Join(Schemes(), "://, ")+"://")
	}
	if strings.Contains(rest, "#") {
		return a, errors.New("nothing may follow a #; in a password it is %23")
	}
	a.scheme = scheme
	rest, a.query, _ = strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	if hasPath {
		a.path = "/" + path
	}
	if scheme != "unix" && strings.Contains(a.path, "@") || strings.Contains(a.query, "@") { // what is before it may be a password
		return a, errEscape
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		authority = authority[i+1:]
		if a.user, err = unescape(user); err == nil {
			a.password, err = unescape(password)
		}
	}
	a.hosts = authority
	return a, err
}

func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil || strings.ContainsAny(text, " \t\r\n") {
		return "", errEscape
	}
	return plain, nil
}

// one is a client for a URL with one host, or a socket.
func (a *address) one(opts DialOptions) (redis.UniversalClient, error) {
	plain := a.scheme + "://"
	switch {
	case a.scheme == "unix" && (a.hosts != "" || strings.Trim(a.path, "/") == ""):
		return nil, errors.New("the path of a socket is wanted after three slashes: unix:///path/to/socket")
	case a.scheme == "unix":
		plain += a.path
	case strings.Contains(a.hosts, ","):
		return nil, errTooMany
	default:
		host := a.hosts
		if host == "" || strings.HasPrefix(host, ":") && strings.Count(host, ":") == 1 {
			host = "localhost" + host
		}
		host, err := hostPort(host, "6379")
		if err != nil {
			return nil, err
		}
		db, err := database(strings.TrimPrefix(a.path, "/"))
		if err != nil {
			return nil, err
		}
		plain += fmt.Sprintf("%s/%d", host, db)
	}
	if a.query != "" {
		plain += "?" + a.query
	}
	o, err := redis.ParseURL(plain)
	if err != nil {
		return nil, err
	}
	if o.DB < 0 {
		return nil, errDatabase
	}
	o.Username, o.Password = a.user, a.password
	tune(o, opts.Timeout)
	if o.Dialer, err = opts.TLS.dialer(o); err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// many is a client for the nodes of a cluster, or for what sentinels watch.
func (a *address) many(opts DialOptions) (redis.UniversalClient, error) {
	sentinel := a.scheme == "redis+sentinel"
	port := "6379"
	if sentinel {
		port = "26379"
	}
	var hosts []string
	for host := range strings.SplitSeq(a.hosts, ",") {
		host, err := hostPort(host, port)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	query, err := a.options(sentinel)
	if err != nil {
		return nil, err
	}
	master, db, _ := strings.Cut(strings.Trim(a.path, "/"), "/")
	if !sentinel && master != "" {
		return nil, errors.New("a cluster has no path: its only database is 0")
	}
	if sentinel && master == "" {
		return nil, errors.New("the master's name is missing: redis+sentinel://host:26379/MASTER")
	}
	o, err := redis.ParseURL(query.plain)
	if err != nil {
		return nil, err
	}
	if o.DB, err = database(db); err != nil {
		return nil, err
	}
	tune(o, opts.Timeout)
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each node answers to its own
	}
	dialer, err := opts.TLS.dialer(o)
	if err != nil {
		return nil, err
	}
	all := &redis.UniversalOptions{
		Addrs: hosts, DB: o.DB, Username: a.user, Password: a.password, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolTimeout: o.PoolTimeout,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, DisableIdentity: true, Protocol: o.Protocol,
		IsClusterMode: !sentinel, Dialer: dialer,
		SentinelUsername: query.sentinelUser, SentinelPassword: query.sentinelPassword,
	}
	if sentinel {
		all.MasterName = master
	}
	return redis.NewUniversalClient(all), nil
}

// severalOptions is the query of a URL with several hosts.
type severalOptions struct {
	plain                          string // the URL of one host with the same TLS
	sentinelUser, sentinelPassword string
}

func (a *address) options(sentinel bool) (o severalOptions, err error) {
	query, err := url.ParseQuery(a.query)
	if err != nil {
		return o, errors.New("what follows the ? is no query such as tls=true")
	}
	var encrypted, unverified bool
	for name, values := range query {
		value := values[len(values)-1]
		var on *bool
		switch {
		case name == "tls":
			on = &encrypted
		case name == "skip_verify":
			on = &unverified
		case name == "sentinel_user" && sentinel:
			o.sentinelUser = value
		case name == "sentinel_password" && sentinel:
			o.sentinelPassword = value
		case sentinel:
			return o, fmt.Errorf("option %q is unknown; allowed: tls, skip_verify, sentinel_user, sentinel_password", name)
		default:
			return o, fmt.Errorf("option %q is unknown; allowed: tls, skip_verify", name)
		}
		if on == nil {
			continue
		}
		if *on, err = strconv.ParseBool(value); err != nil {
			return o, fmt.Errorf("option %s is true or false, not %q", name, value)
		}
	}
	switch {
	case encrypted && unverified:
		o.plain = "rediss://host?skip_verify=true"
	case encrypted:
		o.plain = "rediss://host"
	default:
		o.plain = "redis://host"
	}
	return o, nil
}

// hostPort checks a host, with or without a port.
func hostPort(text, defaultPort string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	switch {
	case strings.Count(text, ":") > 1 && !strings.HasPrefix(text, "["):
		return "", errors.New("an IPv6 address stands in brackets, such as [::1]:6379")
	case err != nil: // it has no port
		host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), defaultPort
	case port == "":
		port = defaultPort
	}
	if host == "" {
		return "", errors.New("a host is empty")
	}
	if strings.ContainsAny(host, " \t\r\n[]%<>\"\\^`{|}") {
		return "", errors.New("a host has characters that no host has")
	}
	if strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", errors.New("what stands in brackets is no IPv6 address")
	}
	if err := checkPort(port); err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errPort
	}
	return nil
}

var errDatabase = errors.New("a database is a whole number, as in redis://host:6379/0")

func database(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "/"), 10, 31)
	if err != nil {
		return 0, errDatabase
	}
	return int(n), nil
}

// tune gives a client our care: nothing waits longer than the store's timeout,
// and nothing is sent twice, since a charge whose answer was lost may have been
// made.
func tune(o *redis.Options, timeout time.Duration) {
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DisableIdentity = true
	o.ContextTimeoutEnabled = false
	if o.Protocol == 0 {
		o.Protocol = 2 // in the third the client looks for pushed messages before each answer, and we use none
	}
}

// sentinelPassword is one in a query.
var sentinelPassword = regexp.MustCompile(`(sentinel_password=)[^&#]*`)

// Redact hides the passwords of a URL, and all that may be one.
func Redact(text string) string {
	text = sentinelPassword.ReplaceAllString(text, "${1}…")
	i := strings.LastIndex(text, "@")
	if i < 0 {
		return text
	}
	scheme, rest, ok := strings.Cut(text[:i], "://")
	if !ok || strings.ContainsAny(scheme, ":@/") {
		return "…@" + text[i+1:]
	}
	user, _, ok := strings.Cut(rest, ":")
	if !ok { // a password, where the colon was forgotten
		return scheme + "://…@" + text[i+1:]
	}
	return scheme + "://" + user + ":…@" + text[i+1:]
}
