package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// printable writes text of which no part commands a terminal: names, messages and
// errors may come from a store that anybody writes to. It is safe for concurrent use.
type printable struct {
	io.Writer

	mu    sync.Mutex
	begun []byte // a rune that the last write began, and this one may end
}

func (p *printable) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ends := p.endOfBegun(text)
	clean := append(bytes.Clone(text[:ends]), cleaned(text[ends:])...)
	p.note(text)
	if !bytes.Equal(clean, text) {
		_, err := p.Writer.Write(clean)
		return len(text), err
	}
	return p.Writer.Write(text)
}

// endOfBegun is how much of the text belongs to the rune that the last write began;
// 0 if what that makes is none, or none to be printed.
func (p *printable) endOfBegun(text []byte) int {
	if len(p.begun) == 0 {
		return 0
	}
	whole := append(bytes.Clone(p.begun), text[:min(len(text), utf8.UTFMax)]...)
	if !utf8.FullRune(whole) {
		return len(text)
	}
	r, size := utf8.DecodeRune(whole)
	if r == utf8.RuneError && size == 1 || commands(r) {
		return 0
	}
	return size - len(p.begun)
}

// note keeps the beginning of a rune with which the text ends.
func (p *printable) note(text []byte) {
	last := append(p.begun, text[max(0, len(text)-utf8.UTFMax):]...)
	p.begun = nil
	for n := 1; n < utf8.UTFMax && n <= len(last); n++ {
		if at := last[len(last)-n:]; utf8.RuneStart(at[0]) {
			if !utf8.FullRune(at) {
				p.begun = bytes.Clone(at)
			}
			return
		}
	}
}

// commands tells of a control character, but for line feed and tab, and of what turns
// the direction of writing.
func commands(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

// cleaned replaces what commands a terminal.
func cleaned(text []byte) []byte {
	clean := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case !utf8.FullRune(text): // the beginning of one that the next write ends
			return append(clean, text...)
		case r == utf8.RuneError && size == 1:
			clean = fmt.Appendf(clean, "\\x%02x", text[0])
		case commands(r):
			clean = fmt.Appendf(clean, "\\u%04x", r)
		default:
			clean = append(clean, text[:size]...)
		}
		text = text[size:]
	}
	return clean
}
