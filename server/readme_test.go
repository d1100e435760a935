package server

import (
	"os"
	"strings"
	"testing"
	"time"
)

// readmeRules is the README's block of rules that has the text in it.
func readmeRules(t *testing.T, text string) string {
	t.Helper()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(page), "```yaml\n") {
		if block, _, ok := strings.Cut(part, "```"); ok && strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("the README has no rules with %q", text)
	return ""
}

func TestTheWorkedExampleOfTheREADME(t *testing.T) {
	f := newFixture(t, setup{rules: readmeRules(t, "login-by-address")})
	const login = "endpoint=/api/login remote_address=192.0.2.7"
	noon := monday // 21:00 in Tokyo
	ask := func(remark, want, headers string) {
		t.Helper()
		resp, err := f.ask(t.Context(), request("default", login))
		if err != nil {
			t.Fatal(err)
		}
		if got := answerText(resp); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", remark, got, want)
		}
		if got := headersText(resp); headers != "" && !strings.Contains(got, headers) {
			t.Errorf("%s: headers %s, want %s", remark, got, headers)
		}
	}
	for range 4 {
		ask("four at once", "OK", "")
	}
	ask("the fifth", "OVER_LIMIT: over login-by-address 2/SECOND left 0 after 1s", "Retry-After: 1")
	for range 6 {
		f.clock.advance(time.Second)
		ask("six more, one a second", "OK", "")
	}
	f.clock.advance(time.Second)
	midnight := noon.Add(3 * time.Hour).Sub(f.clock.now())
	ask("the eleventh", "OVER_LIMIT: over login-by-address 10/DAY left 0 after "+midnight.String(), "Retry-After: 10793")
}
