package main

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// printable writes text of which no part commands a terminal: names, messages and
// errors may come from a store that anybody writes to.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	if clean := cleaned(text); !bytes.Equal(clean, text) {
		_, err := p.Writer.Write(clean)
		return len(text), err
	}
	return p.Writer.Write(text)
}

// cleaned replaces control characters, but for line feed and tab, and what turns
// the direction of writing.
func cleaned(text []byte) []byte {
	clean := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1 && utf8.FullRune(text):
			clean = fmt.Appendf(clean, "\\x%02x", text[0])
		case r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)):
			clean = fmt.Appendf(clean, "\\u%04x", r)
		default: // also the beginning of a rune that the next write ends
			clean = append(clean, text[:size]...)
		}
		text = text[size:]
	}
	return clean
}
