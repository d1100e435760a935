package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Who believes the page may look: each attack has tests that are there, and each test
// that it names is.
func TestWhatHoldsEachThreatIsThere(t *testing.T) {
	src, err := os.ReadFile("threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(src)
	section := func(title string) string {
		_, rest, ok := strings.Cut(page, "\n## "+title+"\n")
		if !ok {
			t.Fatalf("the page has no section %q", title)
		}
		text, _, _ := strings.Cut(rest, "\n## ")
		return text
	}
	var attacks []string
	for _, m := range regexp.MustCompile(`(?m)^\| \*\*(.+?)\*\*`).FindAllStringSubmatch(section("Attacks, and what stands against them"), -1) {
		attacks = append(attacks, m[1])
	}
	if len(attacks) < 25 {
		t.Fatalf("only %d attacks are found", len(attacks))
	}
	named := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)\\w+)`")
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z].+?) \| (.+) \|$`).FindAllStringSubmatch(section("What holds it"), -1) {
		told[m[1]] = true
		tests := named.FindAllStringSubmatch(m[2], -1)
		if len(tests) == 0 && !strings.HasPrefix(m[2], "none: ") {
			t.Errorf("%s: no test is named, and no reason", m[1])
		}
	}
	for _, test := range named.FindAllStringSubmatch(page, -1) {
		if !hasTest(t, test[1], test[2]) {
			t.Errorf("there is no %s in %s", test[2], test[1])
		}
	}
	for _, attack := range attacks {
		if !told[attack] {
			t.Errorf("no tests are named for %q", attack)
		}
		delete(told, attack)
	}
	for attack := range told {
		t.Errorf("tests are named for %q, which is no attack of the table", attack)
	}
}

// hasTest tells whether a package's folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(src), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
