package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "weir/api/weir/v1"
)

func TestAMessageTakesNoMoreMemoryThanItHasBytes(t *testing.T) {
	c := newCodec(nil)
	for _, size := range []int{1, largePooled - 100, largePooled + 1, 3 * largePooled, 2 << 20} {
		m := &weirv1.StatsResponse{Version: strings.Repeat("x", size)}
		data, err := c.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		held := 0
		for _, b := range data {
			held += cap(b.ReadOnlyData())
		}
		if most := max(largePooled, proto.Size(m)); held > most {
			t.Errorf("a message of %d bytes holds %d, want %d at most", proto.Size(m), held, most)
		}
		var got weirv1.StatsResponse
		if err := c.Unmarshal(data, &got); err != nil || got.Version != m.Version {
			t.Errorf("a message of %d bytes does not come back: %v", proto.Size(m), err)
		}
		data.Free()
	}
}
