package server

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oneListener hands out the connections that a test puts into it.
type oneListener chan net.Conn

func (l oneListener) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (l oneListener) Close() error   { return nil }
func (l oneListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// slowHandler answers each path in a way of its own.
func slowHandler(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/long":
		for range 100 {
			if _, err := io.WriteString(w, strings.Repeat("x", 4<<10)); err != nil {
				return
			}
		}
	case "/held":
		time.Sleep(10 * stalled)
	case "/own":
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(w, strings.Repeat("x", 64<<10))
		return
	default:
		_, _ = io.Copy(io.Discard, r.Body)
	}
	io.WriteString(w, "done")
}

// Else every such client kept a goroutine and buffers for as long as it likes.
func TestAClientThatDoesNotReadItsAnswerIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(oneListener)
		server := &http.Server{Handler: cutOff(http.HandlerFunc(slowHandler))}
		served := make(chan error)
		go func() { served <- server.Serve(conns) }()
		send := func(client net.Conn, request string) {
			_, _ = io.WriteString(client, strings.ReplaceAll(request, "\n", "\r\n"))
		}
		dial := func(request string) net.Conn {
			client, conn := net.Pipe()
			conns <- conn
			send(client, request)
			return client
		}
		body := func(client net.Conn) (string, error) {
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				return "", err
			}
			text, err := io.ReadAll(resp.Body)
			return string(text), err
		}
		const headers = " HTTP/1.1\nHost: localhost\n\n"

		long, short, own := dial("GET /long"+headers), dial("GET /short"+headers), dial("GET /own"+headers)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := body(own); err == nil {
			t.Error("the handler's own deadline did not hold")
		}
		time.Sleep(stalled)
		synctest.Wait()
		for name, client := range map[string]net.Conn{"a long answer": long, "a short one": short} {
			if _, err := body(client); err == nil {
				t.Errorf("%s that nobody read was kept", name)
			}
		}

		client := dial("GET /held" + headers)
		if text, err := body(client); text != "done" || err != nil {
			t.Errorf("an answer that was held: %q, %v", text, err)
		}
		time.Sleep(2 * stalled)
		send(client, "POST /short HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 2\n\n")
		r := bufio.NewReader(client)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Errorf("another request on its connection, long after: %q, %v", line, err)
		}
		for _, c := range []net.Conn{long, short, own, client} {
			c.Close()
		}
		close(conns)
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
