// Package docs_test runs what the README and the pages here say.
//
// A block that begins with ```sh is run by bash in the repository's folder;
// ```sh background ADDR is started, and is up when ADDR accepts connections.
// A ```text output block is what the sh block before it prints: "…" stands for
// any text, a line of "…" for any lines. A ```yaml block that has rules must
// compile. The well-known ports are replaced by free ones.
package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/testenv"
	"weir/rules"
)

func TestWhatThePagesSay(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		t.Run(filepath.Base(page), func(t *testing.T) {
			src, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			newReader(t).run(t, blocks(string(src)))
		})
	}
}

// block is a fenced block: what follows the fence, and its text.
type block struct {
	info, text string
	line       int
}

func blocks(page string) (out []block) {
	var current *block
	for i, line := range strings.Split(page, "\n") {
		fence, ok := strings.CutPrefix(line, "```")
		switch {
		case ok && current == nil:
			current = &block{info: fence, line: i + 1}
		case ok:
			out = append(out, *current)
			current = nil
		case current != nil:
			current.text += line + "\n"
		}
	}
	return out
}

// reader does what a reader of a page would do.
type reader struct {
	ports   *strings.Replacer
	env     []string
	printed string
}

func newReader(t *testing.T) *reader {
	var pairs []string
	for _, wellKnown := range []string{"6379", "8080", "8081", "8082", "8500", "9000", "10000"} {
		pairs = append(pairs, wellKnown, fmt.Sprint(testenv.FreePort(t)))
	}
	r := &reader{ports: strings.NewReplacer(pairs...)}
	envoy, err := testenv.FindEnvoy()
	if err != nil {
		t.Fatal(err)
	}
	// Each Envoy of a machine needs an id of its own; a reader has only one.
	alone := testenv.WriteFile(t, "envoy", "#!/bin/sh\nexec "+envoy+" --use-dynamic-base-id \"$@\"\n")
	if err := os.Chmod(alone, 0o700); err != nil {
		t.Fatal(err)
	}
	consul, err := testenv.FindConsul()
	if err != nil {
		t.Fatal(err)
	}
	// Each Consul of a machine needs ports of its own, beside that of its HTTP API.
	var ports strings.Builder
	for _, name := range []string{"serf-lan", "server"} {
		fmt.Fprintf(&ports, " -%s-port %d", name, testenv.FreePort(t))
	}
	agent := "#!/bin/sh\nexec " + consul + r.ports.Replace(` "$@" -http-port 8500 -bind 127.0.0.1 -serf-wan-port -1 -grpc-port -1 -dns-port -1 -hcl "ports { grpc_tls = -1 }"`) + ports.String() + "\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(alone), "consul"), []byte(agent), 0o700); err != nil {
		t.Fatal(err)
	}
	r.env = []string{
		r.ports.Replace("CONSUL_HTTP_ADDR=127.0.0.1:8500"),
		r.ports.Replace("WEIR_GRPC_ADDR=127.0.0.1:8081"), r.ports.Replace("WEIR_HTTP_ADDR=127.0.0.1:8080"), r.ports.Replace("WEIR_ADDR=127.0.0.1:8081"),
		"PATH=" + filepath.Dir(alone) + ":" + os.Getenv("PATH"),
	}
	return r
}

func (r *reader) run(t *testing.T, bs []block) {
	for _, b := range bs {
		words := strings.Fields(b.info)
		if len(words) == 0 {
			continue
		}
		switch {
		case words[0] == "sh" && len(words) == 3 && words[1] == "background":
			testenv.Start(t, testenv.Program{
				Path: "/bin/bash", Args: []string{"-c", r.script(t, b)}, Dir: "..", Env: r.env,
				Addr: r.ports.Replace(words[2]), Wait: 3 * time.Minute,
			})
		case words[0] == "sh":
			r.bash(t, b)
		case b.info == "text output":
			if !shows(r.printed, r.ports.Replace(b.text)) {
				t.Errorf("line %d: the page shows\n%s\nbut it prints\n%s", b.line, b.text, r.printed)
			}
		case words[0] == "yaml" && (strings.Contains(b.text, "rules:") || strings.Contains(b.text, "descriptors:")):
			checkRules(t, b)
		}
	}
}

// script is the block with free ports, also in the Envoy configuration it names.
func (r *reader) script(t *testing.T, b block) string {
	const config = "envoy/envoy.yaml"
	if strings.Contains(b.text, config) {
		src, err := os.ReadFile("../" + config)
		if err != nil {
			t.Fatal(err)
		}
		b.text = strings.ReplaceAll(b.text, config, testenv.WriteFile(t, "envoy.yaml", r.ports.Replace(string(src))))
	}
	return r.ports.Replace(b.text)
}

func (r *reader) bash(t *testing.T, b block) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-euo", "pipefail", "-c", r.script(t, b))
	cmd.Dir, cmd.Env = "..", append(os.Environ(), r.env...)
	out, err := cmd.CombinedOutput()
	r.printed = strings.ReplaceAll(string(out), "\r\n", "\n")
	if err != nil {
		t.Fatalf("line %d: %v\n%s\nprinted\n%s", b.line, err, b.text, out)
	}
}

// shows tells whether the output is what the page shows.
func shows(printed, page string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(page) {
		if line == "…\n" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(line, "\n")), "…", ".*") + `\n`)
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(printed)
}

func checkRules(t *testing.T, b block) {
	doc, err := rules.Parse(fmt.Sprintf("block at line %d", b.line), []byte(b.text))
	if err == nil {
		_, err = rules.Compile(doc)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestShowsKnowsTheWildcard(t *testing.T) {
	for _, x := range []struct {
		printed, page string
		want          bool
	}{
		{"a 12s\n", "a …\n", true},
		{"a\nb\nc\n", "a\n…\n", true},
		{"a\nb\n", "a\n", false},
		{"b\n", "a\n", false},
	} {
		if got := shows(x.printed, x.page); got != x.want {
			t.Errorf("shows(%q, %q) = %v", x.printed, x.page, got)
		}
	}
}
