package weirv1

import "unicode/utf8"

// NewEntry returns the entry of a key and a value of any bytes.
func NewEntry(key, value string) *Entry {
	if utf8.ValidString(value) {
		return &Entry{Key: key, Value: value}
	}
	return &Entry{Key: key, RawValue: []byte(value)}
}

// Text is the entry's value, be it UTF-8 or not.
func (e *Entry) Text() string {
	if len(e.GetRawValue()) > 0 {
		return string(e.GetRawValue())
	}
	return e.GetValue()
}
