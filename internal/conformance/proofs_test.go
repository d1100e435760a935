package conformance_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"weir/internal/testenv"
)

const oneRule = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"

// want asks, and holds the answer against a line, which may end in … for any rest.
func (p *peer) want(t *testing.T, ask, want string) {
	t.Helper()
	got, _, _ := p.ask(t, "d", ask)
	start, isStart := strings.CutSuffix(want, "…")
	if got != want && (!isStart || !strings.HasPrefix(got, start)) {
		t.Errorf("%s, %s:\n got %s\nwant %s", p.name, ask, got, want)
	}
}

func wantOfAll(t *testing.T, of []*peer, ask, want string) {
	t.Helper()
	for _, p := range of {
		p.want(t, ask, want)
	}
}

// rawCodec sends bytes as they are: the stock codec refuses to send what is not
// UTF-8, which Envoy does send.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func TestAValueThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, plain)
	message := []byte("\x0a\x01d\x12\x08\x0a\x06\x0a\x01a\x12\x01\xff")
	call := func(addr string) string {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var answer []byte
		err = conn.Invoke(t.Context(), rls.RateLimitService_ShouldRateLimit_FullMethodName, &message, &answer, grpc.ForceCodecV2(rawCodec{}))
		resp := new(rls.RateLimitResponse)
		if err == nil {
			err = proto.Unmarshal(answer, resp)
		}
		return answerText(resp, err, false)
	}
	if got := call(s.ratelimit.GRPCAddr); !strings.HasPrefix(got, "error Internal: ") {
		t.Errorf("theirs: %s", got)
	}
	for _, want := range []string{"OK: ok 1/DAY left 0 end", "OVER_LIMIT: over 1/DAY left 0 end"} {
		if got := call(s.weir.GRPCAddr); got != want {
			t.Errorf("compat: %s, want %s", got, want)
		}
	}
}

func TestALimitWithoutAUnit(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, plain)
	s.theirs.want(t, "a=1 !5/UNKNOWN", "error Unavailable: …")
	s.ratelimit.ExitCode(t, 20*time.Second)
	wantOfAll(t, append(s.ours, s.compat...), "a=1 !5/UNKNOWN", "error InvalidArgument: descriptor 1: limit: …")
}

func TestDynamicMetadata(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, group{name: "metadata", env: []string{"RESPONSE_DYNAMIC_METADATA=true"}})
	text := func(p *peer) string {
		_, _, resp := p.ask(t, "d", "*3 a=1 b=2, a=2 +0")
		fields := resp.GetDynamicMetadata().AsMap()
		delete(fields, "quotaModeEnabled")
		return fmt.Sprint(fields)
	}
	want := "map[descriptors:[map[entries:[a=1 b=2]] map[entries:[a=2] hitsAddend:0]] domain:d hitsAddend:3]"
	for _, p := range append(s.compat, s.theirs) {
		if got := text(p); got != want {
			t.Errorf("%s:\n got %s\nwant %s", p.name, got, want)
		}
	}
	if got := text(s.ours[0]); got != "map[]" {
		t.Errorf("%s: %s", s.ours[0].name, got)
	}
}

func TestRedisAway(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, plain)
	failing := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{f.rules()}, Args: []string{"--store", "redis://" + s.redis.Addr, "--on-store-failure", "error"}})
	s.redis.Kill()
	s.theirs.want(t, "a=1", "error Unknown: …")
	for _, of := range [][]*peer{s.ours, s.compat} {
		of[1].want(t, "a=1", "OK: ok 1/DAY left 0 end…")
		of[1].want(t, "a=1", "OVER_LIMIT: over 1/DAY left 0 end…")
	}
	connect(t, "error", failing.GRPCAddr).want(t, "a=1", "error Unavailable: …")

	path, err := testenv.FindRatelimit()
	if err != nil {
		t.Fatal(err)
	}
	theirs := testenv.Start(t, testenv.Program{Path: path, Env: []string{
		"RUNTIME_ROOT=" + string(f), "RUNTIME_SUBDIRECTORY=ratelimit", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + s.redis.Addr, "DISABLE_STATS=true"}})
	if code := theirs.ExitCode(t, 20*time.Second); code == 0 {
		t.Errorf("theirs started without Redis and ended with %d", code)
	}
	ours := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{f.rules()}, Args: []string{"--store", "redis://" + s.redis.Addr}})
	connect(t, "without Redis", ours.GRPCAddr).want(t, "a=2", "OK: ok 1/DAY left 0 end…")
}

const faulty = "domain: d\ndescriptors:\n  - {key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n  - {kee: b}\n"

func TestAFaultyFileKeepsTheOldRules(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", strings.ReplaceAll(oneRule, "requests_per_unit: 1", "requests_per_unit: 100"))
	s := startAll(t, f, group{name: headers.name, env: []string{"RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info"}})
	f.write(t, "d.yaml", faulty)
	eventually(t, "both see the fault", func() bool {
		return strings.Contains(s.ratelimit.Output(), "Error loading new configuration") && strings.Contains(s.weir.Output(), "d.yaml:4:")
	})
	if !strings.Contains(s.weir.Output(), "d.yaml:3:") || strings.Contains(s.ratelimit.Output(), "fortnight") {
		t.Error("Weir does not say all faults, or theirs says more than the first")
	}
	s.theirs.want(t, "a=1", "OK: ok 100/DAY left 99 end")
	s.compat[1].want(t, "a=1", "OK: ok 100/DAY left 99 end")
	if body := get(t, s.weir.HTTPAddr, "/readyz", http.StatusOK); !strings.Contains(body, "failing since") {
		t.Errorf("/readyz: %s", body)
	}
	f.write(t, "d.yaml", strings.ReplaceAll(oneRule, "requests_per_unit: 1", "requests_per_unit: 7"))
	for _, p := range []*peer{s.theirs, s.compat[1]} {
		eventually(t, "new rules in "+p.name, func() bool {
			got, _, _ := p.ask(t, "d", "a=2 +0")
			return strings.HasPrefix(got, "OK: ok 7/DAY left 7")
		})
	}
}

