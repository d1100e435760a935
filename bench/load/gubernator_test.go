package load

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// gubernatorAnswer is a GetRateLimitsResp with a limit for each status.
func gubernatorAnswer(remaining uint64, fault string, statuses ...uint64) (b []byte) {
	for _, status := range statuses {
		var l []byte
		l = protowire.AppendVarint(protowire.AppendTag(l, 1, protowire.VarintType), status)
		l = protowire.AppendVarint(protowire.AppendTag(l, 3, protowire.VarintType), remaining)
		l = protowire.AppendFixed64(protowire.AppendTag(l, 9, protowire.Fixed64Type), 7) // unknown
		if fault != "" {
			l = protowire.AppendString(protowire.AppendTag(l, 5, protowire.BytesType), fault)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), l)
		remaining++
	}
	return b
}

func TestGubernatorsAnswerIsRead(t *testing.T) {
	for _, x := range []struct {
		remark    string
		answer    []byte
		over      bool
		remaining uint64
		bad       bool
	}{
		{"under the limit", gubernatorAnswer(7, "", 0), false, 7, false},
		{"over", gubernatorAnswer(0, "", 1), true, 0, false},
		{"one of three is over; what is left is the first's", gubernatorAnswer(3, "", 0, 1, 0), true, 3, false},
		{"it says what is wrong", gubernatorAnswer(0, "no peer", 0), false, 0, true},
		{"no limit", nil, false, 0, true},
		{"cut short", gubernatorAnswer(7, "", 0)[:4], false, 0, true},
	} {
		over, remaining, err := readLimits(x.answer)
		if over != x.over || remaining != x.remaining && !x.bad || (err != nil) != x.bad {
			t.Errorf("%s: %v, %d, %v", x.remark, over, remaining, err)
		}
	}
}
