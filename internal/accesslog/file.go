package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxLine is how long a line may be, in bytes. Longer ones are not read.
const maxLine = 256 << 10

// file is a log that is being read.
type file struct {
	name, format string
	closer       io.Closer
	counted      *countingReader
	size         int64 // 0: not known
	lines        uint64
	unreadable   uint64
	examples     []string
	met          []bool // by field: a line has had it

	reader *bufio.Reader
	long   []byte // a line that is longer than the reader's memory
	parse  parser
	times  *timeReader
	values [][]byte // of the last line, by field
	at     int64    // its time, in µs since 1970
	next   *Request
}

// parser finds the values of the mapping's fields in a line, each in its place; what
// the line does not have, is nil. Values are good until the next line is read.
type parser interface {
	parse(line []byte, values [][]byte) error
}

type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

// openFile opens a log, or standard input, and recognises its format.
func openFile(name string, opts *Options) (*file, error) {
	f := &file{name: name, times: newTimeReader(opts.Zone), values: make([][]byte, len(opts.Mapping.fields)), met: make([]bool, len(opts.Mapping.fields))}
	if name == "-" {
		f.name = "standard input"
		f.counted = &countingReader{Reader: opts.Stdin}
	} else {
		opened, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading a log: %w", err)
		}
		f.closer, f.counted = opened, &countingReader{Reader: opened}
		info, err := opened.Stat()
		switch {
		case err == nil && info.IsDir():
			f.close()
			return nil, fmt.Errorf("%s is a folder; name the logs in it, such as %s/*.log", name, strings.TrimSuffix(name, "/"))
		case err == nil && info.Mode().IsRegular():
			f.size = info.Size()
		}
	}
	if err := f.begin(opts); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// begin looks whether the file is compressed, and at its first line.
func (f *file) begin(opts *Options) error {
	f.reader = bufio.NewReaderSize(f.counted, 64<<10)
	if magic, _ := f.reader.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(f.reader)
		if err != nil {
			return f.unread(err)
		}
		f.reader = bufio.NewReaderSize(unzipped, 64<<10)
	}
	first, err := f.reader.Peek(f.reader.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return f.unread(err)
	}
	if f.format = opts.Format; f.format == "" {
		f.format = recognise(firstLine(first))
	}
	if f.format == "" {
		if len(bytes.TrimSpace(first)) == 0 {
			f.format, f.parse = "empty", noLines{}
			return nil
		}
		return fmt.Errorf("%s: the format is none of %s, by its first line; if it is one, say --format", f.name, strings.Join(Formats(), ", "))
	}
	header := []byte(nil)
	if f.format == formatCSV {
		for err = nil; err == nil && len(bytes.TrimSpace(header)) == 0; f.lines++ {
			header, err = f.line()
			header = bytes.TrimPrefix(header, []byte("\ufeff"))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return f.unread(err)
		}
	}
	f.parse, err = newParser(f.format, header, opts.Mapping)
	return err
}

func (f *file) close() {
	if f.closer != nil {
		_ = f.closer.Close() // it was only read
		f.closer = nil
	}
}

func (f *file) unread(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("reading %s after line %d: the compressed file ends in the middle; is it still being written?", f.name, f.lines)
	}
	return fmt.Errorf("reading %s after line %d: %w", f.name, f.lines, err)
}

// firstLine is the first that has something in it, as far as it is there.
func firstLine(text []byte) []byte {
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\ufeff")), "\r\n \t")
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return bytes.TrimRight(line, "\r")
}

// read reads the next line that can be read, and its time; false at the end.
func (f *file) read() (bool, error) {
	for {
		line, err := f.line()
		switch {
		case errors.Is(err, errLong):
			f.lines++
			f.fault(err)
			continue
		case errors.Is(err, io.EOF) && len(line) == 0:
			return false, nil
		case err != nil && !errors.Is(err, io.EOF):
			return false, f.unread(err)
		}
		f.lines++
		if f.lines == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := f.take(line); err != nil {
			f.fault(err)
			continue
		}
		return true, nil
	}
}

// take reads a line's fields.
func (f *file) take(line []byte) error {
	clear(f.values)
	if err := f.parse.parse(line, f.values); err != nil {
		return err
	}
	if f.values[timeField] == nil {
		return errors.New("the line has no time")
	}
	at, err := f.times.read(f.values[timeField])
	if err != nil {
		return err
	}
	f.at = at
	for i, v := range f.values {
		if v != nil {
			f.met[i] = true
		}
	}
	return nil
}

// fault counts a line that cannot be read.
func (f *file) fault(err error) {
	f.unreadable++
	if len(f.examples) < maxExamples {
		f.examples = append(f.examples, fmt.Sprintf("%s:%d: %v", f.name, f.lines, err))
	}
}

var errLong = fmt.Errorf("the line is longer than %d KiB", maxLine>>10)

// line returns the next line, without its end. Of one that is too long all is read,
// and nothing kept.
func (f *file) line() ([]byte, error) {
	line, err := f.reader.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		f.long = f.long[:0]
		whole := true
		for errors.Is(err, bufio.ErrBufferFull) {
			if whole = whole && len(f.long)+len(line) <= maxLine; whole {
				f.long = append(f.long, line...)
			}
			line, err = f.reader.ReadSlice('\n')
		}
		if !whole {
			return nil, errLong
		}
		line = append(f.long, line...)
		f.long = line
	}
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, err
}

// noLines is the parser of an empty file.
type noLines struct{}

func (noLines) parse([]byte, [][]byte) error { return nil }