func TestAFaultyFileAtTheStart(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", faulty)
	redis := testenv.StartRedis(t, testenv.RedisOptions{})
	theirs := testenv.StartRatelimit(t, testenv.RatelimitOptions{Runtime: string(f), Redis: redis.Addr, Env: []string{"RUNTIME_SUBDIRECTORY=ratelimit"}})
	connect(t, "theirs", theirs.GRPCAddr).want(t, "a=1", "error Unknown: no rate limit configuration loaded")
	get(t, theirs.HTTPAddr, "/healthcheck", http.StatusOK)
	refuses(t, f, "d.yaml:3:", "d.yaml:4:")
}

// refuses has weir start with --compat and end with these texts.
func refuses(t *testing.T, f folder, texts ...string) {
	t.Helper()
	w := testenv.Start(t, testenv.Program{Path: testenv.WeirBinary(t), Args: []string{"serve", "--compat", "envoyproxy", "--grpc-addr", testenv.FreeAddr(t), "--http-addr", testenv.FreeAddr(t)},
		Env: []string{"RUNTIME_ROOT=" + string(f), "RUNTIME_SUBDIRECTORY=ratelimit"}})
	if code := w.ExitCode(t, 20*time.Second); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, text := range texts {
		if !strings.Contains(w.Output(), text) {
			t.Errorf("no %q in:\n%s", text, w.Output())
		}
	}
}

func TestTwoFilesOfADomain(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "1.yaml", oneRule)
	f.write(t, "2.yaml", strings.ReplaceAll(oneRule, "key: a", "key: b"))
	s := startAll(t, f, plain)
	s.theirs.want(t, "a=1, b=1", "error Unknown: no rate limit configuration loaded")
	merged := "OK: ok 1/DAY left 0 end, ok 1/DAY left 0 end"
	wantOfAll(t, append(s.ours[1:], s.compat...), "a=1, b=1", strings.TrimSuffix(merged, "")+"…")
	merging := testenv.RatelimitOptions{Runtime: string(f), Redis: s.redis.Addr, Env: []string{"RUNTIME_SUBDIRECTORY=ratelimit", "MERGE_DOMAIN_CONFIG=true"}}
	connect(t, "merging", testenv.StartRatelimit(t, merging).GRPCAddr).want(t, "a=2, b=2", merged)

	f.write(t, "2.yaml", oneRule)
	connect(t, "merging", testenv.StartRatelimit(t, merging).GRPCAddr).want(t, "a=3", "error Unknown: no rate limit configuration loaded")
	refuses(t, f, "1.yaml:3:", "2.yaml:3:")
}

func TestFilesThatAreRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	f.write(t, "other.conf", strings.ReplaceAll(oneRule, "domain: d", "domain: conf"))
	f.write(t, ".hidden.yaml", strings.ReplaceAll(oneRule, "domain: d", "domain: hidden"))
	s := startAll(t, f, plain)
	for _, domain := range []string{"conf", "hidden"} {
		s.theirs.want(t, "@"+domain+" a=1", "OK: ok 1/DAY left 0 end")
		wantOfAll(t, append(s.ours, s.compat...), "@"+domain+" a=1", noLimit)
	}
	if out := s.weir.Output(); !strings.Contains(out, filepath.Join(f.rules(), "other.conf")+" is not read") || strings.Contains(out, "hidden") {
		t.Errorf("the log does not name the one file that is not read:\n%s", out)
	}
}

func get(t *testing.T, addr, path string, code int) (body string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	return bodyOf(t, resp, path, code)
}

func bodyOf(t *testing.T, resp *http.Response, path string, code int) string {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != code {
		t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, code, b)
	}
	return string(b)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, plain)
	for _, x := range []struct {
		body string
		code int
		text string
	}{
		{`{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "json"}]}]}`, 200, `"overallCode":"OK"`},
		{`{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "json"}]}]}`, 429, `"overallCode":"OVER_LIMIT"`},
		{`{"domain": "d", "descriptors": []}`, 400, ""},
		{`{"descriptors": [{"entries": [{"key": "a"}]}]}`, 400, ""},
		{`{"no": 1}`, 400, ""},
		{`{`, 400, ""},
	} {
		for _, addr := range []string{s.ratelimit.HTTPAddr, s.weir.HTTPAddr} {
			resp, err := http.Post("http://"+addr+"/json", "application/json", strings.NewReader(x.body))
			if err != nil {
				t.Fatal(err)
			}
			body := bodyOf(t, resp, x.body, x.code)
			if !strings.Contains(strings.ReplaceAll(body, `": "`, `":"`), x.text) {
				t.Errorf("%s: %s", x.body, body)
			}
		}
	}
}

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write(t, "d.yaml", oneRule)
	s := startAll(t, f, plain)
	for _, addr := range []string{s.ratelimit.HTTPAddr, s.weir.HTTPAddr} {
		if body := get(t, addr, "/healthcheck", http.StatusOK); body != "OK" {
			t.Errorf("%s: %q", addr, body)
		}
	}
	if body := get(t, s.ratelimit.DebugAddr, "/rlconfig", http.StatusOK); !strings.Contains(body, "d.a: unit=DAY requests_per_unit=1") {
		t.Errorf("/rlconfig: %s", body)
	}
	if body := get(t, s.weir.HTTPAddr, "/rules", http.StatusOK); !strings.Contains(body, "config") {
		t.Errorf("/rules: %s", body)
	}
}
