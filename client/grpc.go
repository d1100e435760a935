package client

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "weir/api/weir/v1"
)

// GRPCOptions says what Weir is asked about gRPC calls. The zero value is its
// default.
type GRPCOptions struct {
	// Empty: DefaultDomain.
	Domain string
	// What a call of a method (/package.Service/Method) is limited by; for none, it
	// passes unasked. nil: two descriptors, as Envoy would send them for the same
	// call: endpoint=METHOD, and endpoint=METHOD, remote_address=ADDRESS of the
	// connection's peer.
	Descriptors func(ctx context.Context, method string) []*weirv1.Descriptor
}

// UnaryServerInterceptor asks Weir about each call. One that may pass has the
// headers that Weir sends in its response's header. The rest end with a status:
//
//	RESOURCE_EXHAUSTED  over the limit (or queued: a call cannot wait there), with
//	                    Weir's headers in the trailer, its body as the message,
//	                    and a RetryInfo with the exact wait, unless waiting
//	                    cannot help; or not decided, with OnFailure Deny
//	INVALID_ARGUMENT    see Check
//	UNAVAILABLE         not decided, with OnFailure Error
//
// Headers for the upstream (--upstream-headers) are in the context's incoming
// metadata.
func (c *Client) UnaryServerInterceptor(o GRPCOptions) grpc.UnaryServerInterceptor {
	o = o.complete()
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, headers, err := c.admit(ctx, &o, info.FullMethod)
		if err != nil {
			_ = grpc.SetTrailer(ctx, headers) // it fails where there is no call
			return nil, err
		}
		_ = grpc.SetHeader(ctx, headers)
		return handler(ctx, req)
	}
}

// StreamServerInterceptor does the same where a stream begins; its messages are
// not counted.
func (c *Client) StreamServerInterceptor(o GRPCOptions) grpc.StreamServerInterceptor {
	o = o.complete()
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, headers, err := c.admit(stream.Context(), &o, info.FullMethod)
		if err != nil {
			stream.SetTrailer(headers)
			return err
		}
		_ = stream.SetHeader(headers)
		return handler(srv, &streamWithContext{stream, ctx})
	}
}

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamWithContext) Context() context.Context { return s.ctx }

func (o GRPCOptions) complete() GRPCOptions {
	o.Domain = cmp.Or(o.Domain, DefaultDomain)
	if o.Descriptors == nil {
		o.Descriptors = grpcDescriptors
	}
	return o
}

// admit asks about a call. The headers are for its response, be it refused or not;
// the context is for its handler.
func (c *Client) admit(ctx context.Context, o *GRPCOptions, method string) (context.Context, metadata.MD, error) {
	descriptors := o.Descriptors(ctx, method)
	if len(descriptors) == 0 {
		return withMetadata(ctx, nil), nil, nil
	}
	d, err := c.Check(ctx, o.Domain, descriptors...)
	if err != nil {
		return ctx, nil, err
	}
	headers := make(metadata.MD, len(d.Response.GetHeaders()))
	for _, line := range d.Response.GetHeaders() {
		if name := strings.ToLower(line.GetName()); name != "content-type" { // which is gRPC's
			headers[name] = append(headers[name], string(line.GetValue()))
		}
	}
	if !d.Allowed || d.Queued() {
		return ctx, headers, overLimit(d.Response)
	}
	return withMetadata(ctx, d.Response.GetUpstreamHeaders()), headers, nil
}

func overLimit(resp *weirv1.CheckResponse) error {
	st := grpcstatus.New(codes.ResourceExhausted, cmp.Or(strings.ToValidUTF8(string(resp.GetBody()), "\uFFFD"), "over the rate limit"))
	wait, helps := retryAfter(resp)
	if !helps {
		return st.Err()
	}
	if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		st = detailed
	}
	return st.Err()
}

// retryAfter is the longest wait that a limit asks for; false: none does, or for
// one of them no wait is long enough.
func retryAfter(resp *weirv1.CheckResponse) (wait time.Duration, helps bool) {
	for _, d := range resp.GetDecisions() {
		if d.Allowed || d.Shadow {
			continue
		}
		if d.RetryAfter == nil {
			return 0, false
		}
		wait, helps = max(wait, d.RetryAfter.AsDuration()), true
	}
	return wait, helps
}

// withMetadata is the context with what Weir tells the upstream in its incoming
// metadata. What a client claims in Weir's name is removed.
func withMetadata(ctx context.Context, add []*weirv1.HttpHeader) context.Context {
	changes := len(add) > 0
	for _, name := range claims {
		changes = changes || metadata.ValueFromIncomingContext(ctx, name) != nil
	}
	if !changes {
		return ctx
	}
	md, ok := metadata.FromIncomingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	for _, name := range claims {
		md.Delete(name)
	}
	for _, line := range add {
		md.Append(line.GetName(), string(line.GetValue()))
	}
	return metadata.NewIncomingContext(ctx, md)
}

func grpcDescriptors(ctx context.Context, method string) []*weirv1.Descriptor {
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
		if addr, err := parsePeer(address); err == nil {
			address = addr.String()
		}
	}
	return []*weirv1.Descriptor{
		Describe("endpoint", method),
		Describe("endpoint", method, "remote_address", address),
	}
}
