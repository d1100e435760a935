// Package examples_test runs the examples against a real Weir.
package examples_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
)

// example builds an example into a folder, and says how it is run.
type example struct {
	name  string
	build func(t *testing.T, dir string) testenv.Program
}

func TestExamplesRefuseWhatWeirRefusesAndServeWithoutIt(t *testing.T) {
	rules := testenv.WriteFile(t, "rules.yaml", `
rules:
  - {match: {endpoint: /api/posts, remote_address: "*"}, limit: 2, window: 1h}
  - {match: {endpoint: /never}, limit: 0, window: 1h}
  - {match: {endpoint: "/caf*"}, limit: 0, window: 1h}
`)
	for _, e := range []example{{"go", buildGo}, {"python", buildPython}, {"typescript", buildTypeScript}} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			weir := testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rules}})
			listen := testenv.FreeAddr(t)
			program := e.build(t, t.TempDir())
			program.Addr = listen
			program.Env = append(program.Env, "LISTEN="+listen, "WEIR_ADDR="+weir.GRPCAddr)
			testenv.Start(t, program)
			u := user{t, "http://" + listen}

			// A request that gets no answer in 20 ms passes uncounted, be it because
			// the machine is slow: so more than two may pass, but not for long.
			passed := 0
			u.refusedAtLast("/api/posts?page=1", func(int) { passed++ })
			if passed < 2 {
				t.Errorf("%d requests passed, want two", passed)
			}
			u.refusedAtLast("/caf%E9", nil)
			if code, _ := u.get("/other"); code != http.StatusOK {
				t.Errorf("what no rule matches gets %d", code)
			}

			weir.Kill()
			for range 5 {
				if code, _ := u.get("/never"); code != http.StatusOK {
					t.Errorf("without Weir a request gets %d", code)
				}
			}
			testenv.StartWeir(t, testenv.WeirOptions{Rules: []string{rules}, GRPCAddr: weir.GRPCAddr})
			u.refusedAtLast("/never", nil)
		})
	}
}

// user asks an example.
type user struct {
	t    *testing.T
	base string
}

func (u user) get(path string) (int, http.Header) {
	u.t.Helper()
	resp, err := http.Get(u.base + path)
	if err != nil {
		u.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// refusedAtLast asks until it is refused, as Weir would have it.
func (u user) refusedAtLast(path string, passed func(n int)) {
	u.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for n := 1; time.Now().Before(deadline); n++ {
		code, header := u.get(path)
		switch code {
		case http.StatusOK:
			if passed != nil {
				passed(n)
			}
		case http.StatusTooManyRequests:
			if header.Get("X-Ratelimit-Limit") == "" || path == "/api/posts?page=1" && header.Get("Retry-After") == "" {
				u.t.Errorf("%s is refused with %v", path, header)
			}
			return
		default:
			u.t.Fatalf("%s gets %d", path, code)
		}
		time.Sleep(10 * time.Millisecond) // without it, thousands of requests
	}
	u.t.Errorf("%s is not refused", path)
}

// buildGo has a module of its own, made as docs/clients.md says.
func buildGo(t *testing.T, dir string) testenv.Program {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	copyFiles(t, dir, "go", "main.go")
	run(t, dir, "go", "mod", "init", "shop")
	run(t, dir, "go", "mod", "edit", "-require", "weir@v0.0.0", "-replace", "weir="+root)
	run(t, dir, "go", "mod", "tidy")
	path := filepath.Join(dir, "example")
	run(t, dir, "go", "build", "-o", path, ".")
	return testenv.Program{Path: path}
}

// buildPython generates the stubs as docs/clients.md says.
func buildPython(t *testing.T, dir string) testenv.Program {
	python, err := testenv.FindPythonPackages()
	if err != nil {
		t.Fatal(err)
	}
	run(t, "python", python, "-m", "grpc_tools.protoc", "-I", "../../api", "--python_out", dir, "--grpc_python_out", dir, "weir/v1/weir.proto")
	app, err := filepath.Abs("python/app.py")
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Program{Path: python, Args: []string{app}, Env: []string{"PYTHONPATH=" + dir, "PYTHONDONTWRITEBYTECODE=1"}}
}

// buildTypeScript compiles a copy: node wants its modules beside the program.
func buildTypeScript(t *testing.T, dir string) testenv.Program {
	modules, err := testenv.FindNodeModules()
	if err != nil {
		t.Fatal(err)
	}
	node, err := testenv.FindNode()
	if err != nil {
		t.Fatal(err)
	}
	copyFiles(t, dir, "typescript", "app.ts", "package.json", "tsconfig.json")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	run(t, dir, node, filepath.Join(modules, "typescript/bin/tsc"))
	protos, err := filepath.Abs("../api")
	if err != nil {
		t.Fatal(err)
	}
	return testenv.Program{Path: node, Args: []string{filepath.Join(dir, "dist/app.js")}, Env: []string{"PROTOS=" + protos}}
}

func copyFiles(t *testing.T, to, from string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%s %v: %w\n%s", name, args, err, out))
	}
}

// The page's code is part of what is run or compiled here, to the letter.
func TestThePageShowsWhatIsRun(t *testing.T) {
	page, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for language, names := range map[string][]string{
		"go":     {"go/main.go", "../client/example_test.go"},
		"python": {"python/app.py"},
	} {
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources[language] += string(text)
		}
	}
	shown := 0
	for i, part := range strings.Split(string(page), "```") {
		language, code, _ := strings.Cut(part, "\n")
		if i%2 == 0 || sources[language] == "" {
			continue
		}
		if shown++; !strings.Contains(sources[language], code) {
			t.Errorf("this is in no example:\n%s", code)
		}
	}
	if shown < 5 {
		t.Errorf("found only %d blocks of code on the page", shown)
	}
}
