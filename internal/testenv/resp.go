package testenv

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisDo runs one command on a connection of its own. It keeps this package,
// and with it the tests that start a Redis, from depending on a client.
func redisDo(addr string, files *TLSFiles, auth, args []string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if files != nil {
		config := &tls.Config{RootCAs: files.Pool, ServerName: "127.0.0.1"}
		conn = tls.Client(conn, config)
	}
	in := bufio.NewReader(conn)
	if len(auth) > 0 {
		if _, err := respCall(conn, in, auth); err != nil {
			return "", err
		}
	}
	return respCall(conn, in, args)
}

func respCall(out io.Writer, in *bufio.Reader, args []string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return "", err
	}
	return respReply(in)
}

func respReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("an empty line is no reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || kind != '$' && kind != '*' {
		return "", fmt.Errorf("%q begins no reply", line)
	}
	if n < 0 {
		return "", nil
	}
	if kind == '$' {
		text := make([]byte, n+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return "", err
		}
		return string(text[:n]), nil
	}
	members := make([]string, n)
	for i := range members {
		if members[i], err = respReply(in); err != nil {
			return "", err
		}
	}
	return strings.Join(members, "\n"), nil
}
