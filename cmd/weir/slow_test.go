package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A request has an end, in time and in bytes: else who never ends one keeps a
// connection and its memory.
func TestAnHTTPClientThatDoesNotEndItsRequestIsSentAway(t *testing.T) {
	t.Parallel()
	s := serving(t, "--metrics-addr", "127.0.0.1:0")
	_, rest, _ := strings.Cut(s.stdout.String(), "  metrics ")
	metricsAddr, _, _ := strings.Cut(rest, " ")
	for _, addr := range []string{s.httpAddr, metricsAddr} {
		for _, x := range []struct{ remark, begin string }{
			{"headers that do not end", "GET /metrics HTTP/1.1\r\nHost: a\r\nX: "},
			{"a body that does not", "POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"},
		} {
			t.Run(addr+" "+x.remark, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprint(conn, x.begin)
				if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
					t.Error("it is not sent away within a minute")
				}
			})
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { // it may not be read to the end
			fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", strings.Repeat("x", 100<<10))
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("100 KiB of headers: %s", resp.Status)
		}
	}
}
