package internal_test

import (
	"debug/buildinfo"
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestImageBuilds runs the Dockerfile's build without docker: the commands of its
// first stage, in a copy of what its COPY lines bring in. What it cannot see is
// the base image.
func TestImageBuilds(t *testing.T) {
	t.Parallel()
	stages := readDockerfile(t, "../Dockerfile")
	if len(stages) != 2 {
		t.Fatalf("%d stages, want one that builds and one that is the image", len(stages))
	}
	root := t.TempDir() // stands for / of the build stage
	runStage(t, stages[0], root)

	binary := checkImage(t, stages[1], root)
	out, err := exec.Command(binary, "version").CombinedOutput()
	if err != nil {
		t.Fatalf("weir version: %v\n%s", err, out)
	}
	if !strings.HasPrefix(string(out), "weir dev ") {
		t.Errorf("weir version says %q, want the default of the build argument VERSION", out)
	}
	checkStatic(t, binary)
	if to, err := os.Readlink(filepath.Join(root, "src/bin/image/bin/ratelimit")); err != nil || to != "/weir" {
		t.Errorf("/bin/ratelimit, which Envoy Gateway runs, leads to %q, %v", to, err)
	}
}

type instruction struct{ name, args string }

type stage []instruction

// readDockerfile knows comments, continued lines and stages, but not the
// escapes and here-documents that ours does without.
func readDockerfile(t *testing.T, name string) []stage {
	t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(string(src), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var stages []stage
	for line := range strings.Lines(text) {
		word, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		word = strings.ToUpper(word)
		if word == "" {
			continue
		}
		if word == "FROM" {
			stages = append(stages, nil)
		}
		if len(stages) == 0 {
			t.Fatalf("%s before FROM", word)
		}
		last := &stages[len(stages)-1]
		*last = append(*last, instruction{word, strings.TrimSpace(args)})
	}
	return stages
}

func runStage(t *testing.T, s stage, root string) {
	t.Helper()
	dir := root
	env := append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	ran := false
	for _, in := range s {
		switch in.name {
		case "FROM":
		case "WORKDIR":
			dir = filepath.Join(root, in.args)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		case "ARG":
			if !strings.Contains(in.args, "=") {
				t.Fatalf("ARG %s has no default", in.args)
			}
			env = append(env, in.args)
		case "COPY":
			args := strings.Fields(in.args)
			for _, src := range args[:len(args)-1] {
				copyContext(t, src, dir)
			}
		case "RUN":
			cmd := exec.Command("/bin/sh", "-c", in.args)
			cmd.Dir, cmd.Env = dir, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", in.args, err, out)
			}
			ran = true
		default:
			t.Fatalf("%s %s: this test does not know how to do it", in.name, in.args)
		}
	}
	if !ran {
		t.Fatal("the build stage runs nothing")
	}
}

// copyContext copies a file or folder of the repository into dir, without what
// .dockerignore names.
func copyContext(t *testing.T, src, dir string) {
	t.Helper()
	ignored := readIgnored(t)
	base := filepath.Join("..", src)
	err := filepath.WalkDir(base, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", name)
		if err != nil {
			return err
		}
		if ignored(filepath.ToSlash(rel)) {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		to := filepath.Join(dir, rel)
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readIgnored(t *testing.T) func(rel string) bool {
	t.Helper()
	src, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for line := range strings.Lines(string(src)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			patterns = append(patterns, line)
		}
	}
	return func(rel string) bool {
		for _, p := range patterns {
			name := rel
			if anywhere, ok := strings.CutPrefix(p, "**/"); ok {
				p, name = anywhere, path.Base(rel)
			}
			if ok, err := path.Match(p, name); err != nil {
				t.Fatalf(".dockerignore: %s: %v", p, err)
			} else if ok {
				return true
			}
		}
		return false
	}
}

// checkImage holds what the final stage promises, and returns where the binary is
// that it copies from the build stage.
func checkImage(t *testing.T, s stage, root string) (binary string) {
	t.Helper()
	has := map[string]string{}
	for _, in := range s {
		has[in.name] += in.args
		if in.name != "COPY" {
			continue
		}
		if src, to, ok := strings.Cut(strings.TrimPrefix(in.args, "--from=build "), " "); ok && to == "/weir" {
			binary = filepath.Join(root, src)
		}
	}
	if binary == "" {
		t.Fatal("nothing is copied to /weir")
	}
	if has["FROM"] != "scratch" {
		t.Errorf("FROM %s: want scratch, for there is nothing to attack in it", has["FROM"])
	}
	if !regexp.MustCompile(`^[1-9][0-9]*(:[1-9][0-9]*)?$`).MatchString(has["USER"]) {
		t.Errorf("USER %q: want a number that is not root's", has["USER"])
	}
	if want := `["/weir"]`; has["ENTRYPOINT"] != want {
		t.Errorf("ENTRYPOINT %s, want %s", has["ENTRYPOINT"], want)
	}
	if want := `["serve", "--grpc-addr", "0.0.0.0:8081", "--http-addr", "0.0.0.0:8080"]`; has["CMD"] != want {
		t.Errorf("CMD %s, want %s", has["CMD"], want)
	}
	if want := "8081 8080"; has["EXPOSE"] != want {
		t.Errorf("EXPOSE %s, want %s", has["EXPOSE"], want)
	}
	return binary
}

// checkStatic: an empty image has no dynamic linker, and its builds must not
// name folders of the machine that made them.
func checkStatic(t *testing.T, binary string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" || settings["-trimpath"] != "true" {
		t.Errorf("built with CGO_ENABLED=%s -trimpath=%s", settings["CGO_ENABLED"], settings["-trimpath"])
	}
	if runtime.GOOS != "linux" {
		t.Logf("on %s the binary is no ELF file; that it is static is checked on Linux", runtime.GOOS)
		return
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary asks for a dynamic linker")
		}
	}
	libs, err := f.ImportedLibraries()
	if err == nil && len(libs) > 0 {
		t.Errorf("the binary asks for libraries: %v", libs)
	}
}
