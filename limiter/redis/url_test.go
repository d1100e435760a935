package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"weir/limiter"
)

func TestURLsNameAnyRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		want string // network, address, user, password, db, TLS, as wordsOf has them
	}{
		{"redis://host", "tcp host:6379 db=0"},
		{"redis://", "tcp localhost:6379 db=0"},
		{"redis://:1234", "tcp localhost:1234 db=0"},
		{"redis://host:1234/5", "tcp host:1234 db=5"},
		{"redis://:secret@host", "tcp host:6379 password=secret db=0"},
		{"redis://weir:se%40cr%2Fet@host", "tcp host:6379 user=weir password=se@cr/et db=0"},
		{"redis://[::1]", "tcp [::1]:6379 db=0"},
		{"redis://[::1]:1234/1", "tcp [::1]:1234 db=1"},
		{"rediss://host", "tcp host:6379 db=0 tls=host"},
		{"rediss://weir:secret@[::1]:1234/2", "tcp [::1]:1234 user=weir password=secret db=2 tls=::1"},
		{"rediss://host?skip_verify=true", "tcp host:6379 db=0 tls=host unverified"},
		{"unix:///run/redis.sock", "unix /run/redis.sock db=0"},
		{"unix://weir:secret@/run/redis.sock?db=3", "unix /run/redis.sock user=weir password=secret db=3"},
		{"redis+cluster://host", "cluster host:6379"},
		{"redis+cluster://a,b:1234,[::1],[::1]:1234", "cluster a:6379,b:1234,[::1]:6379,[::1]:1234"},
		{"redis+cluster://weir:secret@a,b/", "cluster a:6379,b:6379 user=weir password=secret"},
		{"redis+cluster://a,b?tls=true", "cluster a:6379,b:6379 tls="},
		{"redis+cluster://a,b/?tls=true&skip_verify=true", "cluster a:6379,b:6379 tls= unverified"},
		{"redis+cluster://a,b?tls=false", "cluster a:6379,b:6379"},
		{"redis+sentinel://a,b:1234/main", "sentinel db=0"},
		{"redis+sentinel://weir:secret@a,[::1]/main/4?tls=true", "sentinel user=weir password=secret db=4 tls="},
	} {
		client, err := Dial(c.url, DialOptions{Timeout: time.Second})
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got := wordsOf(client); got != c.want {
			t.Errorf("%s is taken for %q, want %q", c.url, got, c.want)
		}
		_ = client.Close()
	}
}

// wordsOf describes a client's options.
func wordsOf(client goredis.UniversalClient) string {
	if c, ok := client.(*goredis.ClusterClient); ok {
		o := c.Options()
		return strings.Join(append([]string{"cluster", strings.Join(o.Addrs, ",")}, credentials(o.Username, o.Password, o.TLSConfig, "")...), " ")
	}
	o := client.(*goredis.Client).Options()
	words := []string{o.Network, o.Addr}
	if o.Addr == "FailoverClient" {
		words = []string{"sentinel"}
	}
	return strings.Join(append(words, credentials(o.Username, o.Password, o.TLSConfig, "db="+string(rune('0'+o.DB)))...), " ")
}

func credentials(user, password string, c *tls.Config, db string) (words []string) {
	if user != "" {
		words = append(words, "user="+user)
	}
	if password != "" {
		words = append(words, "password="+password)
	}
	if db != "" {
		words = append(words, db)
	}
	if c != nil {
		words = append(words, "tls="+c.ServerName)
		if c.InsecureSkipVerify {
			words = append(words, "unverified")
		}
	}
	return words
}

