package queue_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	weirv1 "weir/api/weir/v1"
	"weir/queue"
)

// raw sends what no http.Client would, and returns the status.
func (b *bench) raw(target string) int {
	b.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.ingest.URL, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte("POST " + target + " HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n" +
		queue.HeaderTicket + ": " + b.queues.Ticket(&b.orders, 1) + "\r\n\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

var oddTargets = []struct{ target, remark string }{
	{"/a", "nothing odd"},
	{`/"a|b"`, "bytes that Go would encode"},
	{"/a#b?c#d", "a raw #"},
	{"/a%2Fb%2fc%7C", "what the client encoded, as it did"},
	{"/?a=b|c&\"d\"", "in the query"},
	{"/a?", "an empty query"},
	{"/a??b", "two"},
	{"//a//b", "a path that looks like a host"},
	{"//a/b?x=|#y", "with a query"},
	{"//a?", "with an empty one"},
	{"//", "and nothing else"},
	{"///a%2Fb", "three of them"},
	{"/a//b/../c/./", "dots"},
	{"/:80/a:b@c", "what looks like a port and a user"},
	{"/é\xff\xfe", "bytes that are not ASCII, nor UTF-8"},
	{"/[a]{b}^`\\<>", "other bytes that are no URL's"},
	{"/*", "a star after the slash"},
}

func TestATargetArrivesByteForByte(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base, remark string
		tls          bool
	}{
		{"", "to the root", false},
		{"/base/a%2Fb/", "below a path", false},
		{"", "in HTTP/2", true},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1000, 100)
			for _, o := range oddTargets {
				if code := b.raw(o.target); code != 202 {
					t.Fatalf("%s, %q: answered %d", o.remark, o.target, code)
				}
			}
			u := newUpstream(t, nil)
			opts := impatient
			if c.tls {
				h2 := httptest.NewUnstartedServer(u.Config.Handler)
				h2.EnableHTTP2 = true
				h2.StartTLS()
				t.Cleanup(h2.Close)
				u.URL, opts.Transport = h2.URL, h2.Client().Transport
			}
			u.URL += c.base
			b.work(u, opts)
			await(t, "all are delivered", func() bool { return len(u.all()) >= len(oddTargets) })
			for i, d := range u.all() {
				if want := strings.TrimSuffix(c.base, "/") + oddTargets[i].target; d.path != want || d.host != "a" {
					t.Errorf("%s: the upstream got %q for %s, want %q", oddTargets[i].remark, d.path, d.host, want)
				}
			}
		})
	}
}

func TestATargetThatCannotBeSentAsItIsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 10)
	for _, c := range []struct {
		target, remark string
		code           int
	}{
		{"//a|b", "two slashes and a byte that is no URL's", 400},
		{"/a%zz", "a broken encoding", 400},
		{"*", "a star", 501},
		{"http://a/b", "an absolute URL", 501},
	} {
		if code := b.raw(c.target); code != c.code {
			t.Errorf("%s, %q: answered %d, want %d", c.remark, c.target, code, c.code)
		}
	}
	for _, path := range []string{"/a b", "/a HTTP/1.1\r\nX: y", "/\x7f", "//a%zz", "/a%zz", "/a%", "a", ""} { // HTTP/2 and gRPC bring such
		_, err := b.queues.Append(t.Context(), &b.orders, queue.Request{HTTP: httpPost(path)})
		if err == nil {
			t.Errorf("%q was queued", path)
		}
	}
	if _, err := b.queues.Append(t.Context(), &b.orders, queue.Request{HTTP: &weirv1.HttpRequest{Method: "CONNECT", Path: []byte("/a")}}); err == nil {
		t.Error("CONNECT was queued")
	}
	if _, err := b.queues.Append(t.Context(), &b.orders, queue.Request{HTTP: httpPost("/a?b=%zz")}); err != nil {
		t.Errorf("a query may have any %%: %v", err)
	}
}

func TestHeadersAndTargetsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 100)
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) (headers []string) {
		for range n {
			headers = append(headers, "X", "")
		}
		return headers
	}
	for _, c := range []struct {
		path    string
		headers []string
		code    int
		remark  string
	}{
		{"/" + long(16<<10-1), nil, 202, "the longest target"},
		{"/" + long(16<<10), nil, 414, "a longer one"},
		{"/?" + long(16<<10), nil, 414, "its query"},
		{"/", []string{"X-Long", long(60 << 10)}, 202, "a long header"},
		{"/", []string{"X-Long", long(64 << 10)}, 431, "a longer one"},
		{"/", []string{long(64 << 10), ""}, 431, "a long name"},
		{"/", many(1900), 202, "many that are empty"},
		{"/", many(2000), 431, "more"},
		{"/", []string{"Connection", "X-Hop", "X-Hop", long(64 << 10)}, 202, "what is not kept does not count"},
	} {
		if a := b.post(c.path, "", c.headers...); a.code != c.code {
			t.Errorf("%s: %d %v, want %d", c.remark, a.code, a.body, c.code)
		}
	}
	for remark, r := range map[string]*weirv1.HttpRequest{
		"a long target": httpPost("/" + long(16<<10)),
		"a long header": {Path: []byte("/"), Headers: []*weirv1.HttpHeader{{Name: "X", Value: []byte(long(64 << 10))}}},
		"a long host":   {Path: []byte("/"), Authority: long(64<<10 + 1)},
		"a long method": {Path: []byte("/"), Method: long(64<<10 + 1)},
	} {
		if _, err := b.queues.Append(t.Context(), &b.orders, queue.Request{HTTP: r}); err == nil {
			t.Errorf("%s was queued", remark)
		}
	}
}

func TestATicketStoresOneRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1000, 3)
	ticket, next := b.queues.Ticket(&b.orders, 1), b.queues.Ticket(&b.orders, 1)
	const key = queue.HeaderIdempotencyKey
	send := func(method, path, body, ticket string, headers ...string) answer {
		t.Helper()
		return b.send(method, path, body, append([]string{queue.HeaderTicket, ticket}, headers...)...)
	}
	b.wantCode(send("POST", "/a", strings.Repeat("x", 2000), ticket), 413) // uses nothing up
	first := send("POST", "/a", "apples", ticket)
	for _, c := range []struct {
		method, path, body, ticket string
		headers                    []string
		code                       int
		stored                     string // "first": its answer is the first one's place
		remark                     string
	}{
		{"POST", "/a", "apples", ticket, nil, 202, "first", "a proxy tries again"},
		{"POST", "/a", "apples", ticket, []string{"X-Envoy-Attempt-Count", "2"}, 202, "first", "and says so"},
		{"POST", "/a", "pears", ticket, nil, 403, "", "another body"},
		{"POST", "/b", "apples", ticket, nil, 403, "", "another path"},
		{"PUT", "/a", "apples", ticket, nil, 403, "", "another method"},
		{"POST", "/b", "plums", ticket, []string{key, "k"}, 403, "", "another request with a key"},
		{"POST", "/a", "apples", next, nil, 202, "", "the same request by a decision of its own"},
		{"POST", "/a", "pears", b.queues.Ticket(&b.orders, 1), []string{key, "k"}, 202, "", "with a key"},
		{"POST", "/a", "apples", ticket, nil, 202, "first", "also where the queue is full"},
		{"POST", "/a", "pears", b.queues.Ticket(&b.orders, 1), []string{key, "k"}, 202, "", "the key's, by another ticket"},
		{"POST", "/a", "nuts", b.queues.Ticket(&b.orders, 1), nil, 429, "", "full"},
	} {
		a := send(c.method, c.path, c.body, c.ticket, c.headers...)
		same := a.header.Get("Location") == first.header.Get("Location")
		if a.code != c.code || same != (c.stored == "first") {
			t.Errorf("%s: %d %v, want %d, place %q", c.remark, a.code, a.body, c.code, c.stored)
		}
	}
	all, err := b.queues.Overviews(t.Context())
	if err != nil || all[0].Waiting != 3 {
		t.Errorf("%+v, %v; want 3 that wait", all, err)
	}
	keys := strings.Fields(b.redis.MustDo(t, "KEYS", "*}ticket:*"))
	if len(keys) != 3 {
		t.Fatalf("tickets are remembered in %q, want 3", keys)
	}
	if ms, err := strconv.Atoi(b.redis.MustDo(t, "PTTL", keys[0])); err != nil || ms < 60_000 || ms > 120_000 {
		t.Errorf("a ticket is remembered for %d ms, %v", ms, err)
	}
}
