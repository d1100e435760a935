package server

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"weir/limiter"
	"weir/rules"
)

// MetadataStyle is a set of what the dynamic metadata of an answer tells, which
// Envoy's access log and later filters can read, beside what it tells always:
// shadow verdicts, as weir.shadow, and the metadata of rules that passed. The
// zero value adds nothing.
type MetadataStyle uint8

// The parts of the metadata.
const (
	WeirMetadata  MetadataStyle = 1 << iota // weir: what the headers describe, and who refused
	EnvoyMetadata                           // domain, descriptors, hitsAddend, as envoyproxy/ratelimit tells them
)

// metadata is the answer's google.protobuf.Struct; nil where there is nothing to
// tell.
func (s *Service) metadata(c *call, decisions []limiter.Decision, told int) []byte {
	var b []byte
	if s.opts.Metadata&EnvoyMetadata != 0 {
		b = appendRequest(b, c)
	}
	b = s.appendRuleMetadata(b, c)
	var weir []byte
	if s.opts.Metadata&WeirMetadata != 0 && told >= 0 {
		weir = appendVerdict(weir, c, decisions, told)
	}
	weir = s.appendShadow(weir, &c.plan, decisions)
	if weir != nil {
		b = appendField(b, "weir", appendBytes(nil, valueStruct, weir))
	}
	return b
}

// appendVerdict appends what the headers describe, and the rules that refuse.
func appendVerdict(b []byte, c *call, decisions []limiter.Decision, told int) []byte {
	p := &c.plan
	h, d := &p.Hits[told], &decisions[told]
	b = appendField(b, "rule", stringValue(labelOf(p.Rules[told])))
	b = appendField(b, "limit", numberValue(float64(h.Limit.Requests)))
	b = appendField(b, "remaining", numberValue(float64(d.Remaining)))
	if reset := resetOf(d, c.answer.over); reset > 0 {
		b = appendField(b, "reset", numberValue(float64(seconds(reset))))
	}
	if !c.answer.over {
		return b
	}
	quotasRefuse := allQuotasRefuse(p.Hits, decisions)
	refuse := func(i int) bool {
		h := &p.Hits[i]
		return !decisions[i].Allowed && !h.Shadow && !h.Refund && (!h.Quota || quotasRefuse)
	}
	return appendField(b, "refused_by", appendBytes(nil, valueList, appendLabels(nil, p, refuse)))
}

// appendShadow appends the rules that would have refused but for their shadow
// mode, or the server's: {"shadow": ["RULE", …]}, or nothing if there are none.
func (s *Service) appendShadow(b []byte, p *rules.Plan, decisions []limiter.Decision) []byte {
	names := appendLabels(nil, p, func(i int) bool {
		h := &p.Hits[i]
		// A quota that another one made good for would not have refused.
		return !decisions[i].Allowed && (h.Shadow || s.opts.Shadow && !(h.Quota && !allQuotasRefuse(p.Hits, decisions)))
	})
	if names == nil {
		return b
	}
	return appendField(b, "shadow", appendBytes(nil, valueList, names))
}

// appendLabels appends the labels of the rules of these hits to a ListValue,
// once for all limits of a rule.
func appendLabels(b []byte, p *rules.Plan, of func(hit int) bool) []byte {
	var last *rules.Rule
	for i := range p.Hits {
		if !of(i) {
			continue
		}
		r := p.Rules[i]
		if r != nil && r == last {
			continue
		}
		last = r
		b = appendBytes(b, listValues, stringValue(labelOf(r)))
	}
	return b
}

// appendRuleMetadata appends "metadata": that of the rules that passed, merged;
// where two say the same key, the first wins. Of an exempt request it is that of
// the exempt rules.
func (s *Service) appendRuleMetadata(b []byte, c *call) []byte {
	var first *rules.Rule
	var merged map[string]any
	for i := range c.plan.Matches {
		r := c.plan.Matches[i].Rule
		if r == nil || len(r.Metadata) == 0 || r == first || c.answer.statuses[i].over || c.plan.Exempt && !r.Exempt {
			continue
		}
		switch {
		case first == nil:
			first = r
		case merged == nil:
			merged = merge(first.Metadata, r.Metadata)
		default:
			merged = merge(merged, r.Metadata)
		}
	}
	switch {
	case first == nil:
		return b
	case merged == nil:
		return appendField(b, "metadata", appendBytes(nil, valueStruct, s.texts.of(s.opts.Rules.Current(), first).metadata))
	}
	return appendField(b, "metadata", appendBytes(nil, valueStruct, appendFields(nil, merged)))
}

