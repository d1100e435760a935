package server

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of every other message
	"google.golang.org/grpc/mem"
)

// codec carries rate limit calls by hand and every other message as grpc does.
type codec struct {
	encoding.CodecV2
	calls *calls
}

func newCodec(calls *calls) codec { return codec{encoding.GetCodecV2("proto"), calls} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if call, ok := v.(*call); ok {
		call.decode(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal hands over the answer of a call, after which the call is free for another.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	call, ok := v.(*call)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b := call.encoded
	c.calls.put(call)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}
