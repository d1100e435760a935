package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/pflag"
)

// FuzzPrintable holds that no text commands a terminal, and that what is harmless
// stays as it is.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{"a\x1b[2Jb", "é\xff\xc3", "\u202egnp", "a\tb\n", "\x9b31m", "\u009b", "\r"} {
		f.Add([]byte(text), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		var out bytes.Buffer
		at := min(int(cut), len(text))
		w := &printable{Writer: &out}
		for _, part := range [][]byte{text[:at], text[at:]} {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatalf("%d of %d bytes, %v", n, len(part), err)
			}
		}
		harmless := true
		for _, r := range string(text) {
			harmless = harmless && r != unicode.ReplacementChar && (r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r))
		}
		if harmless && !bytes.Equal(out.Bytes(), text) {
			t.Fatalf("%q is printed as %q", text, &out)
		}
		for _, r := range out.String() {
			if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("%q is printed as %q", text, &out)
			}
		}
	})
}

// FuzzCompatEnvironment holds that any environment of envoyproxy/ratelimit becomes
// flags, or an error that names one of its settings, and none that shows a password.
func FuzzCompatEnvironment(f *testing.F) {
	for i := range compatSettings {
		f.Add(uint8(i), "true", uint8(i+1), "x:1,y")
		f.Add(uint8(i), "", uint8(i), "1h")
	}
	f.Fuzz(func(t *testing.T, first uint8, a string, second uint8, b string) {
		const secret = "user:sesame"
		env := map[string]string{"REDIS_AUTH": secret, "REDIS_URL": "h:1"}
		env[compatSettings[int(first)%len(compatSettings)].name] = a
		env[compatSettings[int(second)%len(compatSettings)].name] = b
		var c serveConfig
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.addFlags(flags)
		said, err := applyCompat(flags, func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		})
		text := strings.Join(said.notes, "\n")
		if err != nil {
			text += err.Error()
			if !strings.Contains(err.Error(), "environment ") {
				t.Fatalf("%v does not name a setting", err)
			}
		}
		if strings.Contains(text, "sesame") && !strings.Contains(a+b, "sesame") {
			t.Fatalf("%v shows a password: %s", env, text)
		}
	})
}

// FuzzDescriptors holds that key=value words become what they say.
func FuzzDescriptors(f *testing.F) {
	for _, text := range []string{"a=b", "a=b\x00,\x00c=d=e", ",", "=a", "a", "a=\x00b=,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := strings.Split(text, "\x00")
		got, err := parseDescriptors(words)
		if err != nil {
			return
		}
		var back []string
		for i, entries := range got {
			if i > 0 {
				back = append(back, ",")
			}
			for _, e := range entries {
				back = append(back, e.Key+"="+e.Value)
			}
		}
		if strings.Join(back, "\x00") != text {
			t.Fatalf("%q became %+v", words, got)
		}
	})
}
