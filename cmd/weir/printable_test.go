package main

import (
	"strings"
	"testing"
)

func TestNothingThatIsPrintedCommandsATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":        "plain\ttext\n",
		"größe 限":              "größe 限",
		"a\x1b[31mred":         `a\u001b[31mred`,
		"\a\r\x7f":             `\u0007\u000d\u007f`,
		"c1 \u009b2J":          `c1 \u009b2J`,
		"turned \u202e around": `turned \u202e around`,
		"\xff\xc3":             "\\xff\xc3",
	} {
		var out strings.Builder
		if n, err := (&printable{Writer: &out}).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q, %d, %v", text, out.String(), n, err)
		}
	}
}
