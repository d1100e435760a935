package ruletest

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file writes an envoy.service.ratelimit.v3.RateLimitRequest by hand: the
// official encoder refuses values that are not UTF-8, which Envoy sends.

// request is what a step sends.
type request struct {
	domain      string
	descriptors []descriptor
	hits        uint64 // 0: unset
}

type descriptor struct {
	entries []entry
	hits    *uint64
	refund  bool
	limit   *ownLimit
}

type entry struct{ key, value string }

// ownLimit is a limit that comes with the request.
type ownLimit struct {
	requests   uint64
	unit       string
	multiplier uint64 // 0: unset
}

// units are those of envoy.type.v3.RateLimitUnit, by number.
func units() []string {
	return []string{"UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"}
}

func (q *request) encode() []byte {
	b := text(nil, 1, q.domain)
	for i := range q.descriptors {
		b = message(b, 2, q.descriptors[i].encode())
	}
	if q.hits > 0 {
		b = number(b, 3, q.hits)
	}
	return b
}

func (d *descriptor) encode() (b []byte) {
	for _, e := range d.entries {
		b = message(b, 1, text(text(nil, 1, e.key), 2, e.value))
	}
	if d.limit != nil {
		b = message(b, 2, d.limit.encode())
	}
	if d.hits != nil {
		b = message(b, 3, number(nil, 1, *d.hits)) // a UInt64Value: 0 is not unset
	}
	if d.refund {
		b = number(b, 4, 1)
	}
	return b
}

func (l *ownLimit) encode() []byte {
	b := number(nil, 1, l.requests)
	for i, name := range units() {
		if strings.EqualFold(name, l.unit) {
			b = number(b, 2, uint64(i))
		}
	}
	if l.multiplier > 0 {
		b = message(b, 3, number(nil, 1, l.multiplier))
	}
	return b
}

func text(b []byte, n protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func message(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func number(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

// parseDescriptor reads key=value,key=value and then hits=N, refund, limit=N/UNIT.
// A lone - has no entries, and %XX is a byte of a key or a value.
func parseDescriptor(text string) (d descriptor, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return d, fmt.Errorf("an empty descriptor: it is key=value,key=value, or - for one without entries")
	}
	if words[0] != "-" {
		for pair := range strings.SplitSeq(words[0], ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return d, fmt.Errorf("%q is not key=value (a blank or a comma within a value is written %%20 or %%2C)", pair)
			}
			d.entries = append(d.entries, entry{unescape(key), unescape(value)})
		}
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "refund":
			d.refund = true
		case "hits":
			n, ok := digits(value)
			if !ok {
				return d, fmt.Errorf("%s: hits is a whole number", word)
			}
			d.hits = &n
		case "limit":
			if d.limit, err = parseOwnLimit(value); err != nil {
				return d, err
			}
		default:
			return d, fmt.Errorf("what is %q after the entries? It is hits=N, refund or limit=N/UNIT; entries have a comma between them, and a blank within a value is written %%20", word)
		}
	}
	return d, nil
}

// parseOwnLimit reads N/UNIT or N/MxUNIT.
func parseOwnLimit(text string) (*ownLimit, error) {
	many, unit, ok := strings.Cut(text, "/")
	requests, isNumber := digits(many)
	l := &ownLimit{requests: requests, unit: unit}
	if times, name, multiplied := strings.Cut(unit, "x"); multiplied {
		n, isNumber := digits(times)
		ok = ok && isNumber && n > 0 && n < 1<<32
		l.multiplier, l.unit = n, name
	}
	known := false
	for _, name := range units() {
		known = known || strings.EqualFold(name, l.unit)
	}
	if !ok || !isNumber || requests >= 1<<32 || !known {
		return nil, fmt.Errorf("limit=%s: it is N/UNIT or N/MxUNIT, such as 100/HOUR or 10/5xMINUTE, of %s", text, strings.Join(units(), ", "))
	}
	return l, nil
}

// unescape turns each %XX into the byte.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := hexDigit(s[i+1]), hexDigit(s[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func hexDigit(c byte) int { return strings.IndexByte("0123456789abcdef", c|0x20) }
