package rules

// TellsValues tells whether metrics of the rule have a part for each value of some
// of its entries (detailed_metric, value_to_metric).
func (r *Rule) TellsValues() bool { return r.tellsValues }

// told tells whether metrics tell the value of a step that does not name it itself.
// What shares one counter is told as one.
func told(s *part, detailed bool) bool {
	return (detailed || s.toMetric) && !s.share && s.kind != exactValue
}

// AppendMetric appends what metrics call a descriptor that matches the rule: the
// rule's path, with the descriptor's values in place of the patterns that are to be
// told. An address that is masked is told as its network. Of a value at most so
// many bytes are taken. It may not be valid UTF-8.
func (r *Rule) AppendMetric(b []byte, entries []Entry, most int) []byte {
	for i := range r.path {
		s := &r.path[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, s.key...), '=')
		if !told(s, r.DetailedMetric) || i >= len(entries) {
			b = append(b, cut(s.text, most)...)
			continue
		}
		b = r.appendTold(b, i, entries[i].Value, most)
	}
	return b
}

func (r *Rule) appendTold(b []byte, entry int, value string, most int) []byte {
	for _, v := range r.variables {
		if v.entry != entry || !v.mask.set() {
			continue
		}
		if addr, ok := parseAddress(value); ok {
			return v.mask.network(addr).AppendTo(b)
		}
	}
	return append(b, cut(value, most)...)
}

func cut(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}