func TestMalformedURLsSayWhatIsAllowedAndKeepThePassword(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context()) // Open waits for no Redis
	cancel()
	for _, c := range []struct{ url, want string }{
		{"", "redis://host:6379"},
		{"host:6379", "redis://host:6379"},
		{"weir:secret@host:6379", "redis://host:6379"},
		{"weir:secret@x://host", "redis://"},
		{"http://weir:secret@host", "redis://, rediss://, unix://, redis+sentinel://, redis+cluster://"},
		{"redis+tls://weir:secret@host", "redis+cluster://"},
		{"redis://weir:secret@host:port", "port"},
		{"redis://weir:secret@host:70000", "port"},
		{"redis://weir:secret@host:0", "port"},
		{"redis://weir:sec ret@host", "percent"},
		{"redis://weir:sec%ret@host", "percent"},
		{"redis://weir:secret/@host", "percent"},
		{"redis://weir:secret@a,b", "redis+cluster://"},
		{"redis://weir:secret@a:1,b:2/0", "redis+cluster://"},
		{"redis://weir:secret@::1", "[::1]"},
		{"redis://weir:secret@host/main", "database"},
		{"redis://weir:secret@host/1/2", "database"},
		{"redis://weir:secret@host/-1", "database"},
		{"redis://weir:secret@host?colour=red", "colour"},
		{"redis://weir:secret@host?db=x", "db"},
		{"redis://weir:secret@host#1", "#"},
		{"unix://weir:secret@", "path"},
		{"unix://weir:secret@host", "path"},
		{"unix://weir:secret@host/run/redis.sock", "unix:///"},
		{"redis+cluster://", "host is empty"},
		{"redis+cluster://weir:secret@", "host is empty"},
		{"redis+cluster://weir:secret@a,,b", "host is empty"},
		{"redis+cluster://weir:secret@:6379", "host is empty"},
		{"redis+cluster://weir:secret@a/1", "database"},
		{"redis+cluster://weir:secret@a,b:port", "port"},
		{"redis+cluster://weir:secret@a,b:70000", "port"},
		{"redis+cluster://weir:secret@a,b c", "host"},
		{"redis+cluster://weir:secret@::1,a", "[::1]"},
		{"redis+cluster://weir:secret@a?tls=maybe", "tls"},
		{"redis+cluster://weir:secret@a?ttls=true", "ttls"},
		{"redis+cluster://weir:sec%ret@a", "percent"},
		{"redis+sentinel://weir:secret@a,b", "MASTER"},
		{"redis+sentinel://weir:secret@a,b/", "MASTER"},
		{"redis+sentinel://weir:secret@,b/main", "host is empty"},
		{"redis+sentinel://weir:secret@a/main/x", "database"},
		{"redis+sentinel://a/main?sentinel_password=secret&colour=red", "sentinel_user, sentinel_password"},
		{"redis+cluster://a?sentinel_password=secret", "sentinel_password"},
		{"redis+sentinel://weir:secret@a/main/1/2", "database"},
	} {
		s, err := Open(ended, Options{URL: c.url, Local: limiter.NewStandby(limiter.MemoryOptions{})})
		if err == nil {
			_ = s.Close()
			t.Errorf("%q: no error", c.url)
			continue
		}
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %q, want ErrURL with %q", c.url, err, c.want)
		}
		for _, secret := range []string{"secret", "sec ret", "sec%ret"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the password stands in the error %q", c.url, err)
			}
		}
	}
}

func TestRedactHidesThePassword(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redis://host:6379/1", "redis://host:6379/1"},
		{"redis://:secret@host", "redis://:…@host"},
		{"redis://weir:secret@host", "redis://weir:…@host"},
		{"redis://secret@host", "redis://…@host"},
		{"redis://weir:se@cr@et@host", "redis://weir:…@host"},
		{"redis+cluster://weir:secret@a,b", "redis+cluster://weir:…@a,b"},
		{"unix://:secret@/run/redis.sock", "unix://:…@/run/redis.sock"},
		{"weir:secret@host", "…@host"},
		{"secret@host://x", "…@host://x"},
		{"redis+sentinel://a/main?sentinel_password=secret&tls=true", "redis+sentinel://a/main?sentinel_password=…&tls=true"},
		{"redis+sentinel://weir:se@a/main?sentinel_password=sec@ret", "redis+sentinel://weir:…@a/main?sentinel_password=…"},
		{"host", "host"},
		{"", ""},
	} {
		if got := Redact(c.url); got != c.want {
			t.Errorf("%q is shown as %q, want %q", c.url, got, c.want)
		}
	}
}
