package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"

	weirv1 "weir/api/weir/v1"
	"weir/limiter"
	"weir/server/top"
)

// The OpenAPI file is generated from the API's definition, and so is what the routes
// must be.
func TestEveryMethodOfTheAPIHasItsRoute(t *testing.T) {
	var api struct {
		Info  struct{ Title, Version, Description string }
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal([]byte(weirv1.OpenAPI()), &api); err != nil {
		t.Fatal(err)
	}
	routes := v1Routes()
	for path, methods := range api.Paths {
		for method, about := range methods {
			r, ok := routes[path]
			if want := "/weir.v1.WeirService/" + strings.TrimPrefix(about.OperationID, "WeirService_"); !ok || !strings.EqualFold(r.method, method) || r.call != want {
				t.Errorf("%s %s is %s, and the route %+v", method, path, want, r)
			}
			if (r.query != nil) != (r.method == http.MethodGet) {
				t.Errorf("%s: the query of a %s", path, r.method)
			}
		}
	}
	if n := len(weirv1.WeirService_ServiceDesc.Methods) + len(weirv1.WeirService_ServiceDesc.Streams); len(api.Paths) != n || len(routes) != n {
		t.Errorf("%d methods, %d paths, %d routes", n, len(api.Paths), len(routes))
	}
	if api.Info.Title != "Weir" || api.Info.Version != "v1" || api.Info.Description == "" {
		t.Errorf("the file says of itself: %+v", api.Info)
	}
}

func v1For(t testing.TB, s setup) (*fixture, *web) {
	t.Helper()
	if s.service.Top == nil {
		s.service.Top = top.New(top.Options{})
	}
	f := newFixture(t, s)
	return f, httpFor(t, f)
}

func TestTheAPIAsJSON(t *testing.T) {
	_, w := v1For(t, setup{rules: `rules: [{name: posts, match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{UpstreamHeaders: true}})
	const one = `{"domain": "default", "descriptors": [{"entries": [{"key": "a", "value": "1"}]}]}`
	for _, x := range []struct{ remark, method, path, body, want string }{
		{"passes", "POST", "/v1/check", one, `"allowed":true`},
		{"a refusal is an answer", "POST", "/v1/check", one, `"allowed":false`},
		{"with numbers as text", "POST", "/v1/check", one, `"retryAfter":"3600s"`},
		{"and the headers", "POST", "/v1/check", one, `{"name":"Retry-After","value":"MzYwMA=="}`},
		{"bytes that are no text", "POST", "/v1/check", `{"domain": "default", "descriptors": [{"entries": [{"key": "a", "rawValue": "//4="}]}]}`, `"allowed":true`},
		{"names as in the proto", "POST", "/v1/check", `{"domain": "default", "descriptors": [{"entries": [{"key": "a", "raw_value": "//4="}]}]}`, `"allowed":false`},
		{"several", "POST", "/v1/check:batch", `{"requests": [` + one + `, {}]}`, `"code":3`},
		{"a look", "POST", "/v1/peek", one, `"remaining":"0"`},
		{"why", "POST", "/v1/explain", `{"domain": "default", "entries": [{"key": "a", "value": "1"}]}`, `"rule":"posts"`},
		{"rules", "GET", "/v1/rules?pageSize=1&domain=default", "", `"path":"a=*"`},
		{"names as in the proto", "GET", "/v1/rules?page_size=1", "", `"total":"1"`},
		{"top", "GET", "/v1/top?limit=3", "", `"key":"a","value":"1"`},
		{"stats", "GET", "/v1/stats", "", `"rules":{`},
		{"reset", "POST", "/v1/reset", `{"domain": "default", "descriptor": {"entries": [{"key": "a", "value": "1"}]}}`, `"counters":"1"`},
		{"passes again", "POST", "/v1/check", one, `"allowed":true`},
	} {
		code, body, header := w.do(t, x.method, x.path, x.body)
		if code != http.StatusOK || !strings.Contains(body, x.want) || header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %s %s: %d %s %v, want %s", x.remark, x.method, x.path, code, body, header, x.want)
		}
	}
	if code, body, _ := w.do(t, "GET", "/v1/openapi.json", ""); code != http.StatusOK || body != weirv1.OpenAPI() {
		t.Errorf("the OpenAPI file: %d %.100s", code, body)
	}
}

func TestTheAPIAsJSONSaysWhatIsWrong(t *testing.T) {
	_, w := v1For(t, setup{})
	for _, x := range []struct {
		remark, method, path, body string
		code                       int
		grpc                       codes.Code
		want                       string
	}{
		{"no body", "POST", "/v1/check", "", 400, codes.InvalidArgument, "domain is empty"},
		{"no JSON", "POST", "/v1/check", "{", 400, codes.InvalidArgument, ""},
		{"two", "POST", "/v1/check", "{}{}", 400, codes.InvalidArgument, ""},
		{"another type", "POST", "/v1/check", `[]`, 400, codes.InvalidArgument, ""},
		{"an unknown field", "POST", "/v1/check", `{"domian": "d"}`, 400, codes.InvalidArgument, `"domian"`},
		{"one that would fill the answer", "POST", "/v1/check", `{"` + strings.Repeat("é", 100_000) + `": 1}`, 400, codes.InvalidArgument, "…"},
		{"not UTF-8", "POST", "/v1/check", "{\"domain\": \"\xff\"}", 400, codes.InvalidArgument, "UTF-8"},
		{"a number that is none", "POST", "/v1/check", `{"domain": "d", "hits": "-1"}`, 400, codes.InvalidArgument, "hits"},
		{"too large", "POST", "/v1/check", strings.Repeat(" ", maxJSON+1), 413, codes.ResourceExhausted, "1 MiB"},
		{"as large as may be", "POST", "/v1/check", strings.Repeat(" ", maxJSON-2) + "{}", 400, codes.InvalidArgument, "domain is empty"},
		{"an unknown field in a query", "GET", "/v1/rules?pageSiz=1", "", 400, codes.InvalidArgument, "pageSiz"},
		{"a query that is none", "GET", "/v1/rules?%zz", "", 400, codes.InvalidArgument, "escape"},
		{"a wrong value in a query", "GET", "/v1/rules?pageSize=x", "", 400, codes.InvalidArgument, "page_size"},
		{"twice", "GET", "/v1/rules?pageSize=1&pageSize=2", "", 400, codes.InvalidArgument, ""},
		{"a query where the body is asked for", "POST", "/v1/check?domain=d", "{}", 400, codes.InvalidArgument, "domain"},
		{"an interval that is none", "GET", "/v1/stats:watch?interval=x", "", 400, codes.InvalidArgument, "interval"},
		{"one that is too short", "GET", "/v1/stats:watch?interval=0.01s", "", 400, codes.InvalidArgument, "100ms"},
		{"a path with escapes", "POST", "/v1/check%3Abatch", "{}", 400, codes.InvalidArgument, "no requests"},
		{"another method", "GET", "/v1/check", "", 405, codes.Unimplemented, "POST"},
		{"one that is called otherwise", "HEAD", "/v1/stats", "", 405, codes.Unimplemented, ""},
		{"nor so", "OPTIONS", "/v1/check", "", 405, codes.Unimplemented, ""},
		{"another path", "POST", "/v1/nothing", "{}", 404, codes.NotFound, "openapi.json"},
		{"nor this", "GET", "/v1/", "", 404, codes.NotFound, ""},
		{"no queues", "POST", "/v1/enqueue", `{"domain": "d", "entries": [{"key": "a"}]}`, 400, codes.FailedPrecondition, "--queue-addr"},
	} {
		code, body, header := w.do(t, x.method, x.path, x.body)
		if x.method == "HEAD" {
			body = `{"code": 12}`
		}
		var status struct {
			Code    codes.Code
			Message string
		}
		if err := json.Unmarshal([]byte(body), &status); err != nil || code != x.code || status.Code != x.grpc || !strings.Contains(status.Message, x.want) || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s: %d %s, want %d with %q", x.remark, x.method, x.path, code, body, x.code, x.want)
		}
		if len(body) > 2*maxMessage {
			t.Errorf("%s: %d bytes of answer", x.remark, len(body))
		}
		if (header.Get("Allow") != "") != (code == 405) {
			t.Errorf("%s: Allow %q", x.remark, header.Get("Allow"))
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/v1/check", strings.NewReader("domain=d"))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("X-HTTP-Method-Override", "GET")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a form: %v, %v", resp, err)
	}
	req, _ = http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/v1/check", strings.NewReader("{}"))
	req.Header.Set("Grpc-Timeout", "soon")
	if resp, err = http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a timeout that is none: %v, %v", resp, err)
	}
}

func TestErrorsAndPanicsOfAStoreAsJSON(t *testing.T) {
	var fails error
	f, w := v1For(t, setup{rules: `rules: [{match: {a: "*"}, limit: 1, window: 1h}]`, service: Options{
		Store: storeFunc(func(context.Context, []limiter.Hit) ([]limiter.Decision, error) {
			if fails == nil {
				panic("a store out of order")
			}
			return nil, fails
		}),
	}})
	for code, err := range map[int]error{500: nil, 503: fmt.Errorf("%w: away", limiter.ErrUnavailable), 504: context.DeadlineExceeded} {
		fails = err
		got, body, _ := w.do(t, "POST", "/v1/check", jsonOf("default", "a", "1"))
		if got != code || !strings.HasPrefix(body, `{"code":`) {
			t.Errorf("%v: %d %s, want %d", err, got, body, code)
		}
	}
	if log := f.logs.String(); !strings.Contains(log, "a store out of order") {
		t.Errorf("the log does not tell of the panic: %s", log)
	}
}

func TestTheAPIAsJSONSaysThatItStarts(t *testing.T) {
	w := httptest.NewServer(NewHTTP(nil, HTTPOptions{Ready: func() (string, error) { return "", errors.New("starting") }, Rules: func() any { return nil }}))
	defer w.Close()
	for path, want := range map[string]int{"/v1/stats": 503, "/v1/rules": 503, "/v1/stats:watch": 503, "/v1/openapi.json": 200, "/v1/nothing": 404, "/debug/pprof/cmdline": 200} {
		resp, err := http.Get(w.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// Lines of the gateway's form, until the server stops; then an error as the last.
func TestAWatchIsLinesOfJSON(t *testing.T) {
	f, w := v1For(t, setup{rules: `rules: [{match: {a: "*"}, limit: 0, window: 1h}]`})
	w.do(t, "POST", "/v1/check", jsonOf("default", "a", "1"))
	resp, err := http.Get(w.URL + "/v1/stats:watch?interval=0.1s&top=3")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for range 3 {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"result":{"stats":{"at":`) || !strings.Contains(lines.Text(), `"top":[{"domain":"default"`) {
			t.Fatalf("got %s, %v", lines.Text(), lines.Err())
		}
	}
	f.EndWatches()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if last != `{"error":{"code":14,"message":"the server stops","details":[]}}` {
		t.Errorf("the last line: %s", last)
	}
}

// A watcher that leaves, or reads no more, does not stay.
func TestAWatcherThatLeavesIsForgotten(t *testing.T) {
	f := newFixture(t, setup{})
	left := make(chan bool, 1)
	handler := NewHTTP(f.Service, HTTPOptions{Ready: func() (string, error) { return "", nil }, Rules: func() any { return nil }})
	w := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r); left <- true }))
	w.Config.ReadTimeout = 300 * time.Millisecond // of the request: an answer may take longer
	w.Start()
	defer w.Close()
	conn, err := net.Dial("tcp", w.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/stats:watch?interval=0.1s HTTP/1.1\r\nHost: localhost\r\n\r\n")
	lines := bufio.NewScanner(conn)
	for n := 0; n < 8; {
		if !lines.Scan() {
			t.Fatalf("ended after %d: %v", n, lines.Err())
		}
		if strings.Contains(lines.Text(), `{"result":`) {
			n++
		}
	}
	conn.Close()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("it goes on for a watcher that is gone")
	}
}

