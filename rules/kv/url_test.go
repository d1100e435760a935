package kv

import (
	"slices"
	"strings"
	"testing"
)

func TestURLsOfStores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url    string
		hosts  string // joined by spaces
		tls    bool
		prefix string
		remark string
	}{
		{"consul://", "", false, "weir/rules", "everything by default"},
		{"consul:///", "", false, "weir/rules", "a slash alone is no prefix"},
		{"consul:///a", "", false, "a", "no host, a prefix"},
		{"consul://h", "h:8500", false, "weir/rules", "the port by default"},
		{"consul://h/", "h:8500", false, "weir/rules", "and the prefix"},
		{"consul://h:1/a/b", "h:1", false, "a/b", "a prefix of two parts"},
		{"consul+https://h:1/a", "h:1", true, "a", "TLS"},
		{"consul+https://", "", true, "weir/rules", "TLS and nothing else"},
		{"consul://[::1]", "[::1]:8500", false, "weir/rules", "IPv6"},
		{"consul://[2001:db8::1]:65535/a", "[2001:db8::1]:65535", false, "a", "IPv6 and a port"},
		{"consul://a:1,b,[::1]:3/p", "a:1 b:8500 [::1]:3", false, "p", "several hosts"},
		{"consul://my_host-1.example.COM./p", "my_host-1.example.COM.:8500", false, "p", "all that a name may have"},
		{"consul://h/a%20b/%C3%A9%3F%23%25%40", "h:8500", false, "a b/é?#%@", "percent-encoded"},
		{"consul://h/a@b:c", "h:8500", false, "a@b:c", "what is special only before the slash"},
		{"consul://h/a.b/c..d", "h:8500", false, "a.b/c..d", "dots inside of parts"},
	} {
		got, err := ParseURL(c.url, "consul", "8500")
		if err != nil {
			t.Errorf("%s (%s): %v", c.url, c.remark, err)
			continue
		}
		if !slices.Equal(got.Hosts, strings.Fields(c.hosts)) || got.TLS != c.tls || got.Prefix != c.prefix {
			t.Errorf("%s (%s): %+v", c.url, c.remark, got)
		}
	}
}

func TestURLsOfStoresThatAreRefused(t *testing.T) {
	t.Parallel()
	const wanted, user, query = "is wanted", "no user, password or token", "nothing may follow"
	for _, c := range []struct {
		url    string
		says   string
		remark string
	}{
		{"", wanted, "nothing"},
		{"h:8500", wanted, "no scheme"},
		{"etcd://h", wanted, "another scheme"},
		{"Consul://h", wanted, "another case"},
		{"consul+http://h", wanted, "a scheme that there is not"},
		{"consul:/h", wanted, "one slash"},
		{"consul://secret@h", user, "a token"},
		{"consul://u:secret@h:1/p", user, "user and password"},
		{"consul://a,u:secret@h:1/p", user, "user and password of the second host"},
		{"consul://u:secret/secret@h:1/p", user, "a password with a slash in it"},
		{"consul://u:secret@h:1?a=b", user, "user and query"},
		{"consul://h?token=secret", query, "a query"},
		{"consul://h/p?token=secret", query, "a query after the prefix"},
		{"consul://h/p#secret", query, "a fragment"},
		{"consul://:8500", "a name or an address", "no host before the port"},
		{"consul://a,,b", "a name or an address", "a host that is empty"},
		{"consul://a,", "a name or an address", "a comma at the end"},
		{"consul://a b", "a name or an address", "a space"},
		{"consul://h%31", "a name or an address", "percent-encoded"},
		{"consul://é", "a name or an address", "not ASCII"},
		{"consul://h:", "1 to 65535", "an empty port"},
		{"consul://h:0", "1 to 65535", "port 0"},
		{"consul://h:65536", "1 to 65535", "a port too high"},
		{"consul://h:-1", "1 to 65535", "a negative port"},
		{"consul://h:http", "1 to 65535", "a port by name"},
		{"consul://::1", "in brackets", "IPv6 without brackets"},
		{"consul://[::1", "in brackets", "half a bracket"},
		{"consul://[127.0.0.1]", "in brackets", "IPv4 in brackets"},
		{"consul://[fe80::1%25eth0]", "in brackets", "a zone"},
		{"consul://[::1]8500", "1 to 65535", "no colon before the port"},
		{"consul://h/a%2", "%25", "half an escape"},
		{"consul://h/a/", "with a slash", "a slash at the end"},
		{"consul://h//a", "with a slash", "a slash at the beginning"},
		{"consul://h/a//b", "with a slash", "two slashes"},
		{"consul://h/a%2F/b", "with a slash", "two slashes, one escaped"},
		{"consul://h/.a", "a dot", "a hidden prefix"},
		{"consul://h/a/../b", "a dot", "a way up"},
		{"consul://h/a/%2e%2E", "a dot", "a way up, escaped"},
		{"consul://h/a%0Ab", "control", "a line feed"},
		{"consul://h/a%00", "control", "NUL"},
		{"consul://h/a%FF", "UTF-8", "not UTF-8"},
	} {
		got, err := ParseURL(c.url, "consul", "8500")
		if err == nil {
			t.Errorf("%s (%s): %+v", c.url, c.remark, got)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s (%s): %v, want something of %q", c.url, c.remark, err, c.says)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s (%s): the error shows a secret: %v", c.url, c.remark, err)
		}
	}
}

func FuzzURLsOfStores(f *testing.F) {
	for _, url := range []string{"etcd://h:1,[::1]/a%20b", "etcd+https:///p", "etcd://u@h", "etcd://h/a//b"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		l, err := ParseURL(url, "etcd", "2379")
		if err != nil {
			return
		}
		if l.Prefix == "" || strings.Trim(l.Prefix, "/") != l.Prefix || strings.Contains("/"+l.Prefix+"/", "//") || strings.Contains("/"+l.Prefix, "/.") {
			t.Errorf("%q: prefix %q", url, l.Prefix)
		}
	})
}
