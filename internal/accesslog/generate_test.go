package accesslog_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

var generate = flag.String("generate", "", "write a log of a million lines in each format into this folder")

// writeLog writes a day's log of so many lines in a format, always the same: 50,000
// clients, of which few make most requests, and ten paths.
func writeLog(w io.Writer, format string, lines int) {
	random := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(random, 1.1, 8, 50_000)
	begin := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	if format == "csv" {
		fmt.Fprintln(w, "time,client_ip,method,url,status")
	}
	for i := range lines {
		at := begin.Add(time.Duration(i) * (24 * time.Hour / time.Duration(lines)))
		c := clients.Uint64()
		address := fmt.Sprintf("10.%d.%d.%d", c>>16, c>>8&255, c&255)
		url := fmt.Sprintf("/api/v1/thing%d/%d?page=%d", random.IntN(10), random.IntN(100_000), random.IntN(9))
		switch format {
		case "combined":
			fmt.Fprintf(w, "%s - - [%s] \"GET %s HTTP/1.1\" 200 %d \"https://example.com/start\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/128.0.0.0 Safari/537.36\"\n",
				address, at.Format("02/Jan/2006:15:04:05 -0700"), url, random.IntN(10_000))
		case "envoy":
			fmt.Fprintf(w, "[%s] \"GET %s HTTP/2\" 200 - 0 %d 12 11 \"%s\" \"curl/8.5.0\" \"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2\" \"example.com\" \"10.0.0.9:9000\"\n",
				at.Format("2006-01-02T15:04:05.000Z"), url, random.IntN(10_000), address)
		case "json":
			fmt.Fprintf(w, "{\"time\":%q,\"level\":\"info\",\"remote_addr\":%q,\"request_method\":\"GET\",\"request_uri\":%q,\"status\":200,\"headers\":{\"user-agent\":[\"curl/8.5.0\"],\"accept\":[\"*/*\"]},\"duration\":0.012}\n",
				at.Format(time.RFC3339Nano), address, url)
		case "csv":
			fmt.Fprintf(w, "%s,%s,GET,%s,200\n", at.Format(time.RFC3339Nano), address, url)
		}
	}
}

// TestGenerate writes the logs that docs/simulate.md has its figures of:
// go test ./internal/accesslog -run Generate -generate /tmp
func TestGenerate(t *testing.T) {
	dir := *generate
	lines := 1_000_000
	if dir == "" {
		dir, lines = t.TempDir(), 1000
	}
	for _, format := range []string{"combined", "envoy", "json", "csv"} {
		f, err := os.Create(dir + "/" + format + ".log")
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		writeLog(w, format, lines)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
