package ruletest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/limiter"
	"weir/server"
)

// configure knows a few flags; those of serve are tested in cmd/weir.
func configure(flags []string) (Setup, error) {
	s := Setup{
		Server: server.Options{Shadow: slices.Contains(flags, "--shadow")},
		Memory: limiter.MemoryOptions{Options: limiter.Options{ChargeEach: slices.Contains(flags, "each")}},
	}
	if slices.Contains(flags, "--bad") {
		return s, errors.New("--bad is no flag")
	}
	return s, nil
}

// write puts a test file into a folder of its own.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// report runs a test file, and returns what is printed, without its folder.
func report(t *testing.T, text string, verbose bool) string {
	t.Helper()
	path := write(t, text)
	r := Run(t.Context(), path, Options{Configure: configure})
	var out strings.Builder
	r.Write(&out, verbose)
	return strings.ReplaceAll(out.String(), filepath.Dir(path)+string(filepath.Separator), "")
}
