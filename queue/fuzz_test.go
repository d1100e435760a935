package queue

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
	"weir/internal/testenv"
	"weir/limiter"
)

// fuzzed is a queue in a real Redis.
func fuzzed(f *testing.F) (*Queues, *About) {
	f.Helper()
	q, err := Open(Options{URL: "redis://" + testenv.StartRedis(f, testenv.RedisOptions{}).Addr, Timeout: 5 * time.Second})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = q.Close() })
	if err := q.LoadSecret(context.Background()); err != nil {
		f.Fatal(err)
	}
	hash := strings.Repeat("h", 22)
	limit := limiter.Limit{Algorithm: limiter.LeakyBucket, Requests: 1, Window: limiter.Window{Length: time.Second}, Queue: 1 << 30}
	return q, &About{Tag: q.tag(hash), Domain: "d", Rule: "r", Path: "k=v", Counter: q.tag(hash) + "counter", Limit: limit}
}

// sent is how a request arrives at the upstream.
func sent(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	if err := r.Write(&wire); err != nil {
		return nil // nothing was sent
	}
	rest := bufio.NewReader(&wire)
	got, err := http.ReadRequest(rest)
	if err != nil {
		t.Fatalf("what is sent is no request: %v\n%q", err, wire.Bytes())
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(got.Body); err != nil {
		t.Fatal(err)
	}
	if rest.Buffered() > 0 {
		t.Fatalf("more than one request is sent: %q", wire.Bytes())
	}
	got.Body = http.NoBody
	got.GetBody = nil
	got.ContentLength = int64(body.Len())
	return got
}

// FuzzRecords holds that whatever stands in a stream is delivered as one request or
// given up, and never ends the worker.
func FuzzRecords(f *testing.F) {
	seed := func(h *weirv1.HttpRequest, once, cost string) {
		request, err := proto.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("ABCDEFGHIJKLMNOPQRSTUVWXYZ", request, once, cost, "1700000000000-3", "/base")
	}
	seed(&weirv1.HttpRequest{Method: "POST", Authority: "a.example", Path: []byte("/x?y=1"), Body: []byte("body"), Headers: []*weirv1.HttpHeader{{Name: "A", Value: []byte("\xff")}, {Name: "Idempotency-Key", Value: []byte("k")}}}, "once", "3")
	seed(&weirv1.HttpRequest{Method: "GET", Path: []byte("//h/%2F?"), Headers: []*weirv1.HttpHeader{{Name: "a\r\nb", Value: []byte("c\r\nd: e")}, {Name: "Content-Length", Value: []byte("9")}}}, "", "")
	seed(&weirv1.HttpRequest{Method: "GET / HTTP/1.1\r\nX: y", Authority: "h\r\nb: c", Path: []byte("/ HTTP/1.1\r\nA: b"), Headers: []*weirv1.HttpHeader{nil}}, "{}", "-1")
	seed(&weirv1.HttpRequest{Method: "GET", Path: []byte("/a b")}, "", "")
	seed(&weirv1.HttpRequest{Method: "HEAD", Authority: "[::1]:80", Path: []byte("/%"), Headers: []*weirv1.HttpHeader{{Name: "transfer-encoding", Value: []byte("chunked")}, {Name: "Host", Value: []byte("x")}}}, "", "18446744073709551616")
	f.Fuzz(func(t *testing.T, id string, request []byte, once, cost, entry, base string) {
		q := &Queues{prefix: "weir:"}
		a := &About{Tag: q.tag(strings.Repeat("h", 22)), Domain: "d", Rule: "r"}
		e := q.entryOf(a, goredis.XMessage{ID: entry, Values: map[string]any{"id": id, "request": string(request), "once": once, "cost": cost}})
		_, _, _ = e.Since(), e.key(), e.keys()
		if e.Request == nil {
			return
		}
		upstream, err := url.Parse("http://upstream" + base)
		if err != nil || upstream.Host != "upstream" || upstream.RawQuery != "" || upstream.Fragment != "" {
			return
		}
		w := &Worker{q: q, opts: WorkerOptions{Upstream: upstream}}
		r, err := w.request(t.Context(), e, 1)
		if err != nil {
			return
		}
		got := sent(t, r)
		if got == nil {
			return
		}
		if got.Method != e.Request.Method && e.Request.Method != "" || got.RequestURI != strings.TrimSuffix(upstream.EscapedPath(), "/")+string(e.Request.Path) || got.ContentLength != int64(len(e.Request.Body)) {
			t.Fatalf("%v is sent as %s %s with %d bytes", e.Request, got.Method, got.RequestURI, got.ContentLength)
		}
	})
}

// FuzzTickets holds that only what was signed lets a request in, and that it says
// then what the decision said.
func FuzzTickets(f *testing.F) {
	q := &Queues{prefix: "weir:"}
	secret := []byte("secret")
	q.secret.Store(&secret)
	about := About{Tag: q.tag("hash"), Domain: "d", Rule: "r", Counter: "c", Limit: limiter.Limit{Algorithm: limiter.LeakyBucket, Requests: 3, Window: limiter.Window{Length: time.Second}, Queue: 7}}
	good := q.Ticket(&about, 2)
	f.Add(good, "domain", "rule", uint64(1), uint64(2), []byte("{}"))
	f.Add(good+".", "\xff", "\"\u2028", uint64(1<<63), uint64(0), []byte(`{"t":9999999999999,"w":-1,"l":18446744073709551615}`))
	body, _, _ := strings.Cut(good, ".")
	f.Add(body+"."+strings.Repeat("A", 22), "d", "r", uint64(1), uint64(1), []byte{})
	f.Add(".", "", "", uint64(0), uint64(1), []byte("null"))
	f.Add(strings.TrimRight(good, "A"), strings.Repeat("é", 150), "", uint64(0), uint64(1), []byte("[]"))
	f.Fuzz(func(t *testing.T, text, domain, rule string, limit, cost uint64, signed []byte) {
		if _, _, err := q.admit(text); err == nil && !ours(text, secret) {
			t.Fatalf("%q lets a request in", text)
		}
		own := about
		own.Domain, own.Rule, own.Limit.Requests = domain, rule, limit
		got, said, err := q.admit(q.Ticket(&own, cost))
		if err != nil || got.Tag != own.Tag || got.Counter != own.Counter || got.Limit != own.Limit || said.Cost != cost {
			t.Fatalf("%+v with cost %d became %+v, %+v, %v", own, cost, got, said, err)
		}
		body := base64.RawURLEncoding.EncodeToString(signed) // of another version, or of who has the secret
		if a, _, err := q.admit(body + "." + base64.RawURLEncoding.EncodeToString(mac(secret, body))); err == nil {
			_, _, _, _ = a.Name(), a.interval(), a.wait(1<<40), a.fields()
		}
	})
}

// ours tells whether a text ends with the MAC of what stands before, as bytes.
func ours(text string, secret []byte) bool {
	body, sum, _ := strings.Cut(text, ".")
	got, err := base64.RawURLEncoding.DecodeString(sum)
	return err == nil && bytes.Equal(got, mac(secret, body))
}

// FuzzIngest holds that whatever request comes to the ingest is refused, and is not
// the server's fault, or arrives at the upstream as it came.
func FuzzIngest(f *testing.F) {
	q, about := fuzzed(f)
	ingest := NewIngest(IngestOptions{Queues: q, Direct: "s", MaxBody: 1000, Find: func(domain, rule string) *About {
		if domain == "d" && rule == "r" {
			return about
		}
		return nil
	}})
	for _, text := range []string{
		"POST /orders?a=%20b HTTP/1.1\r\nHost: h\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\nContent-Length: 4\r\n\r\nbody",
		"GET //a/../b HTTP/1.1\r\nHost: h\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\nConnection: x-a, close\r\nX-A: 1\r\nIdempotency-Key: k\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: h\r\nX-Weir-Overflow: r\r\nX-Weir-Overflow-Ticket: TICKET\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: v\r\n\r\n",
		"GET /queue/hhhhhhhhhhhhhhhhhhhhhh.ABCDEFGHIJKLMNOPQRSTUVWXYZ HTTP/1.1\r\nHost: h\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\n\r\n",
		"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\n\r\n",
		"POST /\xff HTTP/1.1\r\nHost: \xe9\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\nX: \xff\r\n\r\n",
		"POST /% HTTP/1.0\r\nX-Weir-Queue: d/r\r\nX-Weir-Queue-Secret: s\r\nUpgrade: w\r\nConnection: upgrade\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := q.client.FlushDB(t.Context()).Err(); err != nil { // no idempotency key is another's
			t.Fatal(err)
		}
		raw = bytes.ReplaceAll(raw, []byte("TICKET"), []byte(q.Ticket(about, 1)))
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // net/http answers 400 by itself
		}
		r.RemoteAddr = "127.0.0.1:9"
		w := httptest.NewRecorder()
		ingest.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Fatalf("%q: %d %s", raw, w.Code, w.Body)
		}
		if w.Code != http.StatusAccepted {
			return
		}
		e, err := q.waiting(t.Context(), w.Header().Get(HeaderQueued))
		if err != nil || e == nil || e.Request == nil {
			t.Fatalf("%q is stored and cannot be read: %+v, %v", raw, e, err)
		}
		if _, err := q.leave(t.Context(), e, StateDropped, 0, "", time.Second); err != nil {
			t.Fatal(err)
		}
		worker := &Worker{q: q, opts: WorkerOptions{Upstream: &url.URL{Scheme: "http", Host: "upstream"}}}
		replayed, err := worker.request(t.Context(), e, 1)
		if err != nil {
			t.Fatalf("%q is taken and cannot be delivered: %v", raw, err)
		}
		checkArrived(t, raw, r, sent(t, replayed))
	})
}

