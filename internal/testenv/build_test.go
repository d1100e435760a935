package testenv

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersionsAreThoseOfTheModules(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ folder, tool, module, version string }{
		{"consul", "github.com/hashicorp/consul", "github.com/hashicorp/consul", consulVersion},
		{"ratelimit", "github.com/envoyproxy/ratelimit/src/service_cmd", "github.com/envoyproxy/ratelimit", ratelimitVersion},
	} {
		text, err := os.ReadFile(x.folder + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\ntool " + x.tool + "\n", x.module + " v" + x.version} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s/go.mod does not have %q", x.folder, want)
			}
		}
	}
}

func TestBuildShowsHowFarItIs(t *testing.T) {
	t.Parallel()
	// Standard packages would be in the build cache; this one is new each time.
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test\n\ngo 1.26\n")
	write("main.go", "package main // "+dir+"\n\nfunc main() {}\n")
	var progress bytes.Buffer
	built := filepath.Join(dir, "built")
	if err := goBuild(&progress, time.Millisecond, dir, "-o", built, "."); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(progress.String(), " packages compiled\n"); lines == 0 {
		t.Errorf("shown %q, want a line each millisecond", progress.String())
	}

	write("main.go", "package main\n\nfunc main() { undefined() }\n")
	err := goBuild(&progress, time.Hour, dir, "-o", built, ".")
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("a build that fails does not say why: %v", err)
	}

	var log buildLog
	_, _ = log.Write([]byte("go: downloading a v1\ngo: downloading b v1\nexample.test/a\nexample.test/b\nexample.test/c\n"))
	if got, want := log.summary(), "2 modules downloaded, 3 packages compiled"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
}
