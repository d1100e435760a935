package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// AskRedis sends Redis one command, as a line, and returns what it answers: a status,
// a number or a text.
func AskRedis(ctx context.Context, addr, command string) (string, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("ask Redis: %s: %w", command, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", fmt.Errorf("ask Redis at %s: %s: %w", addr, command, err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", fmt.Errorf("ask Redis at %s: %s: %w", addr, command, err)
	}
	text, err := reply(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("ask Redis at %s: %s: %w", addr, command, err)
	}
	return text, nil
}

func reply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, rest := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+', ':':
		return rest, nil
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 || n > 1<<20 {
			return "", fmt.Errorf("a text of length %q", rest)
		}
		text := make([]byte, n)
		_, err = io.ReadFull(r, text)
		return string(text), err
	}
	return "", fmt.Errorf("it answered %s", strings.TrimSpace(line))
}

// Get returns the body of a URL; any status but 200 is an error.
func Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	return string(b), err
}
