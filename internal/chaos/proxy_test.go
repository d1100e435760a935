package chaos

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echo answers each line by itself.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	return listener.Addr().String()
}

func TestAProxyHasWeather(t *testing.T) {
	t.Parallel()
	const line = "a line of more bytes than pass at once\n"
	for _, c := range []struct {
		remark  string
		weather Weather
		atLeast time.Duration
		says    string // what comes back; empty: nothing does, within a while
		ends    bool
	}{
		{"fair", Weather{}, 0, line, false},
		{"delay, there and back", Weather{Delay: 30 * time.Millisecond}, 60 * time.Millisecond, line, false},
		{"loss", Weather{Loss: 1}, 2 * retransmission, line, false},
		{"slow bytes", Weather{Slow: 10 * time.Millisecond}, 20 * time.Millisecond, line, false},
		{"half-open", Weather{HalfOpen: true}, 0, "", false},
		{"refused", Weather{Refuse: true}, 0, "", true},
		{"cut in the middle", Weather{Cut: 1}, 0, line[:len(line)/2], true},
	} {
		t.Run(c.remark, func(t *testing.T) {
			t.Parallel()
			p, err := NewProxy("", echo(t))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			p.Set(c.weather)
			conn, err := net.Dial("tcp", p.Addr())
			if err != nil {
				if !c.weather.Refuse { // which may be as early
					t.Error(err)
				}
				return
			}
			defer conn.Close()
			begin := time.Now()
			_, _ = io.WriteString(conn, line) // one that is refused may take it, or not
			_ = conn.SetReadDeadline(begin.Add(5 * time.Second))
			if c.says == "" && !c.ends {
				_ = conn.SetReadDeadline(begin.Add(200 * time.Millisecond))
			}
			text, err := bufio.NewReader(conn).ReadString('\n')
			ended := err != nil && !strings.Contains(err.Error(), "timeout")
			if text != c.says || ended != c.ends || time.Since(begin) < c.atLeast {
				t.Errorf("after %v: %q, %v", time.Since(begin), text, err)
			}
			if c.remark != "half-open" {
				return
			}
			p.Set(Weather{})
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if text, err := bufio.NewReader(conn).ReadString('\n'); text != line {
				t.Errorf("when the weather is better: %q, %v", text, err)
			}
		})
	}
}
