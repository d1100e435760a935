package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows on a terminal how far something is; elsewhere it shows nothing.
type progress struct {
	terminal *os.File // nil: there is none
	shown    time.Time
}

// newProgress shows on the writer, if it is a terminal.
func newProgress(w io.Writer) *progress {
	if p, ok := w.(*printable); ok {
		w = p.Writer // which would keep the line from being written over
	}
	f, ok := w.(*os.File)
	if !ok {
		return &progress{}
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &progress{}
	}
	return &progress{terminal: f}
}

// show shows how many bytes were read, of how many (0: not known), and lines.
func (p *progress) show(bytes, total int64, lines uint64) {
	if p.terminal == nil || time.Since(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = time.Now()
	const width = 30
	if total <= 0 {
		fmt.Fprintf(p.terminal, "\r%d lines, %d MiB ", lines, bytes>>20)
		return
	}
	done := int(min(width, width*bytes/total))
	fmt.Fprintf(p.terminal, "\r[%s%s] %3d%% %d lines ", strings.Repeat("=", done), strings.Repeat(" ", width-done), min(100, 100*bytes/total), lines)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.terminal != nil && !p.shown.IsZero() {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}