// checkArrived holds what arrives against what came.
func checkArrived(t *testing.T, raw []byte, r, got *http.Request) {
	t.Helper()
	if got == nil {
		t.Fatalf("%q is taken and cannot be sent", raw)
	}
	if got.Method != r.Method || got.RequestURI != r.RequestURI {
		t.Fatalf("%q arrives as %s %s", raw, got.Method, got.RequestURI)
	}
	if r.Host != "" && got.Host != r.Host {
		t.Fatalf("%q arrives at the host %q", raw, got.Host)
	}
	named := tokens(r.Header, "Connection")
	for name, values := range r.Header {
		if slices.Contains(hopByHop, name) || named[strings.ToLower(name)] {
			continue
		}
		if !slices.Equal(got.Header[name], values) && !(name == HeaderIdempotencyKey && values[0] == "") {
			t.Fatalf("%q arrives with %s: %q", raw, name, got.Header[name])
		}
	}
	for name := range got.Header {
		known := []string{HeaderDelivery, HeaderQueueID, HeaderQueuedAt, HeaderIdempotencyKey, "Content-Length"}
		_, came := r.Header[name]
		if (!came || named[strings.ToLower(name)]) && !slices.Contains(known, name) {
			t.Fatalf("%q arrives with %s: %q, which did not come", raw, name, got.Header[name])
		}
	}
}

