package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/accesslog"
	"weir/rules"
)

// everything asks for fields that all formats have under some name, if at all.
var everything = [][]string{{"remote_address", "method", "path"}, {"host"}, {"user_agent"}}

func mapping(t *testing.T, text string) *accesslog.Mapping {
	t.Helper()
	m, err := accesslog.ParseMapping("mapping.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// readAll reads logs, of which each is a file, as one line for each request.
func readAll(t *testing.T, opts accesslog.Options, logs ...string) ([]string, accesslog.Stats) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range logs {
		name := filepath.Join(dir, fmt.Sprintf("%d.log", i))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		opts.Files = append(opts.Files, name)
	}
	log, err := accesslog.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var out []string
	for {
		r, err := log.Next()
		if errors.Is(err, io.EOF) {
			return out, log.Stats()
		}
		if err != nil {
			t.Fatal(err)
		}
		words := []string{r.At.Format("15:04:05.999999")}
		if r.Hits > 1 {
			words = append(words, fmt.Sprint(r.Hits))
		}
		for _, d := range r.Descriptors {
			words = append(words, entries(d.Entries))
		}
		out = append(out, strings.Join(words, " | "))
	}
}

func entries(list []rules.Entry) string {
	var words []string
	for _, e := range list {
		words = append(words, e.Key+"="+e.Value)
	}
	return strings.Join(words, ", ")
}

const (
	combinedLine = `192.0.2.7 - alice [31/Jan/2026:12:00:00 +0000] "GET /a/b?c=d HTTP/1.1" 200 12 "-" "curl/8"`
	envoyLine    = `[2026-01-31T12:00:00.000Z] "GET /a/b?c=d HTTP/2" 200 - 0 12 3 2 "203.0.113.1, 192.0.2.7" "curl/8" "id" "example.com" "10.0.0.1:80"`
)

func TestEachFormatIsRecognisedAndRead(t *testing.T) {
	t.Parallel()
	const address = "remote_address=192.0.2.7, method=GET, path=/a/b"
	for _, x := range []struct {
		remark, log, format string
		want                string
	}{
		{"combined", combinedLine, "combined", "12:00:00 | " + address + " | user_agent=curl/8"},
		{"the common format, without the last two", `192.0.2.7 - - [31/Jan/2026:12:00:00 +0000] "GET /a/b HTTP/1.1" 200 -`, "combined", "12:00:00 | " + address},
		{"another zone", `192.0.2.7 - - [31/Jan/2026:12:00:00 +0200] "GET /a/b HTTP/1.1" 200 -`, "combined", "10:00:00 | " + address},
		{"more columns than the format has", combinedLine + ` "x" 0.1`, "combined", "12:00:00 | " + address + " | user_agent=curl/8"},
		{"escapes of nginx and Apache", `192.0.2.7 - - [31/Jan/2026:12:00:00 +0000] "GET /a\x22b HTTP/1.1" 200 1 "-" "say \"hi\" \\"`, "combined", `12:00:00 | remote_address=192.0.2.7, method=GET, path=/a"b | user_agent=say "hi" \`},
		{"bytes of TLS in place of a request", `192.0.2.7 - - [31/Jan/2026:12:00:00 +0000] "\x16\x03\x01" 400 1 "-" "-"`, "combined", "12:00:00"},
		{"a proxy's target", `192.0.2.7 - - [31/Jan/2026:12:00:00 +0000] "GET http://example.com/a/b HTTP/1.1" 200 1`, "combined", "12:00:00 | " + address},
		{"envoy", envoyLine, "envoy", "12:00:00 | " + address + " | host=example.com | user_agent=curl/8"},
		{"envoy without an address", strings.Replace(envoyLine, "203.0.113.1, 192.0.2.7", "-", 1), "envoy", "12:00:00 | host=example.com | user_agent=curl/8"},
		{"nginx as JSON", `{"time":"2026-01-31T12:00:00.5Z","remote_addr":"192.0.2.7","request":"GET /a/b?c HTTP/1.1"}`, "json", "12:00:00.5 | " + address},
		{"caddy", `{"ts":1769860800.25,"request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a/b?c","host":"example.com","headers":{"User-Agent":["curl/8"]},"x":[{"y":"}"}]}}`, "json", "12:00:00.25 | " + address + " | host=example.com | user_agent=curl/8"},
		{"traefik", `{"ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a/b","RequestHost":"example.com","StartUTC":"2026-01-31T12:00:00Z"}`, "json", "12:00:00 | " + address + " | host=example.com"},
		{"an address with a port", `{"time":1769860800,"remote_addr":"192.0.2.7:4711","method":"GET","path":"/a/b"}`, "json", "12:00:00 | " + address},
		{"milliseconds since 1970", `{"time":1769860800500,"remote_addr":"192.0.2.7","method":"GET","path":"/a/b"}`, "json", "12:00:00.5 | " + address},
		{"escapes of JSON", `{"time":1769860800,"remote_addr":"192.0.2.7","method":"GET","path":"\/a\u002fb"}`, "json", "12:00:00 | " + address},
		{"CSV", "time,ip,method,url,agent\n2026-01-31 12:00:00,192.0.2.7,GET,/a/b?c,\"a \"\"b\"\", c\"", "csv", `12:00:00 | ` + address + ` | user_agent=a "b", c`},
		{"CSV with semicolons, and a mark of its encoding", "\ufefftime;ip;method;url;host;agent\n2026-01-31T12:00:00Z;192.0.2.7;GET;/a/b;-;", "csv", "12:00:00 | " + address},
		{"ends of lines as Windows has them", combinedLine + "\r\n", "combined", "12:00:00 | " + address + " | user_agent=curl/8"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			m := accesslog.ImpliedMapping("default", everything)
			got, stats := readAll(t, accesslog.Options{Mapping: m}, x.log)
			if len(got) != 1 || got[0] != x.want {
				t.Errorf("read %q, want %q; %v", got, x.want, stats.Examples)
			}
			if stats.Files[0].Format != x.format {
				t.Errorf("recognised as %s", stats.Files[0].Format)
			}
		})
	}
}

func TestLinesThatCannotBeReadAreCountedAndTold(t *testing.T) {
	t.Parallel()
	const addresses = "descriptors: [[remote_address]]"
	for _, x := range []struct{ remark, good, bad, why string }{
		{"no columns", combinedLine, "hello", "no [time]"},
		{"an open quote", combinedLine, `192.0.2.7 - - [31/Jan/2026:12:00:00 +0000] "GET / HTTP/1.1`, `no " ends`},
		{"no such day", combinedLine, strings.Replace(combinedLine, "31/Jan", "31/Feb", 1), "is no time"},
		{"a year that no log is of", combinedLine, strings.Replace(combinedLine, "2026", "0026", 1), "is no time"},
		{"too few columns", envoyLine, `[2026-01-31T12:00:00.000Z] "GET / HTTP/1.1" 200 -`, "fewer columns"},
		{"JSON that ends too early", `{"time":1769860800,"ip":"192.0.2.7"}`, `{"time":1769860800`, "not a JSON object"},
		{"JSON that is no object", `{"time":1769860800,"ip":"192.0.2.7"}`, `[1]`, "not a JSON object"},
		{"JSON that closes what is not open", `{"time":1769860800,"ip":"192.0.2.7"}`, `{"time":1769860800,"x":[}]}`, "not a JSON object"},
		{"JSON nested without end", `{"time":1769860800,"ip":"192.0.2.7"}`, `{"x":` + strings.Repeat("[", 5000), "not a JSON object"},
		{"no time", `{"time":1769860800,"ip":"192.0.2.7"}`, `{"ip":"192.0.2.7"}`, "has no time"},
		{"a value too few", "time,ip\n1769860800,192.0.2.7", "1769860800", "1 values, and the header has 2"},
		{"an open quote in CSV", "time,ip\n1769860800,192.0.2.7", `1769860800,"192`, `no " ends`},
		{"a line of a megabyte", combinedLine, strings.Repeat("x", 1<<20), "longer than"},
	} {
		t.Run(x.remark, func(t *testing.T) {
			got, stats := readAll(t, accesslog.Options{Mapping: mapping(t, addresses)}, x.good+"\n"+x.bad+"\n\n"+lastLine(x.good)+"\n")
			if len(got) != 2 || stats.Unreadable != 1 {
				t.Fatalf("read %q, %d unreadable", got, stats.Unreadable)
			}
			line := 2 + strings.Count(x.good, "\n")
			if e := stats.Examples[0]; !strings.Contains(e, x.why) || !strings.Contains(e, fmt.Sprintf("0.log:%d: ", line)) {
				t.Errorf("told as %q", e)
			}
		})
	}
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

func jsonLine(second int, ip string) string {
	return fmt.Sprintf(`{"time":%d,"ip":%q}`, 1769860800+second, ip) + "\n"
}

func TestLinesComeInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		remark    string
		tolerance time.Duration
		seconds   [][]int // of each file's lines
		want      string
		late      uint64
	}{
		{"a line that is late is put in order", 0, [][]int{{0, 5, 3, 9}}, "0 3 5 9", 0},
		{"one that is too late is left out", 2 * time.Second, [][]int{{0, 5, 9, 3}}, "0 5 9", 1},
		{"without a tolerance all that are late are left out", -1, [][]int{{0, 5, 4, 5}}, "0 5 5", 1},
		{"several files are read as one", -1, [][]int{{0, 4, 8}, {2, 3, 9}}, "0 2 3 4 8 9", 0},
		{"the older file may come last", -1, [][]int{{7, 8}, {1, 2}}, "1 2 7 8", 0},
		{"an empty one is none", -1, [][]int{{}, {1}}, "1", 0},
	} {
		t.Run(x.remark, func(t *testing.T) {
			var logs []string
			for _, seconds := range x.seconds {
				var b strings.Builder
				for _, s := range seconds {
					b.WriteString(jsonLine(s, "192.0.2.1"))
				}
				logs = append(logs, b.String())
			}
			got, stats := readAll(t, accesslog.Options{Mapping: mapping(t, "descriptors: [[ip]]"), Tolerance: x.tolerance}, logs...)
			var order []string
			for _, line := range got {
				order = append(order, line[len("12:00:0"):len("12:00:00")])
			}
			if text := strings.Join(order, " "); text != x.want {
				t.Errorf("order %q, want %q", text, x.want)
			}
			if stats.Late != x.late || stats.Requests != uint64(len(got)) {
				t.Errorf("%d late, %d requests", stats.Late, stats.Requests)
			}
		})
	}
}

func TestALogMayBeCompressedAndOnStandardInput(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, combinedLine+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	m := mapping(t, "descriptors: [[remote_address]]")
	got, stats := readAll(t, accesslog.Options{Mapping: m, Files: []string{"-"}, Stdin: bytes.NewReader(packed.Bytes())})
	if len(got) != 1 || stats.Files[0].Name != "standard input" {
		t.Errorf("read %q of %v", got, stats.Files)
	}
	cut, err := accesslog.Open(accesslog.Options{Mapping: m, Files: []string{"-"}, Stdin: bytes.NewReader(packed.Bytes()[:packed.Len()-6])})
	for err == nil {
		_, err = cut.Next()
	}
	if !strings.Contains(err.Error(), "ends in the middle") {
		t.Errorf("a file that was cut: %v", err)
	}
}

func TestTimesWithoutAZoneAreOfTheOneThatIsSaid(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	got, stats := readAll(t, accesslog.Options{Mapping: mapping(t, "descriptors: [[ip]]"), Zone: zone}, `{"time":"2026-01-31 12:00:00","ip":"192.0.2.1"}`)
	if !stats.Zoneless || stats.Zone != "Asia/Tokyo" || !slices.Equal(got, []string{"03:00:00 | ip=192.0.2.1"}) {
		t.Errorf("read %q, %+v", got, stats)
	}
}