// merge changes neither. Maps within are merged too.
func merge(first, second map[string]any) map[string]any {
	out := maps.Clone(second)
	for key, value := range first {
		mine, isMap := value.(map[string]any)
		other, bothMaps := second[key].(map[string]any)
		if isMap && bothMaps {
			value = merge(mine, other)
		}
		out[key] = value
	}
	return out
}

// appendRequest appends the request as envoyproxy/ratelimit repeats it.
func appendRequest(b []byte, c *call) []byte {
	b = appendField(b, "domain", stringValue(c.request.Domain))
	var list []byte
	for i := range c.request.Descriptors {
		d := &c.request.Descriptors[i]
		var entries, one []byte
		for _, e := range d.Entries {
			entries = appendBytes(entries, listValues, stringValue(e.Key+"="+e.Value))
		}
		one = appendField(one, "entries", appendBytes(nil, valueList, entries))
		if m := &c.plan.Matches[i]; d.Override != nil && m.Hits > 0 {
			one = appendField(one, "limit", stringValue(limitText(&c.plan.Hits[m.First].Limit)))
		}
		if d.HasHits {
			one = appendField(one, "hitsAddend", numberValue(float64(d.Hits)))
		}
		list = appendBytes(list, listValues, appendBytes(nil, valueStruct, one))
	}
	b = appendField(b, "descriptors", appendBytes(nil, valueList, list))
	if c.request.Hits > 0 {
		b = appendField(b, "hitsAddend", numberValue(float64(c.request.Hits)))
	}
	return b
}

// limitText is a limit of the request's own as protobuf prints it.
func limitText(l *limiter.Limit) string {
	unit, times := unitOf(l.Window)
	text := "requests_per_unit:" + strconv.FormatUint(l.Requests, 10) + " unit:" + unit.String()
	if times > 1 {
		text += " unit_multiplier:{value:" + strconv.FormatUint(times, 10) + "}"
	}
	return text
}

// Field numbers of google/protobuf/struct.proto.
const (
	structFields = 1
	listValues   = 1

	valueNull   = 1
	valueNumber = 2
	valueString = 3
	valueBool   = 4
	valueStruct = 5
	valueList   = 6
)

// appendField appends a field, whose value is an encoded Value, to a Struct.
func appendField(b []byte, key string, value []byte) []byte {
	key = toValid(key)
	b = protowire.AppendTag(b, structFields, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(key))+protowire.SizeTag(2)+protowire.SizeBytes(len(value))))
	return appendBytes(appendString(b, 1, key), 2, value)
}

func stringValue(s string) []byte { return appendString(nil, valueString, toValid(s)) }

func numberValue(n float64) []byte {
	b := protowire.AppendTag(make([]byte, 0, 9), valueNumber, protowire.Fixed64Type)
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
}

// appendFields appends a mapping of rules to a Struct, by the order of its keys.
func appendFields(b []byte, m map[string]any) []byte {
	for _, key := range slices.SortedFunc(maps.Keys(m), cmp.Compare[string]) {
		b = appendField(b, key, anyValue(m[key]))
	}
	if b == nil {
		b = []byte{}
	}
	return b
}

// anyValue encodes what rules.Rule.Metadata may hold.
func anyValue(v any) []byte {
	switch v := v.(type) {
	case nil:
		return appendVarint(nil, valueNull, uint64(structpb.NullValue_NULL_VALUE))
	case bool:
		return appendVarint(nil, valueBool, protowire.EncodeBool(v))
	case int:
		return numberValue(float64(v))
	case int64:
		return numberValue(float64(v))
	case uint64:
		return numberValue(float64(v))
	case float64:
		return numberValue(v)
	case string:
		return stringValue(v)
	case map[string]any:
		return appendBytes(nil, valueStruct, appendFields(nil, v))
	case []any:
		var list []byte
		for _, item := range v {
			list = appendBytes(list, listValues, anyValue(item))
		}
		return appendBytes(nil, valueList, list)
	}
	return stringValue(strings.TrimSpace(fmt.Sprint(v)))
}
