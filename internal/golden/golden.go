// Package golden is for files of the repository that a test makes: it holds them
// against what the code says, or writes them anew.
package golden

import (
	"os"
	"strings"
	"testing"
)

// Check fails, with the first line that differs, if a file is not what is wanted.
// With update it writes it first.
func Check(t testing.TB, file, want string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	is, should := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	n := 0
	for n < min(len(is), len(should))-1 && is[n] == should[n] {
		n++
	}
	t.Errorf("%s:%d is not what the code says (-update writes it anew)\nit is\n\t%s\nand should be\n\t%s", file, n+1, is[n], should[n])
}
