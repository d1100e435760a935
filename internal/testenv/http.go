package testenv

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// httpClient calls a server that a test started. It trusts and shows the
// certificate of the files, for servers that ask for one.
func httpClient(t testing.TB, files *TLSFiles) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	if files != nil {
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatalf("testenv: %v", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: files.Pool, Certificates: []tls.Certificate{cert}}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// statusError is an answer that is no success.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.text) }

// statusOf is the status of an answer that was no success; 0: there is no error,
// or no answer.
func statusOf(err error) int {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer.code
	}
	return 0
}

// send returns the body of a successful answer.
func send(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = &statusError{resp.StatusCode, strings.TrimSpace(string(body))}
	}
	if err != nil {
		return nil, fmt.Errorf("testenv: %s %s: %w", req.Method, req.URL, err)
	}
	return body, nil
}

// awaitUp polls until a server that was started does what it is there for.
func awaitUp(t testing.TB, p *Process, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(longestWait); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		switch {
		case err == nil:
			return
		case !p.Runs():
			t.Fatalf("testenv: %s ended before it %s: %v", p.name, what, err)
		case time.Now().After(deadline):
			t.Fatalf("testenv: not after %v: %s %s: %v", longestWait, p.name, what, err)
		}
	}
}
