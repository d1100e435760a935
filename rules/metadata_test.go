package rules

import (
	"strings"
	"testing"
)

// Envoy reads no message of over a hundred levels: what is deeper would make it
// take a refusal for no answer.
func TestMetadataIsNotDeeperThanEnvoyReads(t *testing.T) {
	for _, x := range []struct {
		open, shut string
		levels     int // within the mapping itself
		ok         bool
	}{
		{"{a: ", "}", 22, true},
		{"{a: ", "}", 23, false},
		{"[", "]", 22, true},
		{"[", "]", 23, false},
	} {
		rule := "rules: [{match: {a: '*'}, limit: 1, window: 1s, metadata: {m: " + strings.Repeat(x.open, x.levels) + "1" + strings.Repeat(x.shut, x.levels) + "}}]"
		faults := faultsOf("f.yaml", []byte(rule))
		if (len(faults) == 0) != x.ok || !x.ok && !strings.Contains(faults.Error(), "deeper than 24 levels") {
			t.Errorf("%d times %s: %v", x.levels, x.open, faults)
		}
	}
}
