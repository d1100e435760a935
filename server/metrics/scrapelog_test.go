package metrics

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestScrapesThatAreBrokenOffFillNoLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &scrapeLog{log: slog.New(slog.NewTextHandler(&out, nil))}
	for range 500 {
		l.Println("error encoding and sending metric family: ", errors.New("broken pipe"))
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "family: broken pipe") {
		t.Errorf("%d lines, want one: %.300s", n, out.String())
	}
}
