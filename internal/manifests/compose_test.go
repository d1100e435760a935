package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// load reads a Compose file as docker compose does: the schema, the merge of
// anchors, the defaults, what depends on what.
func load(t *testing.T, file string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{file}, cli.WithoutEnvironmentResolution, cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return options.LoadProject(t.Context())
}

func TestComposeTakesTheFile(t *testing.T) {
	t.Parallel()
	project, err := load(t, filepath.Join(root, "deploy/compose/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		if b := s.Build; b != nil {
			if _, err := os.Stat(filepath.Join(b.Context, "Dockerfile")); err != nil {
				t.Errorf("%s is built from what is not there: %v", name, err)
			}
		}
		for other, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionHealthy && project.Services[other].HealthCheck == nil {
				t.Errorf("%s waits until %s is healthy, which has no health check", name, other)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s to the whole network", name, p.Published)
			}
		}
	}
	weir := project.Services["weir"]
	if n := weir.GetScale(); n != 2 {
		t.Errorf("%d instances of Weir, want 2", n)
	}
}

func TestComposeRefusesAWrongField(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, "deploy/compose/compose.yaml"))
	for _, c := range []struct{ old, new string }{
		{"stop_grace_period:", "stop_grace:"},
		{"condition: service_healthy", "condition: service_well"},
		{"depends_on: [weir, upstream]", "depends_on: [weir, upstreams]"},
	} {
		wrong := strings.Replace(text, c.old, c.new, 1)
		if wrong == text {
			t.Fatalf("compose.yaml has no %q", c.old)
		}
		file := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(file, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, file); err == nil {
			t.Errorf("%s: no error", c.new)
		}
	}
}
