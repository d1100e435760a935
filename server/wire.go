package server

import (
	"errors"
	"fmt"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"weir/rules"
)

// This file reads an envoy.service.ratelimit.v3.RateLimitRequest from its wire
// form by hand. The official decoder refuses a value that is not UTF-8, which
// Envoy sends as it came from the client, and copies each string.

// wire is a stretch of a message, as bytes to parse and as text to keep.
type wire struct {
	bytes []byte
	text  string
}

// field is one field of a message; body is set if it is length-delimited.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	body   wire
}

func (f *field) isBytes(n protowire.Number) bool {
	return f.number == n && f.kind == protowire.BytesType
}
func (f *field) isVarint(n protowire.Number) bool {
	return f.number == n && f.kind == protowire.VarintType
}

var errNumber = errors.New("a field's number is too large")

// next cuts the first field off.
func (w *wire) next() (f field, err error) {
	number, kind, n := protowire.ConsumeTag(w.bytes)
	if n < 0 {
		return f, protowire.ParseError(n)
	}
	if number > protowire.MaxValidNumber {
		return f, errNumber
	}
	w.skip(n)
	f.number, f.kind = number, kind
	switch kind {
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(w.bytes)
	case protowire.BytesType:
		var body []byte
		if body, n = protowire.ConsumeBytes(w.bytes); n >= 0 {
			f.body = wire{body, w.text[n-len(body) : n]}
		}
	default:
		n = protowire.ConsumeFieldValue(number, kind, w.bytes)
	}
	if n < 0 {
		return f, protowire.ParseError(n)
	}
	w.skip(n)
	return f, nil
}

func (w *wire) skip(n int) { w.bytes, w.text = w.bytes[n:], w.text[n:] }

// decode reads a message from the transport into the call; the buffers are
// copied once, since they go back to their pool. What is wrong with the request
// is kept for the handler, which answers InvalidArgument; the transport would
// say Internal.
func (c *call) decode(data mem.BufferSlice) {
	var w wire
	if len(data) == 1 {
		w.bytes = data[0].ReadOnlyData()
	} else {
		w.bytes = data.Materialize()
	}
	w.text = string(w.bytes)
	c.fault = c.readRequest(w)
	if c.fault == nil {
		c.fault = validate(&c.request)
	}
}

func (c *call) readRequest(w wire) error {
	for len(w.bytes) > 0 {
		f, err := w.next()
		switch {
		case err != nil:
			return fmt.Errorf("reading the request: %w", err)
		case f.isBytes(1):
			c.request.Domain = f.body.text
		case f.isBytes(2):
			if err := c.readDescriptor(f.body); err != nil {
				return fmt.Errorf("descriptor %d: %w", len(c.request.Descriptors), err)
			}
		case f.isVarint(3):
			c.request.Hits = uint64(uint32(f.varint))
		}
	}
	return nil
}

func (c *call) readDescriptor(w wire) error {
	c.request.Descriptors = append(c.request.Descriptors, rules.Descriptor{})
	d := &c.request.Descriptors[len(c.request.Descriptors)-1]
	first := len(c.entries)
	var limit override
	for len(w.bytes) > 0 {
		f, err := w.next()
		if err == nil {
			switch {
			case f.isBytes(1):
				err = c.readEntry(f.body)
			case f.isBytes(2):
				err = limit.read(f.body)
			case f.isBytes(3):
				d.HasHits = true
				err = readWrapped(f.body, &d.Hits)
			case f.isVarint(4):
				d.Refund = f.varint != 0
			}
		}
		if err != nil {
			return err
		}
	}
	d.Entries = c.entries[first:len(c.entries):len(c.entries)]
	if limit.present {
		o, err := rules.NewOverride(limit.requests, limit.unitName(), limit.multiplier)
		if err != nil {
			return fmt.Errorf("limit: %w", err)
		}
		d.Override = o
	}
	return nil
}

func (c *call) readEntry(w wire) error {
	var e rules.Entry
	for len(w.bytes) > 0 {
		f, err := w.next()
		switch {
		case err != nil:
			return err
		case f.isBytes(1):
			e.Key = f.body.text
		case f.isBytes(2):
			e.Value = f.body.text
		}
	}
	c.entries = append(c.entries, e)
	return nil
}

// override is a descriptor's own limit on the wire.
type override struct {
	present    bool
	requests   uint32
	unit       int32
	multiplier uint32
	multiplied bool
}

func (o *override) read(w wire) error {
	o.present = true
	if !o.multiplied {
		o.multiplier = 1
	}
	for len(w.bytes) > 0 {
		f, err := w.next()
		switch {
		case err != nil:
			return err
		case f.isVarint(1):
			o.requests = uint32(f.varint)
		case f.isVarint(2):
			o.unit = int32(f.varint)
		case f.isBytes(3):
			n := uint64(0)
			if o.multiplied { // said in two parts, which merge
				n = uint64(o.multiplier)
			}
			o.multiplied = true
			if err := readWrapped(f.body, &n); err != nil {
				return err
			}
			o.multiplier = uint32(n)
		}
	}
	return nil
}

// unitName is the unit as rules spell it; empty if there is none.
func (o *override) unitName() string {
	if o.unit == int32(typev3.RateLimitUnit_UNKNOWN) {
		return ""
	}
	return typev3.RateLimitUnit_name[o.unit]
}

// readWrapped reads a google.protobuf.UInt64Value or UInt32Value.
func readWrapped(w wire, v *uint64) error {
	for len(w.bytes) > 0 {
		f, err := w.next()
		if err != nil {
			return err
		}
		if f.isVarint(1) {
			*v = f.varint
		}
	}
	return nil
}

// maxDescriptors bounds what one request may cost all others: Redis runs the
// script of one at a time. Envoy sends a handful.
const maxDescriptors = 1000

// maxEntries bounds how many entries they have in all.
const maxEntries = 10_000

// validate says what a well-formed request lacks.
func validate(r *rules.Request) error {
	if r.Domain == "" {
		return errors.New("the domain is empty: name the domain of the rules, as in the rate limit filter's domain field")
	}
	if n := len(r.Descriptors); n > maxDescriptors {
		return fmt.Errorf("%d descriptors are more than %d, the most that a request may have", n, maxDescriptors)
	}
	if len(r.Descriptors) == 0 {
		return errors.New("there are no descriptors: send one at least")
	}
	entries := 0
	for i := range r.Descriptors {
		if entries += len(r.Descriptors[i].Entries); entries > maxEntries {
			return fmt.Errorf("the descriptors have more than %d entries in all, the most that a request may have", maxEntries)
		}
		for j := range r.Descriptors[i].Entries {
			if r.Descriptors[i].Entries[j].Key == "" {
				return fmt.Errorf("descriptor %d: entry %d has an empty key", i+1, j+1)
			}
		}
	}
	return nil
}