// asIs sends bytes as a message, and reads none.
type asIs struct{}

func (asIs) Name() string { return "proto" }
func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (asIs) Unmarshal(mem.BufferSlice, any) error { return nil }

var _ encoding.CodecV2 = asIs{}

// raw calls a method with a message of any bytes, and returns its first error.
func raw(ctx context.Context, conn *grpc.ClientConn, method string, stream bool, message []byte) error {
	if !stream {
		return conn.Invoke(ctx, method, message, new([]byte), grpc.ForceCodecV2(asIs{}))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(asIs{}))
	if err != nil {
		return err
	}
	if err := s.SendMsg(message); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(new([]byte))
}

// Who sends what cannot be read is at fault, not the server.
func TestAMessageThatCannotBeReadIsAnInvalidArgument(t *testing.T) {
	s := start(t, setup{grpc: GRPCOptions{Reflection: true}})
	for _, message := range []string{"\x0a\x01\xff", "\x0a\x05x", "\xff\xff\xff", "\x07"} { // not UTF-8, cut off, no field, no such type
		for _, m := range weirv1.WeirService_ServiceDesc.Methods {
			if m.MethodName == "Stats" && message == "\x0a\x01\xff" {
				continue // it has no such field
			}
			err := raw(t.Context(), s.conn, "/weir.v1.WeirService/"+m.MethodName, false, []byte(message))
			if grpcstatus.Code(err) != codes.InvalidArgument {
				t.Errorf("%s with %q: %v", m.MethodName, message, err)
			}
		}
		for _, method := range []string{"/weir.v1.WeirService/WatchStats", "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
			if message == "\x0a\x01\xff" && !strings.Contains(method, "health") {
				continue
			}
			if err := raw(t.Context(), s.conn, method, true, []byte(message)); grpcstatus.Code(err) != codes.InvalidArgument {
				t.Errorf("%s with %q: %v", method, message, err)
			}
		}
		if err := raw(t.Context(), s.conn, "/grpc.health.v1.Health/Check", false, []byte(message)); grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("health with %q: %v", message, err)
		}
	}
}

// The gateway writes a line for each header that it does not understand, past the
// server's log: so it gets no more than what it needs.
func TestTheGatewaySeesNoHeadersThatItWouldLog(t *testing.T) {
	sent := http.Header{
		"Content-Type": {"\xff"}, "Accept": {"\xff"}, "Grpc-Metadata-X": {"\xff"}, "Grpc-Metadata-X-Bin": {"!"}, "Authorization": {"\xff"}, "Grpc-Timeout": {"1S"},
	}
	want := http.Header{"Content-Type": {"application/json"}, "Grpc-Timeout": {"1S"}}
	if got := forGateway(sent); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := forGateway(http.Header{}); len(got) != 1 {
		t.Errorf("of none: %v", got)
	}
}