// FuzzWhatRedisHas holds that whatever stands in the keys of a queue is told as it
// is, or as unknown.
func FuzzWhatRedisHas(f *testing.F) {
	q, about := fuzzed(f)
	f.Add("waiting", "place", "3", "window", "1000000000", "left", "1")
	f.Add("delivering", "status", "-5", "limit", "1", "queue", "x")
	f.Add("failed", "why", "\x1b[2J", "window", "-1", "counter", "")
	f.Add("waiting", "since", "9223372036854775807", "limit", "18446744073709551616", "window", "9223372036854775807")
	name := strings.Repeat("N", 26)
	f.Fuzz(func(t *testing.T, state, field, value, ruleField, ruleValue, otherField, otherValue string) {
		ctx := t.Context()
		p := q.client.Pipeline()
		p.Del(ctx, about.record(name), about.about(), about.stream())
		p.HSet(ctx, about.about(), about.fields()...)
		p.HSet(ctx, about.about(), ruleField, ruleValue, otherField, otherValue)
		p.HSet(ctx, about.record(name), "state", state, field, value)
		p.XAdd(ctx, &goredis.XAddArgs{Stream: about.stream(), Values: []any{field, value, otherField, otherValue}})
		p.SAdd(ctx, q.index(), q.hash(about.Tag))
		if _, err := p.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		s, err := q.Status(ctx, q.hash(about.Tag)+"."+name)
		switch {
		case errors.Is(err, ErrUnavailable) && !strings.Contains(err.Error(), "reading what a queue is"), err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrUnavailable):
			t.Fatal(err)
		case err == nil && s.DepartsAfter() < 0:
			t.Fatalf("departs after %v: %+v", s.DepartsAfter(), s)
		}
		all, err := q.Overviews(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if all[i].interval() < 0 || all[i].Limit.Validate() != nil {
				t.Fatalf("%+v", all[i])
			}
			_ = fmt.Sprint(all[i])
		}
		if _, err := q.Peek(ctx, about, false, 10); err != nil {
			t.Fatal(err)
		}
	})
}
