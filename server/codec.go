package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of every other message
	"google.golang.org/grpc/mem"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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
	if r, ok := v.(*reading); ok {
		r.err = c.CodecV2.Unmarshal(data, r.message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal hands over the answer of a call, after which the call is free for another.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if call, ok := v.(*call); ok {
		b := call.encoded
		c.calls.put(call)
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	if m, ok := v.(proto.Message); ok {
		if size := proto.Size(m); size > largePooled {
			b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, size), m)
			if err != nil {
				return nil, err
			}
			return mem.BufferSlice{mem.SliceBuffer(b)}, nil
		}
	}
	return c.CodecV2.Marshal(v)
}

// largePooled is the largest buffer of grpc's pool but one, of 1 MiB. A message that
// takes a little more would have all of that for as long as its client does not read,
// which for those who watch may be long.
const largePooled = 32 << 10

// blaming registers services whose callers are told that their message cannot be
// read: grpc by itself says Internal, as if the server were at fault, as soon as
// the codec fails.
type blaming struct{ *grpc.Server }

func (b blaming) RegisterService(desc *grpc.ServiceDesc, impl any) {
	own := *desc
	own.Methods, own.Streams = slices.Clone(desc.Methods), slices.Clone(desc.Streams)
	for i := range own.Methods {
		handler := own.Methods[i].Handler
		own.Methods[i].Handler = func(srv any, ctx context.Context, read func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handler(srv, ctx, func(message any) error { return readWith(read, message) }, interceptor)
		}
	}
	for i := range own.Streams {
		handler := own.Streams[i].Handler
		own.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error { return handler(srv, blamingStream{stream}) }
	}
	b.Server.RegisterService(&own, impl)
}

type blamingStream struct{ grpc.ServerStream }

func (s blamingStream) RecvMsg(message any) error { return readWith(s.ServerStream.RecvMsg, message) }

// reading is a message that is read, and what is wrong with it.
type reading struct {
	message any
	err     error
}

func readWith(read func(any) error, message any) error {
	r := &reading{message: message}
	if err := read(r); err != nil {
		return err
	}
	if r.err != nil {
		return grpcstatus.Errorf(codes.InvalidArgument, "reading the request: %v", r.err)
	}
	return nil
}
