package envoy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// A value of whatever bytes is limited, each by a counter of its own: what
// cannot be read must not be a way around a limit.
func TestAValueOfAnyBytesIsLimited(t *testing.T) {
	t.Parallel()
	r := startRecipe(t, "recipes", recipeOptions{})
	c := &rawClient{addr: r.addr}
	t.Cleanup(c.close)
	var refused, controls []byte
	for b := range 256 {
		if (b < ' ' && b != '\t' && b != '\r') || b == 0x7f { // Envoy takes a CR that stands alone
			controls = append(controls, byte(b))
		}
		key := "a" + string([]byte{byte(b)}) + "z"
		var codes []int
		for range 4 {
			codes = append(codes, c.get(t, "/by-key", key))
			if codes[0] == http.StatusBadRequest {
				break
			}
		}
		switch fmt.Sprint(codes) {
		case "[200 200 200 429]":
		case "[400]": // by Envoy itself
			refused = append(refused, byte(b))
		default:
			t.Errorf("a key with the byte %#02x: %v", b, codes)
		}
	}
	if !bytes.Equal(refused, controls) {
		t.Errorf("Envoy takes no header with one of %q, want %q; in a claim of a token they are limited, too", refused, controls)
	}
}

// Over HTTP/2 too, as far as Go's client lets them out: all but controls.
func TestAValueOfAnyBytesIsLimitedOverHTTP2(t *testing.T) {
	t.Parallel()
	r := startRecipe(t, "recipes", recipeOptions{})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for b := 0x20; b < 256; b++ {
		if b == 0x7f {
			continue
		}
		var codes []int
		for range 4 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/by-key", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", "a"+string([]byte{byte(b)})+"z")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			codes = append(codes, resp.StatusCode)
		}
		if got := fmt.Sprint(codes); got != "[200 200 200 429]" {
			t.Errorf("a key with the byte %#02x: %s", b, got)
		}
	}
}

// rawClient sends what no HTTP client would, and keeps its connection.
type rawClient struct {
	addr   string
	conn   net.Conn
	reader *bufio.Reader
}

func (c *rawClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *rawClient) get(t *testing.T, path, key string) int {
	t.Helper()
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: upstream.test\r\nX-Api-Key: %s\r\n\r\n", path, key); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		t.Fatalf("key %q: %v", key, err)
	}
	defer resp.Body.Close()
	if _, err := c.reader.Discard(int(max(0, resp.ContentLength))); err != nil {
		t.Fatal(err)
	}
	if resp.Close || resp.StatusCode == http.StatusBadRequest {
		c.close()
	}
	return resp.StatusCode
}
