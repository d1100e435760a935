package ruletest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzTestFile holds that no test file ends the process: it is played, or has faults.
func FuzzTestFile(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/tests/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("%s: %d, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			src, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Add([]byte(reported))
	f.Add([]byte("rules: &a [*a]\nsteps: &b [*b]\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if bytes.Contains(src, []byte("files")) || bytes.Contains(src, []byte("000")) {
			return // it would read whatever is on this machine, or send for long
		}
		file, err := parse("f.yaml", src, configure)
		if err != nil {
			return
		}
		for _, test := range file.Tests {
			if _, err := Play(t.Context(), test, configure); err != nil {
				t.Fatal(err)
			}
		}
	})
}
