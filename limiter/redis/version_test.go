package redis

import (
	"strings"
	"testing"
)

func TestARedisThatIsTooOldIsToldFromOneThatIsNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		old     bool
	}{
		{"5.0.14", true},
		{"6.0.16", true},
		{"6.1.240", true}, // a release candidate of 6.2
		{"6.2.0", false},
		{"6.2.14", false},
		{"7.0.15", false},
		{"7.2.4", false}, // what Valkey says of itself
		{"8.4.0", false},
		{"10.0.0", false},
		{"255.255.255", false}, // a build of the main branch
		{"unstable", false},
		{"", false},
	} {
		err := tooOld("# Server\r\nredis_version:" + c.version + "\r\nredis_git_sha1:00000000\r\n")
		if (err != nil) != c.old {
			t.Errorf("version %q: error %v", c.version, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.version) || !strings.Contains(err.Error(), "6.2")) {
			t.Errorf("version %q: the error %q does not say what is and what must be", c.version, err)
		}
	}
	if err := tooOld(""); err != nil {
		t.Errorf("a Redis that does not say its version: %v", err)
	}
}
