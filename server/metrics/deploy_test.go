package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"weir/internal/testenv"
)

const (
	dashboard  = "../../deploy/grafana/weir.json"
	alertRules = "../../deploy/prometheus/alerts.yaml"
	operations = "../../docs/operations.md"
)

// dashboardQueries are what the dashboard asks Prometheus, with its variables filled
// in.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d any
	if err := json.Unmarshal(src, &d); err != nil {
		t.Fatalf("%s: %v", dashboard, err)
	}
	var queries []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if expr, ok := v["expr"].(string); ok {
				queries = append(queries, strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$domain", ".*").Replace(expr))
			}
			for _, key := range sortedKeys(v) {
				walk(v[key])
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(d)
	if len(queries) < 30 {
		t.Fatalf("the dashboard has %d queries", len(queries))
	}
	return queries
}

// alertRule is a rule of alerts.yaml.
type alertRule struct {
	Alert, Expr string
	Annotations map[string]string
}

func alerts(t *testing.T) []alertRule {
	t.Helper()
	src, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// A query for what is not there shows nothing, and nobody knows why.
func TestQueriesAskForMetricsThatExist(t *testing.T) {
	queries := dashboardQueries(t)
	for _, a := range alerts(t) {
		queries = append(queries, a.Expr)
	}
	labels := map[string][]string{}
	for _, d := range Catalog() {
		labels[d.Name] = append([]string{"instance", "job"}, d.Labels...)
		if d.Type == "histogram" {
			labels[d.Name+"_bucket"] = append(labels[d.Name], "le")
		}
	}
	name := regexp.MustCompile(`\bweir_[a-z_]+`)
	matcher := regexp.MustCompile(`(weir_[a-z_]+)\{([^}]*)\}`)
	label := regexp.MustCompile(`([a-z_]+)\s*[=!]`)
	by := regexp.MustCompile(`by \(([^)]*)\)`)
	used := map[string]bool{}
	for _, q := range queries {
		var known []string
		for _, metric := range name.FindAllString(q, -1) {
			if labels[metric] == nil {
				t.Errorf("there is no %s: %s", metric, q)
			}
			known = append(known, labels[metric]...)
			used[strings.TrimSuffix(metric, "_bucket")] = true
		}
		for _, m := range matcher.FindAllStringSubmatch(q, -1) {
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels[m[1]], l[1]) {
					t.Errorf("%s has no label %s: %s", m[1], l[1], q)
				}
			}
		}
		for _, m := range by.FindAllStringSubmatch(q, -1) {
			for l := range strings.SplitSeq(m[1], ",") {
				if len(known) > 0 && !slices.Contains(known, strings.TrimSpace(l)) {
					t.Errorf("nothing has the label %s: %s", l, q)
				}
			}
		}
	}
	for _, d := range Catalog() {
		if !used[d.Name] {
			t.Errorf("neither the dashboard nor an alert shows %s", d.Name)
		}
	}
}

func TestOutcomesInQueriesExist(t *testing.T) {
	queries := dashboardQueries(t)
	for _, a := range alerts(t) {
		queries = append(queries, a.Expr)
	}
	outcomes := regexp.MustCompile(`outcome(=~|=)"([^"]*)"`)
	for _, q := range queries {
		for _, m := range outcomes.FindAllStringSubmatch(q, -1) {
			for word := range strings.SplitSeq(m[2], "|") {
				if !slices.ContainsFunc(Outcomes(), regexp.MustCompile("^(?:"+word+")$").MatchString) {
					t.Errorf("there is no outcome %s: %s", word, q)
				}
			}
		}
	}
}

// Whoever is woken up by an alert finds out what to do.
func TestEachAlertHasARunbookAndATest(t *testing.T) {
	page, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(strings.TrimSuffix(alertRules, ".yaml") + "_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts(t) {
		if want := "docs/operations.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: the runbook is %q, want %q", a.Alert, a.Annotations["runbook"], want)
		}
		if !regexp.MustCompile(`(?m)^#+ ` + a.Alert + `$`).Match(page) {
			t.Errorf("%s has no heading %s", operations, a.Alert)
		}
		if !regexp.MustCompile(`alertname: ` + a.Alert + `\n\s+exp_alerts:`).Match(tests) {
			t.Errorf("%s is never seen to fire", a.Alert)
		}
	}
}

func TestPromtoolLikesAlertsAndQueries(t *testing.T) {
	dir, err := filepath.Abs(filepath.Dir(alertRules))
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "alerts.yaml")
	promtool(t, dir, "test", "rules", "alerts_test.yaml")
	// Prometheus parses the dashboard's queries too, if they are rules.
	var file strings.Builder
	file.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, q := range dashboardQueries(t) {
		fmt.Fprintf(&file, "  - {record: query_%d, expr: %q}\n", i, q)
	}
	promtool(t, "", "check", "rules", testenv.WriteFile(t, "dashboard.yaml", file.String()))
}

func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.Promtool(t), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
